#!/usr/bin/env bats
# install-linux.sh on a bare machine, as the guide's reader runs it: through a pipe, into the machine's own folders.
# For throw-away machines only (it installs, and it purges): see .ci/bare-root. GOODPUT_ORIGIN is a running server with
# a release; SCRIPT_FLAGS is empty for root, --user for an ordinary user. Tests of `embedded` need PORT, a free port.

setup() {
    [ -n "${GOODPUT_ORIGIN:-}" ] || skip 'GOODPUT_ORIGIN names no server'
    flags=${SCRIPT_FLAGS:-}
    if [ "$(id -u)" = 0 ]; then
        prefix=/opt/goodput config=/etc/goodput state=/var/lib/goodput-agent command=/usr/local/bin/goodput-agent
        server=/opt/goodput-server
    else
        prefix=$HOME/.local/share/goodput config=$HOME/.config/goodput state=$HOME/.local/state/goodput-agent
        command=$HOME/.local/bin/goodput-agent server=$HOME/goodput/server
    fi
    cd "$BATS_TEST_TMPDIR"
}

teardown() {
    if [ -n "${mirror_pid:-}" ]; then kill "$mirror_pid"; fi
}

install() { # install FLAGS...: the guide's line
    curl -fsSL "$GOODPUT_ORIGIN/install-linux.sh" | bash -s -- $flags "$@"
}

footprint() { # every file that is ours, with its content's sum
    find / -xdev -path /proc -prune -o -path '/tmp/*' -prune -o -path '*goodput*' -type f -exec cksum {} + 2>/dev/null | sort
}

mirror() { # mirror: a copy of the server's release that a test may spoil, offered at $bad
    mkdir -p site/releases
    (
        cd site/releases
        curl -fsSO "$GOODPUT_ORIGIN/releases/manifest.json"
        version=$(sed -n 's/^ *"version": *"\(.*\)".*/\1/p' manifest.json)
        for name in $(sed -n 's/^ *"name": *"\(.*\)".*/\1/p' manifest.json) "SHA256SUMS-$version"; do
            curl -fsSO "$GOODPUT_ORIGIN/releases/$name"
        done
    )
    curl -fsSL -o site/install-linux.sh "$GOODPUT_ORIGIN/install-linux.sh"
    python3 -u -m http.server --bind 127.0.0.1 --directory site 0 >mirror.log 2>&1 3>&- &
    mirror_pid=$!
    for _ in $(seq 50); do
        bad=$(sed -n 's/.*(\(http:[^)]*\)\/).*/\1/p' mirror.log)
        if [ -n "$bad" ]; then break; fi
        sleep 0.1
    done
}

install_from_mirror() {
    GOODPUT_ORIGIN=$bad bash site/install-linux.sh $flags "$@"
}

@test "agent-only: a dry run changes nothing" {
    run install --agent-only --dry-run
    [ "$status" -eq 0 ]
    [[ $output == *'nothing was changed'* ]]
    [ -z "$(footprint)" ]
}

@test "agent-only: cut at every kilobyte, the script does nothing" {
    curl -fsSL -o whole.sh "$GOODPUT_ORIGIN/install-linux.sh"
    length=$(wc -c <whole.sh)
    for ((at = 0; at < length - 1; at += 1024)); do
        head -c "$at" whole.sh | bash -s -- $flags --agent-only >cut.log 2>&1 || true
        [ -z "$(footprint)" ]
    done
}

@test "agent-only: a wrong checksum is refused" {
    mirror
    for archive in site/releases/goodput-*-linux-amd64.tar.gz; do printf x >>"$archive"; done
    run install_from_mirror --agent-only
    [ "$status" -ne 0 ]
    [[ $output == *'SHA-256'*'Nothing was installed.'* ]]
    [ -z "$(footprint)" ]
}

@test "agent-only: a wrong signature is refused" {
    mirror
    sed -i 's/^\(# goodput [0-9.]* \).*/\11999-01-01/' site/releases/SHA256SUMS-*
    run install_from_mirror --agent-only
    [ "$status" -ne 0 ]
    [[ $output == *'signature of the release is wrong'* ]]
    [ -z "$(footprint)" ]
}

@test "agent-only: another key than the wanted one is refused" {
    run install --agent-only --key AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
    [ "$status" -ne 0 ]
    [[ $output == *'another key'* ]]
    [ -z "$(footprint)" ]
}

@test "agent-only: installs, and the agent delivers" {
    run install --agent-only --cluster bare
    [ "$status" -eq 0 ]
    [[ $output == *'signature: good'* ]]
    GOODPUT_SOURCE=sim "$command" once
    "$command" status | grep -q '"delivered": 1'
}

@test "agent-only: again is the upgrade, and keeps settings and outbox" {
    echo 'GOODPUT_OUTBOX_MB=900' >>"$config/agent.env"
    kept=$(cksum "$config/agent.env" "$state/outbox.sqlite")
    echo 0.0.1 >"$prefix/VERSION"
    install --agent-only
    [ "$(cat "$prefix/VERSION")" != 0.0.1 ]
    [ "$(cksum "$config/agent.env" "$state/outbox.sqlite")" = "$kept" ]
}

@test "agent-only: a release by somebody else is refused once one is known" {
    mirror
    sed -i 's/^\( *"key": *"\)..../\1AAAA/' site/releases/manifest.json
    before=$(footprint)
    run install_from_mirror --agent-only
    [ "$status" -ne 0 ]
    [[ $output == *'another key'* ]]
    sed -i '/"signature"/,$d' site/releases/manifest.json
    run install_from_mirror --agent-only
    [ "$status" -ne 0 ]
    [[ $output == *'not signed'* ]]
    [ "$(footprint)" = "$before" ]
}

@test "agent-only: a downgrade is refused unless asked for" {
    version=$(cat "$prefix/VERSION")
    echo 99.0.0 >"$prefix/VERSION"
    run install --agent-only
    [ "$status" -ne 0 ]
    [[ $output == *'is older'* ]]
    [ "$(cat "$prefix/VERSION")" = 99.0.0 ]
    install --agent-only --allow-downgrade
    [ "$(cat "$prefix/VERSION")" = "$version" ]
}

@test "agent-only: uninstall keeps data, purge leaves nothing" {
    install --agent-only --uninstall
    [ ! -e "$prefix" ] && [ ! -e "$command" ]
    [ -s "$state/outbox.sqlite" ] && [ -s "$config/agent.env" ]
    install --agent-only --uninstall --purge
    [ -z "$(footprint)" ]
}

embedded() {
    [ -n "${PORT:-}" ] || skip 'PORT names no free port'
    GOODPUT_PORT=$PORT install --no-docker "$@" 3>&-
}

goodput() {
    "$server/current/goodput" "$@" 3>&-
}

@test "embedded: installs, and every public page opens" {
    embedded
    for path in /healthz /readyz /guide/ /releases/manifest.json /install-linux.sh /llms-full.txt; do
        curl -fsS -o /dev/null "http://localhost:$PORT$path"
    done
    curl -fsSL "http://localhost:$PORT/" | grep -q Fleet
    goodput status
}

@test "embedded: its own release installs an agent" {
    [ -n "${PORT:-}" ] || skip 'PORT names no free port'
    local whose=''
    if [ "$(id -u)" != 0 ]; then whose=--user; fi
    curl -fsSL "http://localhost:$PORT/install-linux.sh" | bash -s -- $whose --agent-only
    GOODPUT_SOURCE=sim "$command" once
    curl -fsSL "http://localhost:$PORT/install-linux.sh" | bash -s -- $whose --agent-only --uninstall --purge
}

@test "embedded: again is the upgrade, and keeps the database" {
    [ -n "${PORT:-}" ] || skip 'PORT names no free port'
    goodput manage create_org kept --name Kept
    echo 0.0.1 >"$server/VERSION"
    embedded
    [ "$(cat "$server/VERSION")" != 0.0.1 ]
    run goodput manage create_org kept --name Kept
    [ "$status" -ne 0 ]
}

@test "embedded: a wrong checksum leaves the running server alone" {
    [ -n "${PORT:-}" ] || skip 'PORT names no free port'
    mirror
    for archive in site/releases/goodput-verify-*.pyz; do printf x >>"$archive"; done
    run install_from_mirror --no-docker
    [ "$status" -ne 0 ]
    [[ $output == *'SHA-256'* ]]
    goodput status
}

@test "embedded: uninstall stops it and keeps the data, purge leaves nothing" {
    [ -n "${PORT:-}" ] || skip 'PORT names no free port'
    embedded --uninstall
    run curl -fsS "http://localhost:$PORT/healthz"
    [ "$status" -ne 0 ]
    [ -d "$server/var/pg" ] || [ -L "$server/var/pg" ]
    embedded --uninstall --purge
    [ ! -e "$server" ]
    [ "$(id -u)" = 0 ] || [ ! -e "$HOME/goodput" ]
}
