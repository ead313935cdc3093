#!/bin/sh
# Checks and measures polysift on this machine's GPU: half an hour, planned so that nothing of it is lost.
#
#   ./run.sh              the plan: every step below, in this order
#   ./run.sh STEP...      or QUICK="STEP ..." ./run.sh: single steps
#
#     devices       the GPU and the driver (always done, and first)
#     runtime       tests of memory, streams, graphs, rows                  2 minutes
#     attention     tests of attention                                      2
#     products      tests of the matrix products
#     kernels       every operation alone, 16,896 tokens first              3
#     encode        the encoder alone: bf16, fp8                            3
#     encoder       tests of the encoder against the CPU's                  3
#     fidelity      embeddings against PyTorch in f32, what heads select
#     bars          PyTorch's products, attention, fp8 and a copy           5
#     baselines     PyTorch as the published pipeline runs it, sorted by length            3
#     profile       ncu on attention, products and layer norm               4
#     end-to-end    polysift embed from Parquet to Parquet                  3
#     memcheck      compute-sanitizer over the tests of the kernels         2
#     synccheck
#
# More steps: prepare (the model of random weights, 1.1 GB, which steps make as they need it), racecheck,
# initcheck. A step that fails does not stop the others, none takes longer than ten minutes. Beside each
# stands what is expected. results.tar.gz has everything and is written anew after every step, also when
# this is interrupted; with OUT=FOLDER it is there too. The exit status is 1 if a step that must pass failed.
#
# POLYSIFT_BENCH_DATA: where models and corpora are made (data/). POLYSIFT_BENCH_SHAPE: tiny, base, large.
# DEVICE: as polysift --device (cuda). PYTHON: python3. PyTorch, compute-sanitizer and ncu are used where
# they are; neither cargo nor a network is needed.
set -u
cd "$(dirname "$0")" || exit 1
POLYSIFT_ROOT=${POLYSIFT_ROOT:-$PWD}
export POLYSIFT_ROOT
data=${POLYSIFT_BENCH_DATA:-$PWD/data}
shape=${POLYSIFT_BENCH_SHAPE:-base}
device=${DEVICE:-cuda}
python=${PYTHON:-python3}
results=$PWD/results
started=$(date +%s)
failed=0
child=

unpack() {
  if [ ! -d bin ] && [ -f files.tar.xz ]; then
    tar -xJf files.tar.xz || "$python" -c 'import tarfile; tarfile.open("files.tar.xz").extractall()'
  fi
  if [ ! -x bin/bench ]; then
    echo "run.sh: bin/bench is missing; build the folder with make gpu-bundle" >&2
    exit 1
  fi
}

have() { command -v "$1" >/dev/null 2>&1; }

# Lists the GPUs.
devices() {
  bin/bench devices > "$results/devices.txt" 2>&1
  code=$?
  cat "$results/devices.txt"
  if [ $code -ne 0 ]; then
    echo "run.sh: nothing can be checked or measured here" >&2
    exit 1
  fi
}

# note NAME STATUS SECONDS REASON: one line of JSON for the summary; the archive follows every one.
note() {
  printf '{"part": "%s", "status": "%s", "seconds": %s, "note": "%s"}\n' "$1" "$2" "$3" "$4" \
    > "$results/parts/$1"
  printf '%-24s %s after %s s, minute %s %s\n' "$1" "$2" "$3" $((($(date +%s) - started) / 60)) "$4"
  archive
}

# part NAME GATE EXPECTED COMMAND...: runs it with a log and a limit; GATE is `must` where a failure is the
# run's failure. What was measured is shown under what was expected.
part() {
  part_name=$1 gate=$2 expected=$3
  shift 3
  log=$results/$part_name.log
  began=$(date +%s)
  echo "== $part_name: $*" > "$log"
  # In the background, as a trap waits for what runs in front.
  timeout -k 10 "${STEP_SECONDS:-590}" "$@" >> "$log" 2>&1 &
  child=$!
  wait $child
  code=$?
  child=
  seconds=$(($(date +%s) - began))
  echo "    expected: $expected"
  if [ $code -eq 0 ]; then
    # Lines that say themselves what was expected, else the last two.
    { grep -e "expected[:,]" "$log" || grep -v -e '^$' -e '^== ' "$log" | tail -n 2; } | sed 's/^/    /'
    note "$part_name" passed $seconds ""
  else
    grep . "$log" | tail -n 8 | sed 's/^/    /'
    if [ "$gate" = must ]; then failed=1; fi
    note "$part_name" failed $seconds "exit status $code, see $part_name.log"
  fi
  return $code
}

# tests NAME GATE EXPECTED PROGRAM FILTER...: one thread, as a wait for the whole GPU in one test spoils
# what another is recording. A test that is skipped did not pass: without a GPU they fail.
tests() {
  tests_name=$1 tests_gate=$2 tests_expected=$3 program=$4
  shift 4
  part "$tests_name" "$tests_gate" "$tests_expected" env POLYSIFT_REQUIRE_CUDA=1 "$program" --test-threads=1 "$@"
}

runtime() { tests runtime must "all pass; a driver that refuses the kernels shows here" bin/kernels runtime:: rows:: e4m3::; }

attention() {
  tests attention must "all pass; wrong from 65 tokens on: the compiler; at all: descriptors; only v: trans-b" \
    bin/kernels attention::
}

products() { tests products must "all pass" bin/kernels matmul; }

encoder() { tests encoder must "all pass" bin/slow cuda:: device::gpus::; }

prepare() {
  if [ -n "${prepared:-}" ]; then return "$prepared"; fi
  set -- --shape "$shape"
  if [ -f tokenizer.json ]; then set -- "$@" --tokenizer tokenizer.json; fi
  part prepare must "one minute" bin/bench prepare "$data/$shape" "$@" $PREPARE_ARGS
  prepared=$?
  return $prepared
}

kernels() {
  prepare || return
  for tokens in ${KERNELS_TOKENS:-16896 4224,33792}; do
    part "kernels-$tokens" may "each line, at the base shape and 16,896 tokens of 512 on an H200" bin/bench kernels \
      "$data/$shape" --device "$device" --batch-tokens "$tokens" --out "$results/kernels-$tokens.json" $KERNELS_ARGS
  done
}

# form NAME: the arguments of the encoder that computes like this.
form() {
  case $1 in
    fp8) echo --precision fp8 ;;
  esac
}

encode() {
  prepare || return
  for name in bf16 fp8; do
    part "encode-$name" may "each line; all at once over one: 1 to 2% more" bin/bench encode "$data/$shape" \
      --device "$device" --batch-tokens 16896,33792 $(form $name) --out "$results/encode-$name.json" $ENCODE_ARGS
  done
}

has_torch() { [ -n "$torch" ]; }

# oracle NAME FOLDER: embeddings of SEL in the folder by PyTorch in f32, and in bf16.
oracle() {
  if ! has_torch; then note "fidelity-$1" skipped 0 "$python has no torch and transformers"; return 1; fi
  for engine in f32 sorted; do
    part "pytorch-$engine-$1" may "one minute" "$python" benches/cuda_baseline.py "$2" --engine $engine --workload SEL \
      --device "$torch_device" --repetitions 0 --embeddings "$2/$engine.npy" $BASELINE_ARGS
  done
  [ -f "$2/f32.npy" ]
}

# compare NAME FOLDER FORM EXPECTED ARGUMENTS: our embeddings of SEL in the folder against PyTorch's.
compare() {
  what=$1-$3 folder=$2 compared=$3 expected_of_it=$4
  shift 4
  part "embeddings-$what" must "one minute" bin/bench embeddings "$folder" --device "$device" $(form "$compared") \
    --out "$folder/$compared.npy" || return
  if [ -f "$folder/sorted.npy" ]; then set -- "pytorch-bf16=$folder/sorted.npy" "$@"; fi
  part "fidelity-$what" must "$expected_of_it" "$python" benches/cuda_fidelity.py "$folder/f32.npy" \
    "$folder/$compared.npy" "$@" --out "$results/fidelity-$what.json" $FIDELITY_ARGS
}

# Real text and a trained encoder are judged by distances and selections, random weights by PyTorch's bf16.
fidelity() {
  part prepare-text must "one minute" bin/bench prepare-text "$data/mini" --model models/polysift-mini \
    --texts tests/sample/corpus $TEXT_ARGS && oracle mini "$data/mini" && {
    compare mini "$data/mini" bf16 "mean 2.8e-3, selected alike 0.995; PyTorch in bf16 is further off"
    compare mini "$data/mini" fp8 "mean 2.5e-2, cosine 0.9989, selected alike 0.96" --bounds fp8
  }
  prepare && oracle "$shape" "$data/$shape" &&
    compare "$shape" "$data/$shape" bf16 "PyTorch's bf16 or nearer, mean 1.0e-2" --bounds random
}

bars() {
  if ! has_torch; then note bars skipped 0 "$python has no torch and transformers"; return; fi
  part bars may "each line; fp8 below 900 TFLOP/s on average: 3.4 M tokens/s at most" \
    "$python" benches/cuda_bars.py --device "$torch_device" $BARS_ARGS
}

baselines() {
  prepare || return
  if has_torch; then
    for engine in sorted padded; do
      expected_rate="1.85 M tokens/s"
      if [ $engine = padded ]; then expected_rate="1.26 M tokens/s"; fi
      part pytorch-$engine may "$expected_rate" "$python" benches/cuda_baseline.py "$data/$shape" --engine $engine \
        --device "$torch_device" --workload W2 --out "$results/pytorch-$engine.json" $BASELINE_ARGS
    done
  else
    note pytorch skipped 0 "$python has no torch and transformers"
  fi
}

end_to_end() {
  prepare || return
  part end-to-end may "0.99 of the encoder without its start" bin/bench end-to-end "$data/$shape" \
    --device "$device" --program bin/polysift --texts tests/sample/corpus --documents 100000 --repetitions 1 \
    --out "$results/end-to-end.json" $END_TO_END_ARGS
}

# sanitize TOOL GATE FILTER...: own kernels. racecheck knows nothing of wgmma and of asynchronous copies, so it
# gets those without; initcheck finds rows of no sequence, which nobody reads.
sanitize() {
  tool=$1 sanitize_gate=$2
  shift 2
  if ! have compute-sanitizer; then note "$tool" skipped 0 "no compute-sanitizer"; return; fi
  part "$tool" "$sanitize_gate" "0 errors" env POLYSIFT_REQUIRE_CUDA=1 compute-sanitizer --tool "$tool" \
    --error-exitcode 9 bin/kernels --test-threads=1 "$@"
}

profile() {
  prepare || return
  if ! have ncu; then note profile skipped 0 "no ncu"; return; fi
  for kernel in attention_64_hopper matmul_hopper_gelu matmul_hopper_residual matmul_fp8_gelu layer_norm_768 attention_64; do
    part profile-$kernel may "attention: tensor pipe 40% or more, L2 below 60%, no bank conflicts, issue slots 70%" \
      ncu --clock-control none --set full --kernel-name $kernel --launch-skip 4 --launch-count 1 --page details \
      bin/bench kernels "$data/$shape" --device "$device" --batch-tokens 16896 --matrix 1024 --repetitions 1 \
      --out "$results/profiled.txt"
  done
}

quoted() { printf '"%s"' "$(printf '%s' "$1" | head -n 1 | tr -d '"\\')"; }

# What does not change while this runs.
versions() {
  gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null)
  torch=$("$python" -c 'import torch, transformers; print(torch.__version__, transformers.__version__)' 2>/dev/null)
  {
    printf '  "commit": %s,\n  "gpu": %s,\n' "$(quoted "$(cat COMMIT 2>/dev/null)")" "$(quoted "$gpu")"
    printf '  "polysift": %s,\n' "$(quoted "$(bin/polysift --version)")"
    printf '  "torch, transformers": %s,\n  "cores": %s,\n' "$(quoted "$torch")" "$(nproc)"
  } > "$results/versions"
}

# Writes the summary and packs everything.
archive() {
  {
    echo '{'
    cat "$results/versions" 2>/dev/null
    printf '  "date": "%s",\n  "parts": [\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    cat "$results"/parts/* 2>/dev/null | sed 's/^/    /; $!s/$/,/'
    printf '  ]\n}\n'
  } > "$results/summary.json"
  tar -czf results.new results && mv results.new results.tar.gz
  if [ -n "${OUT:-}" ]; then mkdir -p "$OUT" && cp results.tar.gz "$OUT/"; fi
}

finish() {
  status=$?
  trap - EXIT
  if [ -n "$child" ]; then
    kill "$child" 2>/dev/null
    note "$part_name" interrupted $(($(date +%s) - began)) ""
  fi
  bin/bench report "$results" > "$results/report.txt" 2>&1
  cat "$results/report.txt"
  archive
  exit $status
}

# Arguments that only a try without a GPU changes.
: "${PREPARE_ARGS:=}" "${KERNELS_ARGS:=}" "${ENCODE_ARGS:=}" "${BASELINE_ARGS:=}" "${TEXT_ARGS:=}" "${FIDELITY_ARGS:=}"
: "${BARS_ARGS:=}" "${END_TO_END_ARGS:=}" "${TORCH_DEVICE:=$device}"
torch_device=$TORCH_DEVICE

unpack
mkdir -p "$results/parts" "$data"
devices
versions
trap finish EXIT
trap 'exit 130' INT TERM HUP
if [ $# -eq 0 ]; then
  set -- ${QUICK:-runtime attention products kernels encode encoder fidelity bars baselines profile end-to-end \
    memcheck synccheck}
fi
for wanted in "$@"; do
  case $wanted in
    devices) ;;
    runtime | attention | products | prepare | kernels | encode | encoder | fidelity | bars | baselines | profile)
      $wanted
      ;;
    end-to-end) end_to_end ;;
    memcheck | synccheck) sanitize "$wanted" must attention:: rows:: matmul ;;
    racecheck) sanitize racecheck must rows:: ;;
    initcheck) sanitize initcheck may attention:: rows:: ;;
    *) echo "run.sh: no step named $wanted" >&2; exit 2 ;;
  esac
done
exit $failed
