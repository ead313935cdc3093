#!/usr/bin/env bash
# Runs a command beside a Slurm cluster of this machine (../slurm/cluster.sh), or, where that cannot be, alone:
# tests that need Slurm then skip.
set -euo pipefail
. "$(dirname "$0")/../slurm/cluster.sh"
missing=$(cluster_missing)
if [ -n "$missing" ]; then
  echo "without Slurm: $missing is missing"
else
  trap cluster_down EXIT
  cluster_up
fi
"$@"
