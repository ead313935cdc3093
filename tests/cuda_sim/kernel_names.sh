#!/bin/sh
# Prints SIM_KERNEL(name, most threads of a block[, blocks of a cluster]) for every kernel of a CUDA
# source.
# usage: kernel_names.sh CXX SOURCE INCLUDE_DIR
set -eu
"$1" -E -P -x c++ -DPOLYSIFT_SIM -DPOLYSIFT_SIM_NAMES -I "$3" "$2" |
  tr '\n' ' ' |
  grep -oE 'SIM_KERNEL_NAME +(SIM_LAUNCH_BOUNDS\([^)]*\) *)?(SIM_CLUSTER\([^)]*\) *)?[A-Za-z_0-9]+ *\(' |
  sed -E 's/SIM_KERNEL_NAME +SIM_LAUNCH_BOUNDS\( *([^,)]*)[^)]*\) *SIM_CLUSTER\(([^)]*)\) *([A-Za-z_0-9]+).*/SIM_KERNEL(\3, \1, \2)/
          s/SIM_KERNEL_NAME +SIM_LAUNCH_BOUNDS\( *([^,)]*)[^)]*\) *([A-Za-z_0-9]+).*/SIM_KERNEL(\2, \1)/
          s/SIM_KERNEL_NAME +([A-Za-z_0-9]+).*/SIM_KERNEL(\1, 1024)/'
