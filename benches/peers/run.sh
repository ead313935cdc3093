#!/bin/sh
# polysift's CPU encoder beside PyTorch, ONNX Runtime, OpenVINO and candle; `make bench-peers` calls it.
#
#   benches/peers/run.sh              measures; into benches/runs/DATE-CPU/peers.{json,md}
#   benches/peers/run.sh selection    compares selections; into benches/runs/DATE-CPU/selection.{json,md};
#                                     DTYPES, THREADS, DOCUMENTS (of text) and OUT as above
#
# Needs cargo, Python 3.11 or later, PyPI, 12 GB of disk and as much memory; half an hour on two cores.
# PEERS="ov ort-f32" DTYPES="f32 int8" WORKLOADS=W2 DOCUMENTS=64 REPEATS=3 THREADS=2 BATCH=4 measure less;
# OUT is another folder for the results, DATA where environment, model and exports are kept, TEXTS a
# folder of .jsonl.zst files with `text` for selections of real text (see selection.py).
set -eu
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
data=${DATA:-$target/peers}
python=$data/venv/bin/python
mkdir -p "$data"
if ! cmp -s benches/peers/requirements.txt "$data/requirements.txt"; then
  python3 -m venv "$data/venv"
  "$python" -m pip install --quiet -r benches/peers/requirements.txt
  cp benches/peers/requirements.txt "$data/requirements.txt"
fi
program=$(benches/built.sh peers bench --no-run --bench peers)
"$program" prepare "$data"
cpu=$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1 | tr -cs '[:alnum:]\n' '-' | tr '[:upper:]' '[:lower:]')
out=${OUT:-benches/runs/$(date +%F)-${cpu%-}}
if [ "${1:-}" = selection ]; then
  exec "$python" benches/peers/selection.py "$program" "$data" "$out" --dtypes "${DTYPES:-bf16 f16 int8}" \
    ${TEXTS:+--texts "$TEXTS"} --documents "${DOCUMENTS:-20000}" --threads "${THREADS:-$(nproc)}"
fi
"$python" benches/peers/export.py "$data"
exec "$python" benches/peers/run.py "$program" "$data" "$out" --peers "${PEERS:-torch ort ov candle}" \
  --dtypes "${DTYPES:-f32 bf16 f16 int8}" --workloads "${WORKLOADS:-W1 W2}" \
  --documents "${DOCUMENTS:-96}" --repeats "${REPEATS:-3}" --threads "${THREADS:-$(nproc)}" \
  --batch "${BATCH:-4}"
