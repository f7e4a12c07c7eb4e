#!/bin/sh
# Two agents work on packages of one feature. The orchestrator pauses it while both are at work: they stop where they should,
# lose nothing, and go on when it is resumed. Run it anywhere in a git repository, with lockkeeper on the PATH.
set -eu

file=$(cd "$(dirname "$0")" && pwd)/work-packages.yaml
feature=$(sed -n 's/^  id: *//p' "$file" | head -1)

# as WHO COMMAND...: asks as one of the three, in sessions of this run.
as() {
    who=$1
    shift
    SESSION_ID=$who-$$ AGENT_ID=$who lockkeeper "$@"
}

# However it ends, nothing stays held or paused.
clean_up() {
    for who in ann bob orchestrator; do
        as "$who" session close >/dev/null
    done
}
trap clean_up EXIT

# expect CODE COMMAND...: the command ends with just this code.
expect() {
    expected=$1
    shift
    code=0
    "$@" || code=$?
    if [ "$code" -ne "$expected" ]; then
        echo "expected exit $expected, got $code: $*" >&2
        exit 1
    fi
}

echo "== The plan"
as orchestrator packages validate "$file"
as orchestrator packages plan "$file"

echo "== Two agents take a package each"
expect 0 as ann feature check "$feature"
expect 0 as ann packages acquire "$file" --package contracts
expect 0 as bob feature check "$feature"
expect 0 as bob packages acquire "$file" --package database
expect 5 as bob packages acquire "$file" --package contracts

echo "== The line stops"
as orchestrator feature pause "$feature" -m "contract revision bump"
expect 5 as bob packages acquire "$file" --package docs
expect 5 as ann feature check "$feature" --finalize
expect 0 as ann lock renew

echo "== And goes on"
as ann feature check "$feature" --finalize --wait 1m &
waiting=$!
sleep 1
as orchestrator feature resume "$feature"
wait "$waiting"
as ann lock release "feature:$feature:pause"
as ann packages release "$file" --package contracts
expect 0 as bob packages acquire "$file" --package docs
as bob packages release "$file" --package docs
as bob packages release "$file" --package database

echo "== Done"
as orchestrator lock list
