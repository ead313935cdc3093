#!/usr/bin/env bash
# Runs polysift's stages on a real Slurm cluster of three nodes on this machine (see cluster.sh).
#
#   tests/slurm/run.sh smoke          an array, a killed and a pre-empted task, a cascade; about two minutes
#   tests/slurm/run.sh full [TEST]    everything else, one after the other; some minutes
#
# POLYSIFT names the program (default: the one that cargo builds for tests); KEEP=1 keeps the cluster's
# folder. Where Slurm is missing, the smoke test says so and is passed over.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=cluster.sh
. "$here/cluster.sh"
polysift=${POLYSIFT:-${CARGO_TARGET_DIR:-$root/target}/debug/polysift}
export POLYSIFT_THREADS=1 # the nodes share this machine
unset POLYSIFT_TASK POLYSIFT_NUM_TASKS POLYSIFT_RUN RUST_LOG

say() { printf '%3d s  %s\n' "$SECONDS" "$*"; }

fail() {
  echo "FAILED: $*" >&2
  squeue -h -r -o '%i %j %T %r' >&2
  sed -E 's/^JobId=([0-9]+).* Name=([^ ]+) JobState=([^ ]+) .* (ArrayJobId=.*)$/\1 \2 \3 \4/' "$FOLDER/log/jobs" | tail -20 >&2
  find "$FOLDER" -path '*/logs/*.log' -newermt '-1 minute' -exec tail -n 3 {} + >&2
  exit 1
}

check() { # WHAT COMMAND...
  local what=$1
  shift
  "$@" || fail "$what"
  say "$what"
}

leave() {
  local pid
  for pid in $(jobs -p); do kill "$pid" 2>/dev/null; done
  cluster_down
}

# ---------------------------------------------------------------- runs

# The sample corpus COPIES times under other names, and the recipe of Apertus with settings under which a machine of two
# cores takes seconds for it.
prepare() { # COPIES MAX_TOKENS
  local file language copy data="$FOLDER/data" head
  mkdir -p "$data"
  cp -r "$root/tests/sample/labelled" "$data/"
  for file in "$root"/tests/sample/corpus/*/*; do
    language=$(basename "$(dirname "$file")")
    mkdir -p "$data/corpus/$language"
    for copy in $(seq "$1"); do cp "$file" "$data/corpus/$language/$copy-$(basename "$file")"; done
  done
  rm "$data/labelled/toxicity/spa_Latn.jsonl.zst" "$data/labelled/quality/fra_Latn.jsonl.zst" # languages without heads
  echo '{"domain": "github.com", "content": "User-agent: CCBot\nDisallow: /MicrosoftTranslator"}' > "$data/robots.jsonl"
  settings=(-c "$root/docs/recipes/apertus-10.toml" --device cpu --precision f32 --max-tokens "$2" --set parts.rows=64
    --set encoder.model=polysift-mini --set "input.files=['$data/corpus/{lang}/*']"
    --set "filters.consent.sources=[{robots='$data/robots.jsonl'}]" --set export.keep_removed=true)
  for head in quality toxicity; do
    settings+=(--set "heads.$head.train=['$data/labelled/$head/{lang}.jsonl.zst']" --set "heads.$head.training.epochs=3")
  done
}

plan() { "$polysift" plan --run "$1" "${settings[@]}" --quiet; }

reference() { # STAGE...: one undisturbed process, into $FOLDER/reference
  local stage
  for stage in "$@"; do
    POLYSIFT_THREADS=2 "$polysift" "$stage" --run "$FOLDER/reference" "${settings[@]}" --quiet || return 1
  done
}

# Everything that a run leaves but how it got there.
same_as_reference() { # RUN
  diff -r --exclude=state --exclude=logs "$FOLDER/reference" "$1"
}

removed_for() { # RUN REASON...
  local run=$1 reason
  shift
  for reason in "$@"; do [ -n "$(find "$run/removed/$reason" -name '*.parquet')" ] || return 1; done
}

submit() { # RUN ARGUMENT...: prints the ids of the jobs
  local run=$1
  shift
  "$polysift" slurm --run "$run" "$@" | bash | sed -n 's/^[a-z]* \([0-9][0-9]*\)$/\1/p'
}

parts() { find "$1/state/embed/parts" -name '*.json' 2>/dev/null | wc -l; }
has_parts() { [ "$(parts "$1")" -ge "$2" ]; } # RUN NUMBER

task_pid() { # JOB TASK: the program of a running task
  local environment
  for environment in $(grep -zlx "SLURM_CONF=$SLURM_CONF" /proc/[0-9]*/environ 2>/dev/null); do
    if grep -zqx "SLURM_ARRAY_JOB_ID=$1" "$environment" 2>/dev/null &&
      grep -zqx "SLURM_ARRAY_TASK_ID=$2" "$environment" 2>/dev/null &&
      [ "$(readlink "${environment%environ}exe")" = "$(readlink -f "$polysift")" ]; then
      basename "${environment%/environ}"
      return 0
    fi
  done
  return 1
}

all_complete() { # JOB...
  local job
  for job in "$@"; do
    scontrol -o show job "$job" | grep -v 'JobState=COMPLETED ' | grep . && return 1
  done
  return 0
}

was_restarted() { [ "$(job_field "$1" Restarts)" -ge 1 ]; }

# ---------------------------------------------------------------- tests

smoke() {
  prepare 2 16
  local run="$FOLDER/a run" job pid_0 pid_1 later
  check "planned" plan "$run"
  reference run &
  local reference_pid=$!
  job=$(submit "$run" --stage embed --num-tasks 3 -- --gpus-per-node=2) || fail "embed was not submitted"
  wait_until 30 "the tasks have begun" has_parts "$run" 1 || fail "the tasks did nothing"
  pid_0=$(task_pid "$job" 0) && pid_1=$(task_pid "$job" 1) || fail "two tasks were to be at work"
  kill -STOP "$pid_0" "$pid_1" # so that a fast machine does not finish them before they are disturbed
  check "task 0 is killed" kill -9 "$pid_0"
  sbatch -p urgent -w "$(job_field "${job}_1" NodeList)" --exclusive -o /dev/null --wrap true >/dev/null ||
    fail "no urgent job"
  wait_until 20 "task 0 failed" job_is "${job}_0" FAILED || fail "it is $(job_field "${job}_0" JobState)"
  check "task 0 is requeued" scontrol requeue "${job}_0"
  wait_until 180 "embed is over" jobs_are_over || fail "embed hangs"
  check "all tasks ended well" all_complete "$job"
  check "the killed task came back" was_restarted "${job}_0"
  check "the pre-empted task came back" was_restarted "${job}_1"
  check "it had saved its work" grep -q "stopped by a signal" "$run/logs/polysift-embed_${job}_1.log"
  later=$(submit "$run" --stage train,score,filter,threshold,export --num-tasks 3) || fail "no later stages"
  wait_until 300 "the later stages are over" jobs_are_over || fail "the chain hangs"
  # shellcheck disable=SC2086
  check "all later stages ended well" all_complete $later
  wait "$reference_pid" || fail "the reference run"
  check "the bytes are those of one process" same_as_reference "$run"
  check "documents were removed for each reason" removed_for "$run" quality toxicity chance consent
  smoke_cascade
}

# All stages of a run with a cascade, whose pilot is scored by the heads that the run trains.
smoke_cascade() {
  local run="$FOLDER/cascade" jobs
  mkdir "$FOLDER/few"
  cp -r "$FOLDER/data/corpus/cmn_Hani" "$FOLDER/few/"
  settings+=(--set "input.files=['$FOLDER/few/{lang}/*']")
  settings+=(--set cascade.recall=0.2 --set cascade.confidence=0.6 --set cascade.first_pass=bundled)
  check "planned with a cascade" plan "$run"
  jobs=$(submit "$run" --num-tasks 2) || fail "the cascade was not submitted"
  rm -rf "$FOLDER/reference"
  reference run || fail "the reference run with a cascade"
  wait_until 180 "the cascade is over" jobs_are_over || fail "the chain of the cascade hangs"
  # shellcheck disable=SC2086
  check "all stages of the cascade ended well" all_complete $jobs
  check "a language has a first pass" grep -q '"first_pass": "bundled"' "$run"/cascade/languages/*.json
  check "the bytes of the cascade are those of one process" same_as_reference "$run"
}

# All stages, 32 shards on three nodes, arrays of at most MAX_ARRAY_SIZE tasks.
test_chain() {
  local run="$FOLDER/it's a chain" jobs
  check "planned" plan "$run"
  jobs=$(submit "$run" --num-tasks 32 --max-running 3 --time 60) || fail "the chain was not submitted"
  check "a stage is one job, of no more tasks than an array has" [ "$(wc -l <<< "$jobs")" = 6 ]
  wait_until 240 "the chain is over" jobs_are_over || fail "the chain hangs"
  # shellcheck disable=SC2086
  check "all jobs ended well" all_complete $jobs
  check "the bytes are those of one process" same_as_reference "$run"
  "$polysift" verify "$run" >/dev/null || fail "the run does not hold together"
  check "nothing is left" [ -z "$("$polysift" retry "$run")$(submit "$run")" ]
}

# Attempts with 8, 3 and 16 tasks, of which an array of this cluster has 9; scancel ends the first two.
test_resize() {
  local run="$FOLDER/resize" job tasks before
  check "planned" plan "$run"
  for tasks in 8 3; do
    before=$(parts "$run")
    job=$(submit "$run" --stage embed --num-tasks "$tasks") || fail "embed was not submitted"
    wait_until 30 "$tasks tasks have begun" has_parts "$run" $((before + 4)) || fail "the tasks did nothing"
    scancel "$job"
    wait_until 30 "the tasks are gone" no_jobs || fail "cancelled tasks come back"
    check "$tasks tasks were cancelled" job_is "${job}_0" "CANCELLED|COMPLETED"
  done
  job=$(submit "$run" --stage embed --num-tasks 16) || fail "embed was not submitted"
  wait_until 120 "9 tasks are over" jobs_are_over || fail "embed hangs"
  # shellcheck disable=SC2086
  check "9 tasks, as many as an array has, did the rest" all_complete $job
  check "the bytes are those of one process" diff -r "$FOLDER/reference/embeddings" "$run/embeddings"
}

# A shard whose file is damaged: exit code 3, the chain ends, and a second script does what is left.
test_bad_shard() {
  local run="$FOLDER/bad shard" jobs embed later file left
  check "planned" plan "$run"
  file=$(find "$FOLDER/data/corpus/deu_Latn" -type f | head -1)
  cp "$file" "$FOLDER/whole"
  truncate -s -100 "$file"
  jobs=$(submit "$run" --num-tasks 4) || fail "the chain was not submitted"
  embed=$(head -1 <<< "$jobs")
  wait_until 120 "the chain is over" jobs_are_over || fail "the chain hangs"
  check "one task failed with 3" [ "$(scontrol -o show job "$embed" | grep -c 'JobState=FAILED .*ExitCode=3:0')" = 1 ]
  check "the others ended well" [ "$(scontrol -o show job "$embed" | grep -c 'JobState=COMPLETED ')" = 3 ]
  for later in $(tail -n +2 <<< "$jobs"); do job_is "$later" CANCELLED || fail "job $later is $(job_field "$later" JobState)"; done
  say "all later jobs were cancelled"
  left=$("$polysift" retry "$run" --num-tasks 4)
  check "one task is left: $left" grep -qx '[0-3]' <<< "$left"
  cp "$FOLDER/whole" "$file"
  check "one task of embed is submitted again" grep -q "^#SBATCH --array=$left\$" <("$polysift" slurm --run "$run" --num-tasks 4)
  jobs=$(submit "$run" --num-tasks 4) || fail "the retry was not submitted"
  wait_until 120 "the retry is over" jobs_are_over || fail "the retry hangs"
  # shellcheck disable=SC2086
  check "the retry ended well" all_complete $jobs
  check "the bytes are those of one process" same_as_reference "$run"
}

# A node dies with all that runs there; Slurm starts its task elsewhere.
test_node_death() {
  local run="$FOLDER/node" job pid node
  check "planned" plan "$run"
  job=$(submit "$run" --stage embed --num-tasks 3) || fail "embed was not submitted"
  wait_until 30 "the tasks have begun" has_parts "$run" 1 || fail "the tasks did nothing"
  pid=$(task_pid "$job" 1) || fail "task 1 was to be at work"
  node=$(job_field "${job}_1" NodeList)
  check "node $node dies" kill -9 "$(cat "$FOLDER/run/slurmd.$node.pid")" "$(ps -o ppid= -p "$pid" | tr -d ' ')" "$pid"
  wait_until 90 "the task was started again" was_restarted "${job}_1" || fail "its task is not requeued"
  wait_until 120 "embed is over" jobs_are_over || fail "embed hangs"
  check "all tasks ended well" all_complete "$job"
  check "the bytes are those of one process" diff -r "$FOLDER/reference/embeddings" "$run/embeddings"
  node_up "$node"
  wait_until 20 "the node is back" all_nodes_up || fail "the node stays down"
}

# Lets the stopped program PID go on when the signal is there, and tells whether task JOB was started again.
goes_on_when_signalled() {
  local mask
  mask=$(sed -n 's/^ShdPnd:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null)
  [ $((0x${mask:-0} & 1 << 9)) != 0 ] && kill -CONT "$1"
  was_restarted "$2"
}

# Slurm's signal before the time limit: the task saves, puts itself back into the queue and goes on.
test_time_limit() {
  local run="$FOLDER/time limit" job pid
  check "planned" plan "$run"
  # No limit under three minutes is let through by --time.
  job=$(submit "$run" --stage embed --num-tasks 1 --signal-secs 70 -- --time=2) || fail "embed was not submitted"
  wait_until 30 "the task has begun" has_parts "$run" 1 || fail "the task did nothing"
  pid=$(task_pid "$job" 0) || fail "the task was to be at work"
  kill -STOP "$pid" # Slurm takes up to two minutes, the corpus does not
  wait_until 150 "the task is back in the queue" goes_on_when_signalled "$pid" "${job}_0" || fail "it did not requeue itself"
  say "the task is back in the queue"
  wait_until 60 "embed is over" jobs_are_over || fail "embed hangs"
  check "the task ended well" all_complete "$job"
  check "it had saved its work" grep -q "stopped by a signal" "$run/logs/polysift-embed_${job}_0.log"
  check "the bytes are those of one process" diff -r "$FOLDER/reference/embeddings" "$run/embeddings"
}

full() { # TEST...
  local test tests=("$@")
  [ $# -gt 0 ] || tests=(chain resize bad_shard node_death time_limit)
  prepare 4 16
  check "the run of one process" reference run
  for test in "${tests[@]}"; do
    say "--- $test"
    "test_$test"
  done
}

main() {
  local missing
  missing=$(cluster_missing)
  if [ -n "$missing" ]; then
    if [ "$1" = smoke ]; then
      echo "SKIPPED: the Slurm test needs $missing"
      exit 0
    fi
    echo "the Slurm tests need $missing" >&2
    exit 1
  fi
  [ -x "$polysift" ] || { echo "no program at $polysift" >&2; exit 1; }
  trap leave EXIT
  trap 'exit 143' TERM INT
  [ "$1" = smoke ] || MAX_ARRAY_SIZE=9
  cluster_up || fail "the cluster did not come up"
  say "three nodes are up"
  "$@"
  say "passed: $*"
}

main "${@:-smoke}"
