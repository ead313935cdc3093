#!/bin/sh
# Counts the instructions of small operations, which no other program on the machine changes.
#
#   benches/instructions.sh [FILE]    prints a table, and writes it to FILE
#
# Needs valgrind, which knows no AVX-512: counted is the code for AVX2, or what else the CPU has.
set -eu
cd "$(dirname "$0")/.."
program=$(benches/built.sh instructions bench --no-run --bench instructions)
table=$(mktemp)
trap 'rm -f "$table"' EXIT
printf '| operation | instructions | elements | per element |\n|---|---|---|---|\n' > "$table"
for name in $("$program" list); do
  output=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null \
    --toggle-collect='instructions::counted*' "$program" "$name" 2>&1)
  count=$(echo "$output" | sed -n 's/.*Collected : //p')
  elements=$(echo "$output" | grep -v '^==' | tail -n 1)
  if [ "${count:-0}" -eq 0 ]; then
    echo "$name: nothing counted:" "$output" >&2
    exit 1
  fi
  echo "$name $count $elements" |
    awk '{ printf "| %s | %d | %d %s | %.2f |\n", $1, $2, $3, $4, $2 / $3 }' >> "$table"
done
cat "$table"
if [ $# -gt 0 ]; then cp "$table" "$1"; fi
