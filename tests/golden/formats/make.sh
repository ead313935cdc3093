#!/bin/sh
# Files of every format that polysift writes, by the polysift on the PATH, in the folder that is named: a run with
# MLP and fastText heads, filters, removals and an export; an index of benchmark items. A release makes a folder of its
# own, which then stays: tests/formats.rs reads all of them.
#
#   PATH=target/release:$PATH sh tests/golden/formats/make.sh tests/golden/formats/0.1
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
mkdir "$1"
kept=$(cd "$1" && pwd)
# Paths in a run are absolute: a folder of the same name everywhere.
mkdir /tmp/polysift-formats && cd /tmp/polysift-formats
mkdir -p corpus/fra_Latn samples toxic lists
# Made-up texts, every third of them of another kind.
texts() {
  awk -v first="$1" -v last="$2" -v labels="$3" 'BEGIN {
    split("theorem energy cell century equation river empire molecule", known)
    split("buy cheap click shipping login sale cookies price", web)
    for (i = first; i <= last; i++) {
      text = ""
      for (j = 0; j < 6 + i % 5; j++) { at = (i * 7 + j * 3) % 8 + 1; text = text (i % 3 ? web[at] : known[at]) " " }
      label = labels ? ", \"label\": \"" (i % 3 ? "negative" : "positive") "\"" : ""
      printf "{\"id\": \"fra-%d\", \"text\": \"%s%d\"%s}\n", i, text, i, label
    }
  }'
}
texts 1 30 0 > corpus/fra_Latn/a.jsonl
texts 31 40 0 > corpus/fra_Latn/b.jsonl
texts 100 160 1 > samples/fra_Latn.jsonl
texts 150 210 1 > toxic/fra_Latn.jsonl
printf 'fra-3\nfra-7\n' > lists/requests.txt
printf '{"task": "t", "text": "%s"}\n' "$(seq -s ' word' 1 30)" > items.jsonl
ln -s "$here/golden/encoder/head16-prefixed" encoder
polysift run 'corpus/{lang}/*.jsonl' --run run --model encoder --device cpu --precision f32 --quiet --set parts.rows=16 \
  --train-on 'quality=samples/{lang}.jsonl' --train-on 'toxicity=toxic/{lang}.jsonl' \
  --train-on 'words=samples/{lang}.jsonl' --set heads.words.kind=fasttext \
  --set 'heads.words.fasttext={ epochs = 2, buckets = 100, dim = 4 }' \
  --set 'filters.requests={ kind = "ids", lists = ["lists/requests.txt"] }' \
  --removal toxicity=0.05 --retention quality=0.1,0.33 --retention words=0.5 --keep-removed
polysift dataset benchmarks --items items.jsonl --out benchmarks.idx
rm -r encoder run/samples  # samples: embeddings that are made again
mv -- * "$kept"
rmdir /tmp/polysift-formats
