#!/bin/sh
# Heads of three kinds on real text: trained from labelled samples, compared on texts they have not seen.
#
#     benches/heads/run.sh DATA_DIR OUT_DIR [POLYSIFT]
#
# DATA_DIR holds SET.LANG.jsonl.zst files with `text`, and `label` in the sets about toxicity. PYTHON
# names a Python with what `models/polysift-mini/evaluate.py` imports. Writes OUT_DIR/{quality,toxicity}.json
# and .txt, the reports of `polysift evaluate`. Embeddings are polysift-mini's.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
data=$1
out=$2
polysift=${3:-$root/target/release/polysift}
mkdir -p "$out"

"${PYTHON:-python3}" "$root/benches/heads/samples.py" "$data" "$out/samples/quality"

# toxicity LANG SET...: samples of the label and the text of some sets.
toxicity() {
    language=$1
    shift
    for set in "$@"; do files="${files:-} $data/$set.$language.jsonl.zst"; done
    # shellcheck disable=SC2086
    "$polysift" dataset toxicity $files --language "$language" --out "$out/samples/toxicity" \
        --text-column text --label-column label --quiet
    files=
}
toxicity arb_Arab mhc mlma
toxicity cmn_Hani cold mhc swsr
toxicity deu_Latn germeval2018
toxicity eng_Latn davidson mlma
toxicity fra_Latn mhc mlma
toxicity pol_Latn mhc
toxicity por_Latn mhc told-br
toxicity spa_Latn mhc

# compare TASK PRESET TRAIN TEST: trains heads of each kind on TRAIN and evaluates them on TEST.
compare() {
    cat > "$out/$1.toml" <<EOF
[encoder]
model = "polysift-mini"
device = "cpu"
precision = "f32"
[heads.mlp]
preset = "$2"
train = [$3]
[heads.cosine]
preset = "$2"
kind = "cosine"
output = "raw"
train = [$3]
[heads.fasttext]
preset = "$2"
kind = "fasttext"
train = [$3]
EOF
    "$polysift" train --config "$out/$1.toml" --run "$out/$1-run" --quiet
    heads=$out/$1-run/heads
    "$polysift" evaluate --config "$out/$1.toml" "mlp=$heads/mlp/{lang}.safetensors" \
        "cosine=$heads/cosine/{lang}.safetensors" "fasttext=$heads/fasttext/{lang}.bin" \
        --data "$4" --out "$out/$1.json" > "$out/$1.txt"
}
samples=$out/samples
compare quality quality "\"$samples/quality/{lang}/train.jsonl\"" "$samples/quality/{lang}/test.jsonl"
compare toxicity toxicity \
    "\"$samples/toxicity/{lang}/train_80.jsonl\", \"$samples/toxicity/{lang}/valid_10.jsonl\"" \
    "$samples/toxicity/{lang}/test_10.jsonl"
