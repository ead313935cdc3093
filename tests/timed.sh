#!/bin/sh
# What tests cost.
#
#   tests/timed.sh run COMMAND...   runs COMMAND (cargo test ...), then prints what each test binary and the twenty
#                                   slowest tests took
#   tests/timed.sh BINARY ARG...    cargo's runner: runs one test binary and notes its times
#
# The times of single tests come from the test harness, which gives them to those who ask for its unstable options.
set -u
if [ "${1:-}" = run ]; then
  shift
  TEST_TIMES=$(mktemp -d) || exit 1
  export TEST_TIMES
  host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
  env "CARGO_TARGET_${host}_RUNNER=$(cd "$(dirname "$0")" && pwd)/timed.sh" "$@"
  code=$?
  if [ -s "$TEST_TIMES/binaries" ]; then
    echo
    echo "seconds   processor seconds   test binary"
    sort -rn "$TEST_TIMES/binaries" | awk '{ printf "%7.1f   %17.1f   %s\n", $1, $2, $3 }'
    echo
    echo "seconds   the slowest tests"
    cat "$TEST_TIMES"/*.log | sed -n 's/^test \([^ ]*\) .*<\([0-9.]*\)s>$/\2 \1/p' | sort -rn | head -n 20 |
      awk '{ printf "%7.1f   %s\n", $1, $2 }'
  fi
  rm -rf "$TEST_TIMES"
  exit $code
fi

program=$1
name=$(basename "$program")
name=${name%-*}
case $program in
*/deps/*) ;;
*) exec "$@" ;; # an example of the documentation
esac
began=$(date +%s.%N)
log=$(mktemp "$TEST_TIMES/XXXXXX.log")
{ RUSTC_BOOTSTRAP=1 "$@" -Zunstable-options --report-time; echo $? >"$log.code"; } | tee "$log"
code=$(cat "$log.code")
# In this shell, since a subshell has children of its own: the second line is "0m1.230s 0m0.120s".
times >"$log.times"
used=$(sed -n '2s/[ms]/ /gp' "$log.times" | awk '{ print $1 * 60 + $2 + $3 * 60 + $4 }')
echo "$(date +%s.%N) $began $used $name" | awk '{ print $1 - $2, $3, $4 }' >>"$TEST_TIMES/binaries"
exit "$code"
