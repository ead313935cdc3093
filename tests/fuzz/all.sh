#!/bin/sh
# Fuzzes every target for some seconds, two at once, from the seeds of tests/fuzz.rs and what earlier calls found, and
# prints a row of a table for each: executions, inputs that reach something new, most memory. A crash ends with status 1 and
# leaves its input below target/fuzz; mended, it goes to tests/fuzz/crashes/TARGET, where tests/fuzz.rs runs it.
#
#     tests/fuzz/all.sh [SECONDS] [TARGET...]
#
# Needs nightly Rust and cargo-fuzz; `-s none`: without AddressSanitizer, because the readers have no unsafe code.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-60}
[ $# -eq 0 ] || shift
out=$PWD/target/fuzz
mkdir -p "$out"
[ -n "${FUZZ_BUILT:-}" ] || cargo +nightly fuzz build --fuzz-dir tests/fuzz --features fuzz -s none
[ -d "$out/seeds" ] || FUZZ_SEEDS="$out/seeds" cargo test --quiet --workspace --locked -p polysift --test slow fuzz:: > /dev/null
export out seconds
one() {
    mkdir -p "$out/corpus/$1" "$out/crashes/$1"
    program=$(ls target/*-unknown-linux-*/release/"$1")
    # A seed may be as large as a model; what is found is not larger.
    if TMPDIR=${TMPDIR:-/dev/shm} "$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
        -artifact_prefix="$out/crashes/$1/" "$out/corpus/$1" "$out/seeds/$1" > "$out/$1.log" 2>&1
    then end=fine; else end=CRASH; fi
    awk -v target="$1" -v end=$end -v inputs="$(ls "$out/corpus/$1" | wc -l)" '
        /stat::number_of_executed_units/ { runs = $2 }
        /stat::peak_rss_mb/ { memory = $2 }
        END { printf "| %s | %d | %d | %d | %s |\n", target, runs, inputs, memory, end }' "$out/$1.log"
    [ $end = fine ]
}
if [ "${ONE:-}" ]; then one "$ONE"; exit; fi
[ $# -gt 0 ] || set -- $(sed -n 's/^name = "\([a-z_]*\)"$/\1/p' tests/fuzz/Cargo.toml)
echo "| target | executions | inputs kept | MB | |"
echo "|---|---|---|---|---|"
printf '%s\n' "$@" | FUZZ_BUILT=1 xargs -P 2 -I TARGET env ONE=TARGET sh "$0" "$seconds"
