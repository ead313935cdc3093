#!/bin/sh
# Peak resident memory of every stage for 1, 10 and 100 times the same input, with the bundled encoder.
#
#     benches/memory.sh [POLYSIFT] [OUT_DIR] [FLAG...]
#     DOCUMENTS="100000 1000000 10000000" benches/memory.sh ...
#
# With DOCUMENTS the input is that many documents of some ten made-up words, in files of 50,000, and the encoder
# the small one of the tests, so that millions are embedded in minutes.
#
# The input is the sample corpus: the Parquet files again and again under other names, the JSON lines
# in one file that grows. Every stage runs in a process of its own; time, peak and busy shares are
# those of its summary. 100 times are 221,800 documents: `--max-tokens 32` embeds them in minutes,
# TIMES="1 10" leaves them out.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
polysift=${1:-$root/target/release/polysift}
out=${2:-$root/target/memory}
[ $# -lt 2 ] || shift 2
sample=$root/tests/sample

# corpus TIMES: makes the input.
corpus() {
    rm -rf "$out/corpus"
    for file in "$sample"/corpus/*/*; do
        language=$(basename "$(dirname "$file")")
        mkdir -p "$out/corpus/$language"
        i=0
        while [ $i -lt "$1" ]; do
            case $file in
                # Several zstd frames are one file.
                *.jsonl.zst) cat "$file" >> "$out/corpus/$language/000_00000.jsonl.zst" ;;
                *) cp "$file" "$out/corpus/$language/$i-$(basename "$file")" ;;
            esac
            i=$((i + 1))
        done
    done
}

# short DOCUMENTS: makes the input of short documents; the same text comes again with another number.
short() {
    rm -rf "$out/corpus"
    for language in fra_Latn deu_Latn; do
        mkdir -p "$out/corpus/$language"
        seq 1 $(($1 / 2)) | awk -v language=$language '{
            text = ""
            for (j = 0; j < 6 + $1 % 5; j++) text = text "word" ($1 * 7 + j * 31) % 5003 " "
            printf "{\"id\": \"%s-%d\", \"text\": \"%s%d\"}\n", language, $1, text, $1
        }' | split -l 50000 -d -a 5 --additional-suffix=.jsonl - "$out/corpus/$language/"
    done
}

printf '%-9s %-10s %10s %8s %8s  %s\n' times stage documents seconds peak_MB busy
[ -z "${DOCUMENTS:-}" ] || set -- --model "$root/tests/golden/encoder/head16-prefixed" "$@"
for times in ${DOCUMENTS:-${TIMES:-1 10 100}}; do
    if [ -n "${DOCUMENTS:-}" ]; then short "$times"; else corpus "$times"; fi
    rm -rf "$out/run"
    for stage in embed train score threshold export; do
        "$polysift" $stage --config "$sample/run.toml" --run "$out/run" --device cpu "$@" \
            "$out/corpus/{lang}/*" > "$out/summary" 2> "$out/errors" || {
            cat "$out/errors" >&2
            exit 1
        }
        awk -v times="$times" -v stage=$stage '
            /^stage +done/ {counted = 1}
            /^stage +seconds/ {measured = 1}
            counted && !measured && $1 == "embed" {documents = $5}
            measured && $1 == stage {
                busy = ""
                for (i = 4; i <= NF; i++) busy = busy " " $i
                printf "%-9s %-10s %10d %8s %8s %s\n", times, stage, documents, $2, $3, busy
            }' "$out/summary"
    done
done
