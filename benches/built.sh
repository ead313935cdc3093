#!/bin/sh
# Prints the path of the executable NAME that a cargo command makes.
#
#   benches/built.sh NAME ARGUMENTS...    benches/built.sh peers bench --no-run --bench peers
set -eu
name=$1
shift
"${CARGO:-cargo}" "$@" --locked --message-format=json | python3 -c '
import json, sys
messages = [m for m in map(json.loads, sys.stdin) if m.get("executable")]
found = [m["executable"] for m in messages if m["target"]["name"] == sys.argv[1]]
print(found[-1]) if found else sys.exit("cargo has not built " + sys.argv[1])' "$name"
