#!/usr/bin/env bash
# Installs Goodput: the Docker stack, the server without Docker (--no-docker), or only the agent (--agent-only).
# Runs in bash 3.2 and newer and in dash, on Linux and (the Docker stack) on macOS. Everything happens in main, called on
# the last line and in braces: a download that was cut anywhere does nothing.

main() {
    set -eu
    # shellcheck disable=SC3040
    if (set -o pipefail) 2>/dev/null; then set -o pipefail; fi # dash has none
    umask 022
    origin=${GOODPUT_ORIGIN:-@GOODPUT_ORIGIN@} # filled in by the server that this script is read from
    mode=stack endpoint='' token_file='' cluster='' version='' key='' root=${GOODPUT_INSTALL_ROOT:-}
    endpoint_given=no user=no dry=no uninstall=no purge=no docker=yes downgrade=no
    work='' half='' lock='' os=$(uname -s) machine=$(uname -m)

    while [ $# -gt 0 ]; do
        case $1 in
            --agent-only) mode=agent ;;
            --no-docker) docker=no ;;
            --user) user=yes ;;
            --dry-run) dry=yes ;;
            --uninstall) uninstall=yes ;;
            --purge) purge=yes ;;
            --allow-downgrade) downgrade=yes ;;
            --endpoint | --token-file | --cluster | --version | --key | --root)
                [ $# -ge 2 ] || die "$1 needs a value"
                set_value "$1" "$2"
                shift
                ;;
            --endpoint=* | --token-file=* | --cluster=* | --version=* | --key=* | --root=*)
                set_value "${1%%=*}" "${1#*=}"
                ;;
            -h | --help)
                usage
                return 0
                ;;
            *) die "There is no option '$1'; --help lists them." 2 ;;
        esac
        shift
    done
    [ "$mode" = stack ] && [ "$docker" = no ] && mode=embedded
    [ "$purge" = no ] || [ "$uninstall" = yes ] || die '--purge goes with --uninstall.' 2

    set_places
    if [ "$uninstall" = yes ]; then
        remove
        return 0
    fi
    case $origin in
        http://* | https://*) ;;
        *) die 'This copy does not know its server. Read it from one, or set GOODPUT_ORIGIN=https://your.server' 2 ;;
    esac
    origin=${origin%/}
    check_machine
    [ "$mode" != agent ] || check_agent_settings
    trap clean_up EXIT
    trap 'exit 130' INT TERM HUP
    work=$(mktemp -d "${TMPDIR:-/tmp}/goodput-install.XXXXXX") || die "No folder can be made in ${TMPDIR:-/tmp}."
    case $mode in
        agent) install_agent ;;
        embedded) install_embedded ;;
        stack) install_stack ;;
    esac
}

clean_up() { # whatever way it ends: nothing of a half-written file, of the downloads, of its turn stays
    rm -rf "$work"
    [ -z "$half" ] || rm -f "$half"
    [ -z "$lock" ] || rm -f "$lock"
}

usage() {
    cat <<'TEXT'
install-linux.sh [--agent-only [--endpoint URL] [--token-file FILE] [--cluster NAME]] [--no-docker] [--user]
                 [--version X] [--key KEY] [--allow-downgrade] [--root DIR] [--dry-run] [--uninstall [--purge]]

  (nothing)        the Docker stack in ~/goodput: database, dashboard, agent
  --no-docker      the same server without containers (Python 3.11 to 3.14)
  --agent-only     only the agent; --endpoint takes a host or the full /v1/batches address
  --user           below the home folder, without root
  --version X      this version and no other
  --key KEY        the Ed25519 public key (base64) that the release must be signed with
  --root DIR       lay the files below DIR and start nothing (for images)
  --dry-run        show every step, change nothing
  --uninstall      remove it; --purge also removes data, settings and keys
TEXT
}

set_value() {
    case $1 in
        --endpoint) endpoint=$2 endpoint_given=yes ;;
        --token-file) token_file=$2 ;;
        --cluster) cluster=$2 ;;
        --version) version=$2 ;;
        --key) key=$2 ;;
        --root) root=$2 ;;
    esac
}

say() { printf '%s\n' "$*"; }
die() {
    printf 'goodput: %s\n' "$1" >&2
    exit "${2:-1}"
}

# Every change goes through these: they print the path first, and only print in a dry run.
touch_path() { say "  $1 $2"; }
do_it() {
    if [ "$dry" = yes ]; then return 0; fi
    "$@"
}
make_dir() { # make_dir PATH MODE
    if [ -d "$1" ]; then return 0; fi
    touch_path folder "$1"
    do_it mkdir -p "$1" || die "$1 can't be made."
    do_it chmod "$2" "$1"
}
put() { # put FROM TO MODE: replaced in one step
    touch_path write "$2"
    if [ "$dry" = yes ]; then return 0; fi
    half=$2.new.$$
    if ! { cp "$1" "$half" && chmod "$3" "$half" && mv -f "$half" "$2"; }; then
        die "$2 can't be written. What was there before is still there; run the same line again when there is room."
    fi
    half=''
}
take_turn() { # take_turn FOLDER: one installation of it at a time; a link holds the process's number from the first moment
    [ "$dry" = no ] || return 0
    local tries=0 by
    while ! ln -sn "$$" "$1/.installing" 2>/dev/null; do
        by=$(readlink "$1/.installing" || true)
        if [ -n "$by" ] && kill -0 "$by" 2>/dev/null; then die "Another installation is under way (process $by). If not, remove $1/.installing." 75; fi
        rm -f "$1/.installing" # of one that was killed
        tries=$((tries + 1))
        [ "$tries" -lt 5 ] || die "$1 can't be written."
    done
    lock=$1/.installing
}
drop() {
    if [ -e "$1" ] || [ -L "$1" ]; then
        touch_path remove "$1"
        do_it rm -rf "$1"
    fi
}

set_places() {
    is_root=no
    [ "$(id -u)" != 0 ] || is_root=yes
    if [ "$user" = no ] && [ "$is_root" = no ] && [ "$mode" = agent ] && [ "$uninstall" = no ] && [ -z "$root" ]; then
        die 'The agent of this machine is installed as root (sudo), or for you alone with --user.' 77
    fi
    local home=${HOME:-}
    [ -n "$home" ] || home=$(unset HOME && cd ~ && pwd) || die 'HOME is not set, and this account has no home folder.'
    home=${home%/}
    case $home$root in *[\'\"\\\$\`]*) die "A quotation mark, \$ or \\ in the path $home is more than this installer can do." ;; esac
    if [ "$user" = yes ]; then
        prefix=$root$home/.local/share/goodput
        config=$root$home/.config/goodput
        state=$root$home/.local/state/goodput-agent
        units=$root$home/.config/systemd/user
        bin=$root$home/.local/bin
    else
        prefix=$root/opt/goodput
        config=$root/etc/goodput
        state=$root/var/lib/goodput-agent
        units=$root/etc/systemd/system
        bin=$root/usr/local/bin
    fi
    stack=$root$home/goodput
    if [ "$mode" = embedded ] && [ "$is_root" = yes ] && [ "$user" = no ]; then
        server=$root/opt/goodput-server
    else
        server=$root$home/goodput/server
    fi
}

has() { command -v "$1" >/dev/null 2>&1; }
runs_systemd() { # whether units can be started here
    [ -z "$root" ] && [ -d /run/systemd/system ] && has systemctl || return 1
    [ "$user" = no ] || systemctl --user show-environment >/dev/null 2>&1
}

ctl() {
    if [ "$user" = yes ]; then systemctl --user "$@"; else systemctl "$@"; fi
}

check_machine() {
    has curl || has wget || die 'curl or wget is needed.'
    has tar || die 'tar is needed.'
    say "Goodput from $origin on $os $machine$(distro)"
    case $os in
        Linux) ;;
        Darwin)
            [ "$mode" = stack ] || die 'On macOS only the Docker stack is installed; agents run on Linux.'
            ;;
        *) die "There is no installer for $os; agents run on Linux." ;;
    esac
    case $machine in
        x86_64 | amd64 | aarch64 | arm64) ;;
        *) die "There is no release for $machine; it needs x86-64 or arm64." ;;
    esac
    gpus=no
    if has nvidia-smi && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then gpus=yes; fi
    say "  NVIDIA driver: $([ $gpus = yes ] && echo answers || echo 'does not answer; no GPUs will be read here')"
}

distro() {
    # shellcheck disable=SC1091
    if [ -r /etc/os-release ]; then (. /etc/os-release && printf ' (%s)' "${PRETTY_NAME:-$ID}"); fi
}

check_agent_settings() {
    case $endpoint in
        '') endpoint=$origin/v1/batches ;;
        http://*/v1/batches | https://*/v1/batches) ;;
        http://* | https://*) endpoint=${endpoint%/}/v1/batches ;;
        *:*) endpoint=http://${endpoint%/}/v1/batches ;;
        *) endpoint=http://${endpoint%/}:8080/v1/batches ;;
    esac
    case $endpoint$cluster in *[!A-Za-z0-9._:/@%+\[\]\ -]*) die 'The endpoint or cluster name has odd characters.' 2 ;; esac
    if [ -n "$token_file" ]; then
        [ -r "$token_file" ] || die "The key file $token_file can't be read."
        [ -s "$token_file" ] || die "The key file $token_file is empty."
    fi
}

# Downloads

fetch() { # fetch NAME FILE: below /releases/, over the proxies of the environment
    fetch_url "$origin/releases/$1" "$2"
}
fetch_url() {
    if has curl; then
        case $1 in
            https://*) curl -fsSL --proto '=https' --retry 2 --connect-timeout 20 -o "$2" "$1" ;;
            *) curl -fsSL --retry 2 --connect-timeout 20 -o "$2" "$1" ;;
        esac
    else
        wget -q -T 20 -O "$2" "$1"
    fi || die "$1 can't be fetched."
}

sha256() {
    if has sha256sum; then sha256sum "$1" | cut -d ' ' -f 1
    elif has shasum; then shasum -a 256 "$1" | cut -d ' ' -f 1
    else openssl dgst -sha256 -r "$1" | cut -d ' ' -f 1; fi
}

value_of() { # value_of KEY: a string of the manifest, which has one key per line
    sed -n 's/^ *"'"$1"'": *"\([A-Za-z0-9.+/=_-]*\)".*/\1/p' "$work/manifest.json" | head -n 1
}

get_manifest() { # sets release, sums in $work/sums; refuses a wrong version, a wrong signature, a downgrade
    local installed_version=$1 pinned=$2 name=manifest.json
    [ -z "$version" ] || name=manifest-$version.json
    say "  read $origin/releases/$name"
    fetch "$name" "$work/manifest.json"
    release=$(value_of version)
    case $release in '' | *[!0-9A-Za-z.+-]*)
        die "$origin/releases/$name is no manifest. Did a proxy answer in the server's place?"
        ;;
    esac
    [ -z "$version" ] || [ "$release" = "$version" ] || die "The manifest is of $release, not of $version."
    fetch "SHA256SUMS-$release" "$work/sums"
    grep -q "^# goodput $release " "$work/sums" || die 'The list of checksums is of another release.'
    check_signature "$pinned"
    if [ -r "$installed_version" ]; then
        local have
        have=$(cat "$installed_version")
        if [ "$have" != "$release" ] && [ "$(newer "$have" "$release")" = "$have" ] && [ "$downgrade" = no ]; then
            die "$have is installed, and $release is older. --allow-downgrade installs it all the same."
        fi
    fi
    say "  release $release"
}

newer() { # the higher of two versions, number by number
    printf '%s\n%s\n' "$1" "$2" | sort -t . -k 1,1n -k 2,2n -k 3,3n | tail -n 1
}

check_signature() { # with --key or a remembered key a signature is a must; else it is checked where it can be
    local pinned=$1 wanted=$key signature signer
    if [ -z "$wanted" ] && [ -r "$pinned" ]; then wanted=$(cat "$pinned"); fi
    signer=$(value_of key)
    signature=$(value_of value)
    if [ -z "$signature" ]; then
        [ -z "$wanted" ] || die 'The release is not signed, but a key is known that it must be signed with.'
        say '  signature: none; the checksums only show that nothing broke on the way'
        return 0
    fi
    if [ -n "$wanted" ] && [ "$signer" != "$wanted" ]; then
        die "The release is signed with another key ($signer) than the known one ($wanted)."
    fi
    printf '%s' "$signature" | base64 -d > "$work/signature" 2>/dev/null ||
        printf '%s' "$signature" | base64 -D > "$work/signature"
    # a raw Ed25519 key becomes a SubjectPublicKeyInfo by its fixed 12 bytes in front (RFC 8410)
    printf -- '-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA%s\n-----END PUBLIC KEY-----\n' "$signer" > "$work/key.pem"
    if ! has openssl || ! openssl pkeyutl -help 2>&1 | grep -q -- -rawin; then
        [ -z "$wanted" ] || die 'openssl 3 is needed to check the signature, and is not here.'
        say '  signature: not checked, because openssl 3 is not here'
        return 0
    fi
    openssl pkeyutl -verify -pubin -inkey "$work/key.pem" -rawin -in "$work/sums" -sigfile "$work/signature" \
        >/dev/null 2>&1 || die 'The signature of the release is wrong. Nothing was installed.'
    say "  signature: good, by $signer"
}

get_file() { # get_file NAME: fetched and checked, in $work
    local expected
    expected=$(sed -n "s/^\([0-9a-f]\{64\}\)  $1\$/\1/p" "$work/sums")
    [ -n "$expected" ] || die "The release has no $1."
    say "  fetch $origin/releases/$1"
    fetch "$1" "$work/$1"
    [ "$(sha256 "$work/$1")" = "$expected" ] || die "The SHA-256 of $1 is wrong. Nothing was installed."
}

has_file() { grep -q "  $1\$" "$work/sums"; }

remember_key() { # remember_key FILE: the key that the first installation saw
    local signer
    signer=$(value_of key)
    if [ -n "$signer" ] && [ -s "$work/signature" ]; then
        printf '%s\n' "$signer" > "$work/release.pub"
        put "$work/release.pub" "$1" 644
    fi
}

# The agent alone

install_agent() {
    get_manifest "$prefix/VERSION" "$prefix/release.pub"
    get_file "goodput-$release-linux-amd64.tar.gz" # the agent in it is one file for every architecture
    tar -xzf "$work/goodput-$release-linux-amd64.tar.gz" -C "$work"
    local from=$work/goodput-$release agent
    agent=$(choose_agent "$from")
    make_dir "$prefix" 755
    take_turn "$prefix"
    make_dir "$config" 755
    make_dir "$state" 700
    put "$agent" "$prefix/goodput-agent" 755
    printf '%s\n' "$release" > "$work/VERSION"
    put "$from/LICENSE" "$prefix/LICENSE" 644
    put "$from/agent.md" "$prefix/agent.md" 644 # the unit's Documentation=
    put "$from/install-linux.sh" "$prefix/install-linux.sh" 755
    if [ -n "$token_file" ] && ! cmp -s "$token_file" "$config/token"; then
        (umask 077 && put "$token_file" "$config/token" 600)
    fi
    write_agent_env
    write_command
    write_unit "$from"
    remember_key "$prefix/release.pub"
    put "$work/VERSION" "$prefix/VERSION" 644 # last: from here on it is installed
    start_agent
}

choose_agent() { # the executable where the release is signed and has one that runs here, else the single file
    if [ -s "$work/signature" ] && [ -f "$1/goodput-agent" ] && "$1/goodput-agent" version >/dev/null 2>&1; then
        printf '%s' "$1/goodput-agent"
    elif python3 -c 'import sys, sqlite3, ssl; sys.exit(sys.version_info < (3, 9))' >/dev/null 2>&1; then
        printf '%s' "$1/goodput-agent.pyz"
    elif [ -f "$1/goodput-agent" ] && "$1/goodput-agent" version >/dev/null 2>&1; then
        printf '%s' "$1/goodput-agent"
    else
        die 'Python 3.9 or newer is needed here (apt-get install python3).'
    fi
}

write_agent_env() { # settings that exist stay, unless a flag names a new value
    local file=$config/agent.env
    local old_endpoint='' old_cluster=''
    if [ -r "$file" ]; then
        old_endpoint=$(sed -n 's/^GOODPUT_ENDPOINT=//p' "$file" | tail -n 1)
        old_cluster=$(sed -n 's/^GOODPUT_CLUSTER=//p' "$file" | tail -n 1)
        grep -v '^GOODPUT_ENDPOINT=\|^GOODPUT_CLUSTER=\|^GOODPUT_TOKEN_FILE=' "$file" > "$work/agent.env" || true
    else
        printf '# Settings of the Goodput agent; goodput-agent run --help lists them.\n' > "$work/agent.env"
    fi
    if [ "$endpoint_given" = no ] && [ -n "$old_endpoint" ]; then endpoint=$old_endpoint; fi
    cluster=${cluster:-${old_cluster:-local-dev}}
    {
        printf 'GOODPUT_ENDPOINT=%s\n' "$endpoint"
        printf 'GOODPUT_CLUSTER=%s\n' "$cluster"
        # as a system service the key comes as a systemd credential
        if [ "$user" = yes ] && [ -n "$token_file$(cat "$config/token" 2>/dev/null)" ]; then
            printf 'GOODPUT_TOKEN_FILE=%s\n' "${config#"$root"}/token"
        fi
    } >> "$work/agent.env"
    sort "$work/agent.env" > "$work/now"
    if ! [ -r "$file" ] || ! sort "$file" | cmp -s - "$work/now"; then put "$work/agent.env" "$file" 644; fi
}

is_ours() { [ ! -e "$1" ] || grep -q '^# Made by the installer of Goodput' "$1"; }

write_command() { # goodput-agent on the PATH, with the settings of this machine's service
    cat > "$work/command" <<TEXT
#!/bin/sh
# Made by the installer of Goodput: the agent with the settings of this machine. Flags and variables win over them.
while IFS= read -r line; do
    name=\${line%%=*}
    case \$name in GOODPUT_*[!A-Z0-9_]* | '') continue ;; GOODPUT_*) eval "[ -n \"\\\${\$name+set}\" ]" || export "\$line" ;; esac
done 2>/dev/null < '${config#"$root"}/agent.env'
if [ -z "\${GOODPUT_TOKEN_FILE:-}" ] && [ -r '${config#"$root"}/token' ]; then
    export GOODPUT_TOKEN_FILE='${config#"$root"}/token'
fi
exec '${prefix#"$root"}/goodput-agent' "\$@"
TEXT
    if ! is_ours "$bin/goodput-agent"; then
        say "  $bin/goodput-agent is not ours and stays"
    elif ! cmp -s "$work/command" "$bin/goodput-agent"; then
        make_dir "$bin" 755
        put "$work/command" "$bin/goodput-agent" 755
    fi
}

write_unit() {
    if [ "$user" = yes ]; then
        cat > "$work/unit" <<TEXT
[Unit]
Description=Goodput agent: reads GPU hardware facts and delivers them

[Service]
Type=notify
NotifyAccess=main
WatchdogSec=90
Restart=always
RestartSec=5
ExecStart="${prefix#"$root"}/goodput-agent" run
EnvironmentFile=-${config#"$root"}/agent.env
NoNewPrivileges=yes

[Install]
WantedBy=default.target
TEXT
    elif [ -s "$config/token" ] || [ -n "$token_file" ]; then
        cp "$1/goodput-agent.service" "$work/unit"
    else # no key: a credential that does not exist would keep the service from starting
        grep -v '^LoadCredential=goodput-token' "$1/goodput-agent.service" > "$work/unit"
    fi
    make_dir "$units" 755
    if ! cmp -s "$work/unit" "$units/goodput-agent.service"; then
        put "$work/unit" "$units/goodput-agent.service" 644
    fi
}

start_agent() {
    if runs_systemd; then
        say "  run systemctl enable and restart goodput-agent"
        do_it ctl daemon-reload
        do_it ctl enable --quiet goodput-agent.service
        do_it ctl restart goodput-agent.service
    else
        say 'systemd does not run here, so nothing was started. Start it with:'
        say "  ${bin#"$root"}/goodput-agent run"
    fi
    done_with "The agent $release"
    say "Check it: ${bin#"$root"}/goodput-agent doctor"
}

done_with() {
    if [ "$dry" = yes ]; then say "$1 would now be installed. This was a dry run: nothing was changed."
    else say "$1 is installed."; fi
}

# The server without containers

unit_is_here() { [ -e "$units/goodput.service" ] && runs_systemd; }

install_embedded() {
    get_manifest "$server/VERSION" "$server/release.pub"
    get_file "goodput-$release-source.tar.gz"
    get_further # before anything is stopped: a network that fails half-way leaves the old server running
    make_dir "$server" 755
    take_turn "$server"
    touch_path unpack "$server/goodput-$release"
    if [ "$dry" = no ]; then
        rm -rf "$server/goodput-$release.new"
        mkdir -p "$server/goodput-$release.new"
        tar -xzf "$work/goodput-$release-source.tar.gz" -C "$server/goodput-$release.new" --strip-components 1
        if [ -z "$root" ] && [ -x "$server/current/goodput" ] && ! unit_is_here; then
            say "  run $server/current/goodput down"
            GOODPUT_VAR=$server/var "$server/current/goodput" down >/dev/null 2>&1 || true
        fi
        if [ -d "$server/goodput-$release/.venv" ]; then # the same release again: its packages stay
            mv "$server/goodput-$release/.venv" "$server/goodput-$release.new/.venv"
        fi
        rm -rf "$server/goodput-$release"
        mv "$server/goodput-$release.new" "$server/goodput-$release"
        ln -sfn "goodput-$release" "$server/current"
        ln -sfn ../var "$server/goodput-$release/var" # whoever calls its ./goodput means this installation
        mkdir -p "$server/var"
        chmod 711 "$server/var" # the database's account passes through
    fi
    offer_further "$server/var/releases"
    remember_key "$server/release.pub"
    printf '%s\n' "$release" > "$work/VERSION"
    put "$work/VERSION" "$server/VERSION" 644
    local run=${server#"$root"}
    if [ "$is_root" = yes ] && [ "$user" = no ] && [ "$os" = Linux ]; then
        tar -xzOf "$work/goodput-$release-source.tar.gz" "goodput-$release/deploy/install/goodput-server.service" |
            sed "s|@SERVER@|$run|g" > "$work/unit"
        make_dir "$units" 755
        put "$work/unit" "$units/goodput.service" 644
        if runs_systemd; then
            if ! id goodput >/dev/null 2>&1; then
                say '  make the account goodput'
                do_it useradd --system --home-dir "$server" --shell /usr/sbin/nologin goodput
            fi
            do_it chown -R goodput "$server"
            say "  run systemctl enable and restart goodput"
            do_it ctl daemon-reload
            do_it ctl enable --quiet goodput.service
            do_it ctl restart goodput.service
            done_with "The server $release"
            say 'Open http://localhost:8080/'
            say "Commands: sudo -u goodput $run/current/goodput status"
            return 0
        fi
    fi
    if [ -z "$root" ]; then
        say "  run $server/current/goodput up --detach"
        if [ "$dry" = no ]; then
            GOODPUT_VAR=$server/var "$server/current/goodput" up --detach --port "${GOODPUT_PORT:-8080}"
        fi
    fi
    done_with "The server $release"
    say "Open http://localhost:${GOODPUT_PORT:-8080}/"
    say "Commands: $run/current/goodput status; down and up --detach stop and start it"
}

get_further() { # what the new server will offer
    local name
    for name in "goodput-$release-linux-amd64.tar.gz" "docker-compose.release-$release.yml" \
        "docker-compose.gpu-$release.yml" "goodput-$release.cdx.json" "goodput-monitor-$release.tgz" \
        "goodput-verify-$release.pyz"; do
        if has_file "$name"; then get_file "$name"; fi
    done
}

offer_further() { # what was checked here is offered by the new server, so that its nodes install from it
    local name
    make_dir "$1" 755
    for name in "$work"/goodput-*"$release"*.* "$work"/docker-compose.*.yml; do
        if [ -f "$name" ]; then put "$name" "$1/${name##*/}" 644; fi
    done
    put "$work/sums" "$1/SHA256SUMS-$release" 644
    put "$work/manifest.json" "$1/manifest-$release.json" 644
    put "$work/manifest.json" "$1/manifest.json" 644
}

# The Docker stack

install_stack() {
    has docker || die 'Docker is not here. Install Docker Engine with the Compose plugin, or use --no-docker.'
    docker compose version >/dev/null 2>&1 || die "Docker's Compose plugin is not here (docker compose version fails)."
    docker info >/dev/null 2>&1 || die "Docker does not answer. Start it, or add yourself to the group docker."
    get_manifest "$stack/VERSION" "$stack/release.pub"
    get_file "docker-compose.release-$release.yml"
    get_file "docker-compose.gpu-$release.yml"
    make_dir "$stack" 755
    take_turn "$stack"
    put "$work/docker-compose.release-$release.yml" "$stack/docker-compose.yml" 644
    put "$work/docker-compose.gpu-$release.yml" "$stack/docker-compose.gpu.yml" 644
    local files=docker-compose.yml
    if [ "$gpus" = yes ] && docker info 2>/dev/null | grep -q 'Runtimes:.*nvidia'; then
        files="docker-compose.yml:docker-compose.gpu.yml"
    elif [ "$gpus" = yes ]; then
        say '  The NVIDIA Container Toolkit is not set up in Docker: a simulated cluster reports until it is.'
    fi
    write_stack_env "$files"
    get_images
    remember_key "$stack/release.pub"
    put "$work/VERSION" "$stack/VERSION" 644
    say "  run docker compose up -d in $stack"
    if [ "$dry" = no ] && [ -z "$root" ]; then (cd "$stack" && docker compose up -d); fi
    done_with "The stack $release"
    local port=${GOODPUT_PORT:-}
    [ -n "$port" ] || port=$(sed -n 's/^GOODPUT_PORT=//p' "$stack/.env" 2>/dev/null | tail -n 1)
    say "Open http://localhost:${port:-8080}/ - GPU data appears within about 60 seconds."
}

write_stack_env() { # keeps what is there; only what the installer decides is replaced
    local file=$stack/.env
    printf '%s\n' "$release" > "$work/VERSION"
    if [ -r "$file" ]; then
        grep -v '^COMPOSE_FILE=\|^GOODPUT_VERSION=\|^GOODPUT_BUILD_CONTEXT=' "$file" > "$work/env" || true
        if [ -n "${GOODPUT_REGISTRY:-}" ]; then sed -i.old '/^GOODPUT_REGISTRY=/d' "$work/env"; fi
    else
        printf '# Settings of the stack: %s/env.example lists them all.\n' "$origin" > "$work/env"
    fi
    {
        printf 'COMPOSE_FILE=%s\n' "$1"
        printf 'GOODPUT_VERSION=%s\n' "$release"
        printf 'GOODPUT_BUILD_CONTEXT=%s\n' "./goodput-$release"
        if [ -n "${GOODPUT_REGISTRY:-}" ]; then printf 'GOODPUT_REGISTRY=%s\n' "$GOODPUT_REGISTRY"; fi
    } >> "$work/env"
    (umask 077 && put "$work/env" "$file" 600)
}

get_images() { # from a registry that the user names, from the release, else built from the source archive
    if [ -n "${GOODPUT_REGISTRY:-}" ] || grep -q '^GOODPUT_REGISTRY=.' "$stack/.env" 2>/dev/null; then
        say '  images: docker compose pull'
        if [ "$dry" = no ] && [ -z "$root" ]; then (cd "$stack" && docker compose pull); fi
    elif has_file "goodput-images-$release.tar"; then
        get_file "goodput-images-$release.tar"
        say "  images: docker load"
        if [ "$dry" = no ] && [ -z "$root" ]; then docker load -i "$work/goodput-images-$release.tar"; fi
    else
        get_file "goodput-$release-source.tar.gz"
        touch_path unpack "$stack/goodput-$release"
        if [ "$dry" = no ]; then
            rm -rf "$stack/goodput-$release"
            tar -xzf "$work/goodput-$release-source.tar.gz" -C "$stack"
            say '  images: docker compose build'
            if [ -z "$root" ]; then (cd "$stack" && docker compose build); fi
        fi
    fi
}

# Removal

remove() {
    case $mode in
        agent)
            if runs_systemd; then do_it ctl disable --now goodput-agent.service 2>/dev/null || true; fi
            drop "$units/goodput-agent.service"
            drop "$prefix"
            if [ -e "$bin/goodput-agent" ] && is_ours "$bin/goodput-agent"; then drop "$bin/goodput-agent"; fi
            if [ "$purge" = yes ]; then
                drop "$config"
                drop "$state"
                [ "$user" = yes ] || drop "$root/var/lib/private/goodput-agent" # where systemd keeps it
            fi
            if runs_systemd; then do_it ctl daemon-reload || true; fi
            ;;
        embedded)
            if runs_systemd && [ -e "$units/goodput.service" ]; then
                do_it ctl disable --now goodput.service 2>/dev/null || true
            elif [ -x "$server/current/goodput" ] && [ -z "$root" ]; then
                GOODPUT_VAR=$server/var do_it "$server/current/goodput" down || true
            fi
            [ "$user" = yes ] || drop "$units/goodput.service"
            for each in "$server"/goodput-* "$server/current" "$server/VERSION" "$server/.installing"; do drop "$each"; done
            if [ "$purge" = yes ]; then
                drop "$server"
                [ "$dry" = yes ] || rmdir "$stack" 2>/dev/null || true # ~/goodput, when nothing else is in it
            fi
            ;;
        stack)
            if [ -f "$stack/docker-compose.yml" ] && [ -z "$root" ] && has docker; then
                local volumes=''
                [ "$purge" = no ] || volumes=--volumes
                say "  run docker compose down $volumes in $stack"
                if [ "$dry" = no ]; then (cd "$stack" && docker compose down --remove-orphans $volumes) || true; fi
            fi
            for each in "$stack"/docker-compose*.yml "$stack"/goodput-[0-9]* "$stack/VERSION" "$stack/.installing"; do drop "$each"; done
            if [ "$purge" = yes ]; then drop "$stack"; fi
            ;;
    esac
    say "Removed.$([ "$purge" = yes ] || echo ' Data, settings and keys stay; --uninstall --purge removes them.')"
}

{ main "$@"; }
