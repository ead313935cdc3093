#!/bin/sh
# Builds the folder that measures and checks polysift on a machine with a GPU, without cargo or network.
#
#   benches/gpu/bundle.sh DIRECTORY    default: target/gpu-bundle
#
# Copy it there and run ./run.sh. POLYSIFT_XLMR_TOKENIZER=tokenizer.json puts the real XLM-R tokenizer in.
set -eu
cd "$(dirname "$0")/../.."
out=${1:-target/gpu-bundle}
limit_kb=60000

program=$(benches/built.sh polysift build --release --bin polysift)
bench=$(benches/built.sh cuda build --release --bench cuda)
# Tests with debug assertions and overflow checks, as `make test` runs them.
slow=$(benches/built.sh slow test --no-run --test slow)
kernels=$(benches/built.sh cuda test --no-run -p polysift-kernels --test cuda)

rm -rf "$out"
mkdir -p "$out/bin" "$out/tests" "$out/benches"
for pair in "$program polysift" "$bench bench" "$slow slow" "$kernels kernels"; do
  strip -o "$out/bin/${pair##* }" "${pair% *}"
done
cp -r tests/golden tests/sample "$out/tests/"
cp -r models "$out/"
cp benches/cuda_bars.py benches/cuda_baseline.py benches/cuda_fidelity.py "$out/benches/"
cp benches/gpu/run.sh "$out/"
if [ -n "${POLYSIFT_XLMR_TOKENIZER:-}" ]; then cp "$POLYSIFT_XLMR_TOKENIZER" "$out/tokenizer.json"; fi
commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
if [ -n "$(git status --porcelain 2>/dev/null)" ]; then commit="$commit and changes"; fi
echo "$commit" > "$out/COMMIT"

# The model that is inside every binary is kept once: the window of xz spans from one to the next.
tar -C "$out" -c models bin/bench bin/polysift bin/kernels bin/slow tests benches $(cd "$out" && ls tokenizer.json 2>/dev/null) |
  XZ_OPT="-6 --lzma2=preset=6,dict=256MiB" xz > "$out/files.tar.xz"
rm -rf "$out/bin" "$out/tests" "$out/benches" "$out/models" "$out/tokenizer.json"
size_kb=$(du -sk --apparent-size "$out" | cut -f1)
echo "$out: $size_kb kB"
if [ "$size_kb" -ge "$limit_kb" ]; then
  echo "more than $limit_kb kB" >&2
  exit 1
fi
