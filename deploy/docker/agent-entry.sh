#!/bin/sh
# The agent in a container: its key, from a variable or a secret's file, becomes a file that only it can read.
set -eu
umask 077
key=${GOODPUT_AGENT_TOKEN:-}
if [ -n "${GOODPUT_AGENT_TOKEN_FILE:-}" ]; then key=$(cat "$GOODPUT_AGENT_TOKEN_FILE"); fi
unset GOODPUT_AGENT_TOKEN GOODPUT_AGENT_TOKEN_FILE
if [ -n "$key" ]; then
    folder=/run/goodput
    [ -d "$folder" ] && [ -w "$folder" ] || folder=$(mktemp -d)
    printf '%s\n' "$key" > "$folder/token"
    export GOODPUT_TOKEN_FILE="$folder/token"
fi
for name in GOODPUT_NODE_ID GOODPUT_CLUSTER; do
    eval "[ -n \"\${$name:-}\" ]" || unset "$name"
done
exec goodput-agent "$@"
