#!/bin/sh
# Checks and measures polysift on this machine's GPU. Needs a driver and cublasLt; PyTorch,
# compute-sanitizer and ncu are used where they are.
#
#   ./run.sh                  every part
#   ./run.sh correctness ...  some parts, meant to take less than ten minutes each:
#
#     correctness  every kernel against its oracle, the encoder against the CPU's
#     prepare      a model of random weights of the base shape (1.1 GB) and token ids
#     fidelity     embeddings against PyTorch in f32, and what heads select from real text
#     bench        the encoder alone and kernel by kernel
#     baselines    PyTorch as the published pipeline runs it, PyTorch sorted by length, candle
#     end-to-end   polysift embed from Parquet to Parquet
#     sanitize     compute-sanitizer over the kernel tests: memcheck, racecheck, initcheck, each also a part
#     profile      ncu on the attention kernel
#
# A part that fails does not stop the others. Everything goes to results/: a log and a status for each
# part, JSON, summary.json, report.json. The exit status is 1 if correctness, fidelity or sanitize failed.
#
# POLYSIFT_BENCH_DATA: where models and corpora are made (data/). POLYSIFT_BENCH_SHAPE: tiny, base, large.
# DEVICE: as polysift --device (cuda). PYTHON: python3.
set -u
cd "$(dirname "$0")" || exit 1
POLYSIFT_ROOT=${POLYSIFT_ROOT:-$PWD}
export POLYSIFT_ROOT
data=${POLYSIFT_BENCH_DATA:-$PWD/data}
shape=${POLYSIFT_BENCH_SHAPE:-base}
device=${DEVICE:-cuda}
python=${PYTHON:-python3}
results=$PWD/results
failed=0

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

# note NAME STATUS SECONDS REASON: one line of JSON for the summary.
note() {
  printf '{"part": "%s", "status": "%s", "seconds": %s, "note": "%s"}\n' "$1" "$2" "$3" "$4" \
    > "$results/parts/$1"
  printf '%-24s %s %s\n' "$1" "$2" "$4"
}

# part NAME GATE COMMAND...: runs it with a log; GATE is `must` where a failure is the run's failure.
part() {
  part_name=$1 gate=$2
  shift 2
  began=$(date +%s)
  echo "== $part_name: $*" > "$results/$part_name.log"
  "$@" >> "$results/$part_name.log" 2>&1
  code=$?
  seconds=$(($(date +%s) - began))
  if [ $code -eq 0 ]; then
    note "$part_name" passed $seconds ""
  else
    note "$part_name" failed $seconds "exit status $code, see $part_name.log"
    tail -n 5 "$results/$part_name.log" | sed 's/^/    /'
    if [ "$gate" = must ]; then failed=1; fi
  fi
  return $code
}

# A test that was skipped did not pass: the tests fail without a card when this is set.
correctness() {
  part kernels must env POLYSIFT_REQUIRE_CUDA=1 bin/kernels
  part encoder must env POLYSIFT_REQUIRE_CUDA=1 bin/integration cuda::
}

prepare() {
  set -- --shape "$shape"
  if [ -f tokenizer.json ]; then set -- "$@" --tokenizer tokenizer.json; fi
  part prepare must bin/bench prepare "$data/$shape" "$@" $PREPARE_ARGS
}

has_torch() { "$python" -c 'import torch, transformers' 2>/dev/null; }

# compare NAME FOLDER ARGUMENTS: our embeddings of SEL in the folder against PyTorch's in f32.
compare() {
  what=$1 folder=$2
  shift 2
  part "embeddings-$what" must bin/bench embeddings "$folder" --device "$device" --out "$folder/polysift.npy" || return
  if ! has_torch; then note "fidelity-$what" skipped 0 "$python has no torch and transformers"; return; fi
  pytorch() {
    part "$1-$what" "$2" "$python" benches/cuda_baseline.py "$folder" --engine "$3" --workload SEL \
      --device "$torch_device" --repetitions 0 --embeddings "$folder/$1.npy" $BASELINE_ARGS
  }
  pytorch f32 must f32 || return
  pytorch bf16 may sorted
  part "fidelity-$what" must "$python" benches/cuda_fidelity.py "$folder/f32.npy" "$folder/polysift.npy" \
    "pytorch-bf16=$folder/bf16.npy" --out "$results/fidelity-$what.json" "$@" $FIDELITY_ARGS
}

# Real text and a trained encoder are judged by distances and selections, random weights by distances.
fidelity() {
  if part prepare-text must bin/bench prepare-text "$data/mini" --model models/polysift-mini \
    --texts tests/sample/corpus $TEXT_ARGS; then
    compare mini "$data/mini"
  fi
  prepare && compare "$shape" "$data/$shape" --distances-only
}

bench() {
  prepare || return
  part bench-kernels may bin/bench kernels "$data/$shape" --device "$device" --out "$results/kernels.json" $KERNELS_ARGS
  part bench-encoder may bin/bench encode "$data/$shape" --device "$device" --out "$results/encode.json" $ENCODE_ARGS
}

baselines() {
  prepare || return
  if has_torch; then
    for engine in sorted padded; do
      part pytorch-$engine may "$python" benches/cuda_baseline.py "$data/$shape" --engine $engine \
        --device "$torch_device" --workload W2 W1 --out "$results/pytorch-$engine.json" $BASELINE_ARGS
    done
  else
    note pytorch skipped 0 "$python has no torch and transformers"
  fi
  if bin/bench candle --help 2>/dev/null | grep -q padded-tokens; then
    part candle may bin/bench candle "$data/$shape" --out "$results/candle.json" &&
      part embeddings-$shape must bin/bench embeddings "$data/$shape" --device "$device" \
        --out "$data/$shape/polysift.npy" &&
      part fidelity-candle must "$python" benches/cuda_fidelity.py "$data/$shape/candle.npy" \
        "$data/$shape/polysift.npy" --distances-only --out "$results/fidelity-candle.json" $FIDELITY_ARGS
  else
    note candle skipped 0 "built without candle-cuda"
  fi
}

end_to_end() {
  prepare || return
  part end-to-end may bin/bench end-to-end "$data/$shape" --device "$device" --program bin/polysift \
    --texts tests/sample/corpus --repetitions 3 --out "$results/end-to-end.json" $END_TO_END_ARGS
}

# sanitize TOOL...
sanitize() {
  if ! have compute-sanitizer; then note sanitize skipped 0 "no compute-sanitizer"; return; fi
  for tool; do
    part "$tool" must env POLYSIFT_REQUIRE_CUDA=1 timeout 560 compute-sanitizer --tool "$tool" \
      --error-exitcode 9 bin/kernels $SANITIZE_ARGS
  done
}

profile() {
  prepare || return
  if ! have ncu; then note profile skipped 0 "no ncu"; return; fi
  for kernel in attention_64 attention_64_hopper; do
    part profile-$kernel may ncu --clock-control none --set full --kernel-name $kernel --launch-skip 4 \
      --launch-count 1 --page details bin/bench kernels "$data/$shape" --device "$device" \
      --batch-tokens 16896 --matrix 1024 --repetitions 1 --out "$results/profiled.txt"
  done
}

quoted() { printf '"%s"' "$(printf '%s' "$1" | head -n 1 | tr -d '"\\')"; }

summary() {
  gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null)
  torch=$("$python" -c 'import torch, transformers; print(torch.__version__, transformers.__version__)' 2>/dev/null)
  {
    printf '{\n  "commit": %s,\n  "gpu": %s,\n' "$(quoted "$(cat COMMIT 2>/dev/null)")" "$(quoted "$gpu")"
    printf '  "polysift": %s,\n' "$(quoted "$(bin/polysift --version)")"
    printf '  "torch, transformers": %s,\n  "cores": %s,\n' "$(quoted "$torch")" "$(nproc)"
    printf '  "date": "%s",\n  "parts": [\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    cat "$results"/parts/* | sed 's/^/    /; $!s/$/,/'
    printf '  ]\n}\n'
  } > "$results/summary.json"
}

# Arguments that only a try without a GPU changes.
: "${PREPARE_ARGS:=}"  "${KERNELS_ARGS:=}" "${ENCODE_ARGS:=}" "${BASELINE_ARGS:=}"
: "${END_TO_END_ARGS:=}" "${SANITIZE_ARGS:=}" "${TORCH_DEVICE:=$device}"
torch_device=$TORCH_DEVICE

unpack
mkdir -p "$results/parts" "$data"
if ! bin/bench devices > "$results/devices.txt" 2>&1; then
  cat "$results/devices.txt" >&2
  echo "run.sh: nothing can be checked or measured here" >&2
  exit 1
fi
if [ $# -eq 0 ]; then
  set -- correctness fidelity bench baselines end-to-end sanitize profile
fi
for wanted in "$@"; do
  case $wanted in
    correctness | prepare | fidelity | bench | baselines | profile) $wanted ;;
    sanitize) sanitize memcheck racecheck initcheck ;;
    memcheck | racecheck | initcheck) sanitize $wanted ;;
    end-to-end) end_to_end ;;
    *) echo "run.sh: no part named $wanted" >&2; exit 2 ;;
  esac
done
summary
bin/bench report "$results" | tee "$results/report.txt"
exit $failed
