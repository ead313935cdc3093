#!/bin/sh
# Compiles the CUDA kernels; needs no GPU.
#
#   kernels/build.sh           writes kernels/prebuilt/, which the crate embeds (needs zstd)
#   kernels/build.sh --check   compiles anew, reports registers and spills of every kernel for sm_80
#                              and sm_90a, and fails if a kernel spills, if the machine code overwrites
#                              operands of a product (check_operands.py), or if prebuilt/ is stale
#
# The compiler is nvcc 13.0.88. The image for sm_90a is assembled by ptxas 12.9.86, as drivers of CUDA
# 12 do not load what 13.0 assembles, and those of 13 load both. They and nvdisasm are installed from
# PyPI's wheels into target/cuda-toolchain (160 MB fetched); NVCC, PTXAS_12 and NVDISASM name others.
# Other versions would give other bytes.
set -eu
cd "$(dirname "$0")/.."
version=13.0.88
version_12=12.9.86
built=kernels/prebuilt
work=${CARGO_TARGET_DIR:-target}/cuda-kernels
mkdir -p "$work" "$built"

install() {
  prefix=$1
  # --no-deps: the wheels name each other without versions, and newer parts do not fit.
  python3 -m pip install --quiet --no-deps --no-compile --disable-pip-version-check \
    --root-user-action=ignore --upgrade --target "$prefix" \
    nvidia-cuda-nvcc==$version nvidia-cuda-crt==$version nvidia-nvvm==$version \
    nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 \
    nvidia-cuda-nvcc-cu12==$version_12 nvidia-cuda-nvdisasm==13.5.37 >&2 || {
    echo "nvcc $version could not be installed with python3 -m pip; name one in NVCC" >&2
    exit 1
  }
  ln -sfn lib "$prefix/nvidia/cu13/lib64"
}

prefix=${CARGO_TARGET_DIR:-target}/cuda-toolchain
: "${NVCC:=$prefix/nvidia/cu13/bin/nvcc}"
: "${PTXAS_12:=$prefix/nvidia/cuda_nvcc/bin/ptxas}"
: "${NVDISASM:=$prefix/nvidia/cu13/bin/nvdisasm}"
is_complete() {
  "$NVCC" --version 2>/dev/null | grep -q "V$version" &&
    "$PTXAS_12" --version 2>/dev/null | grep -q "V$version_12" && "$NVDISASM" --version >/dev/null 2>&1
}
if ! command -v zstd >/dev/null; then
  echo "kernels/build.sh: there is no zstd, which packs the images" >&2
  [ "${1:-}" = --check ]
  exit
fi
if ! is_complete; then
  if [ "${1:-}" = --check ] && ! python3 -m pip --version >/dev/null 2>&1; then
    echo "kernels/build.sh: not checked, there is neither nvcc (NVCC) nor python3 with pip to fetch it"
    exit 0
  fi
  install "$prefix"
  is_complete || {
    echo "there is no nvcc $version with ptxas $version_12 and nvdisasm: $NVCC, $PTXAS_12, $NVDISASM" >&2
    exit 1
  }
fi
ptxas=$(dirname "$NVCC")/ptxas
images="polysift_sm80.ptx polysift_sm90a.cubin"
flags="-O3 -std=c++17 -Werror all-warnings -Ikernels/src/cuda"

# Names of internal symbols hold a hash of the folder: without it the bytes are the same everywhere.
ptx() {
  "$NVCC" $flags -arch="$1" -ptx -o "$work/raw.ptx" kernels/src/cuda/all.cu
  sed -E 's/_INTERNAL_[0-9a-f]{8}_/_INTERNAL_/g; /^\/\//d' "$work/raw.ptx"
}
# PTX for 8.0 and later. Its version is lowered to that of CUDA 12.0, the oldest driver that is
# supported; ptxas then refuses what that version did not have.
ptx compute_80 >"$work/sm80.ptx"
sed 's/^\.version .*/.version 8.0/' "$work/sm80.ptx" >"$work/polysift_sm80.ptx"
"$ptxas" -v -arch=sm_80 -o "$work/sm80.cubin" "$work/polysift_sm80.ptx" 2>"$work/sm80.log"
# The version of this PTX only has to be one that ptxas 12.9 reads: no driver sees it.
ptx compute_90a | sed 's/^\.version .*/.version 8.1/' >"$work/sm90a.ptx"
"$PTXAS_12" -v -arch=sm_90a -o "$work/polysift_sm90a.cubin" "$work/sm90a.ptx" 2>"$work/sm90a.log"

if [ "${1:-}" != --check ]; then
  for image in $images; do
    zstd -19 -q -f -o "$built/$image.zst" "$work/$image"
  done
  ls -l "$built" | awk 'NR > 1 { print $5 " bytes  " $NF }'
  exit 0
fi

# The newest GPUs take the PTX through their driver.
"$ptxas" -arch=sm_120 -o "$work/sm120.cubin" "$work/polysift_sm80.ptx"
awk '
  BEGIN { printf "%-8s %-24s %9s %8s %6s %6s\n", "target", "kernel", "registers", "shared", "stack", "spills" }
  /Compiling entry function/ { split($0, name, "\047"); kernel = name[2]; target = name[4] }
  /bytes stack frame/ { stack = $1; spills = $5 + $9 }
  /Used [0-9]+ registers/ {
    registers = $0; sub(/.*Used /, "", registers); sub(/ .*/, "", registers)
    shared = 0
    if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART, RLENGTH) + 0
    printf "%-8s %-24s %9d %8d %6d %6d\n", target, kernel, registers, shared, stack, spills
    count++
    if (stack + spills > 0) bad++
  }
  END {
    if (bad) { print bad " kernel(s) with local memory" > "/dev/stderr"; exit 1 }
    if (!count) { print "no kernel was reported" > "/dev/stderr"; exit 1 }
  }' "$work/sm80.log" "$work/sm90a.log"
python3 kernels/check_operands.py "$NVDISASM" "$work/polysift_sm90a.cubin"
for image in $images; do
  zstd -dcq "$built/$image.zst" | cmp -s "$work/$image" || {
    echo "$built/$image.zst is not what the sources give: run make cuda-build and commit it" >&2
    exit 1
  }
done
echo "prebuilt images are fresh"
