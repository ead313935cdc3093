# A Slurm cluster of three nodes on this machine, for the tests beside this file: real daemons with a folder, a port
# range and an authentication key of their own. Needs root, slurm-wlm and munge; uses no service, no file in
# /etc and no cgroups. Sourced by run.sh; everything is below $FOLDER and is gone after cluster_down.

NODES=3
CPUS_PER_NODE=4
FAKE_GPUS_PER_NODE=2
# Tasks of an array, small so that 32 tasks become several arrays.
MAX_ARRAY_SIZE=${MAX_ARRAY_SIZE:-1001}
# Seconds without a sign of life after which a node is down.
NODE_TIMEOUT_SECS=5

cluster_missing() { # prints what is missing, if anything
  [ "$(id -u)" = 0 ] || { echo "root (the daemons start jobs as other users)"; return; }
  local program
  for program in slurmctld slurmd munged sbatch scontrol squeue; do
    command -v "$program" >/dev/null 2>&1 || { echo "$program (Debian: apt-get install slurm-wlm munge)"; return; }
  done
}

free_port_range() { # first of NODES+1 ports that nobody listens at
  local port i
  for _ in $(seq 50); do
    port=$((20000 + RANDOM % 20000))
    for i in $(seq 0 "$NODES"); do
      (exec 3<>"/dev/tcp/127.0.0.1/$((port + i))") 2>/dev/null && continue 2
    done
    echo "$port"
    return
  done
  echo "no free ports" >&2
  return 1
}

write_configuration() {
  local port host i
  port=$(free_port_range)
  host=$(hostname -s)
  cat > "$FOLDER/slurm.conf" <<CONF
ClusterName=polysift
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$FOLDER/run/munge.sock
SlurmctldPidFile=$FOLDER/run/slurmctld.pid
SlurmctldLogFile=$FOLDER/log/slurmctld.log
SlurmdPidFile=$FOLDER/run/slurmd.%n.pid
SlurmdLogFile=$FOLDER/log/slurmd.%n.log
SlurmdSpoolDir=$FOLDER/spool/%n
StateSaveLocation=$FOLDER/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$FOLDER/log/jobs
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
MaxArraySize=$MAX_ARRAY_SIZE
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=$NODE_TIMEOUT_SECS
KillWait=5
MinJobAge=600
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MailProg=/bin/true
GresTypes=gpu
CONF
  : > "$FOLDER/gres.conf"
  for i in $(seq "$NODES"); do
    mkdir -p "$FOLDER/spool/n$i"
    for gpu in $(seq 0 $((FAKE_GPUS_PER_NODE - 1))); do : > "$FOLDER/gpu-$i-$gpu"; done
    echo "NodeName=n$i Name=gpu File=$FOLDER/gpu-$i-[0-$((FAKE_GPUS_PER_NODE - 1))]" >> "$FOLDER/gres.conf"
    echo "NodeName=n$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + i)) CPUs=$CPUS_PER_NODE" \
      "RealMemory=4096 Gres=gpu:$FAKE_GPUS_PER_NODE State=UNKNOWN" >> "$FOLDER/slurm.conf"
  done
  cat >> "$FOLDER/slurm.conf" <<CONF
PartitionName=normal Nodes=n[1-$NODES] Default=YES State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=0
PartitionName=urgent Nodes=n[1-$NODES] State=UP PriorityTier=10
CONF
}

cluster_up() {
  FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/polysift-slurm.XXXXXX")
  mkdir -p "$FOLDER"/{run,log,spool,state,munge}
  chmod 755 "$FOLDER" # munge wants its socket reachable by all
  chmod 700 "$FOLDER/munge" "$FOLDER/state"
  export SLURM_CONF="$FOLDER/slurm.conf"
  write_configuration
  (umask 077 && head -c 128 /dev/urandom > "$FOLDER/munge/key")
  munged --key-file="$FOLDER/munge/key" --socket="$FOLDER/run/munge.sock" --pid-file="$FOLDER/run/munged.pid" \
    --log-file="$FOLDER/munge/log" --seed-file="$FOLDER/munge/seed"
  slurmctld -c -f "$SLURM_CONF"
  local i
  for i in $(seq "$NODES"); do node_up "n$i"; done
  wait_until 20 "all nodes are up" all_nodes_up
}

node_up() { slurmd -f "$SLURM_CONF" -N "$1"; }

all_nodes_up() { [ "$(sinfo -h -N -p normal -t idle,mix,alloc -o %N 2>/dev/null | wc -l)" = "$NODES" ]; }

cluster_down() { # stops what cluster_up started, by the ids that the daemons left
  [ -n "${FOLDER:-}" ] || return 0
  local pid_file
  if [ -s "$FOLDER/run/slurmctld.pid" ]; then
    scancel --me 2>/dev/null || true
    wait_until 10 "all jobs are gone" no_jobs || true
  fi
  local pids=()
  for pid_file in "$FOLDER"/run/slurmd.*.pid "$FOLDER/run/slurmctld.pid" "$FOLDER/run/munged.pid"; do
    [ -s "$pid_file" ] && pids+=("$(cat "$pid_file")")
  done
  kill "${pids[@]}" 2>/dev/null
  wait_until 10 "the daemons have ended" have_ended "${pids[@]}" || true
  if [ -n "${KEEP:-}" ]; then echo "kept: $FOLDER"; else rm -rf "$FOLDER"; fi
}

have_ended() { # PID...
  local pid
  for pid; do ! kill -0 "$pid" 2>/dev/null || return 1; done
}

no_jobs() { [ -z "$(squeue -h 2>/dev/null)" ]; }

wait_until() { # SECONDS WHAT COMMAND...: until the command succeeds
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || { echo "waited in vain until $what" >&2; return 1; }
    sleep 0.1
  done
}

# Slurm holds every requeued job for two minutes (Reason=BeginTime). The tests do not wait for that; but a restart
# on the same node within a second fails, so it is brought to three seconds from now, once.
hurry() {
  local job reason start
  while IFS='|' read -r job reason start; do
    [ "$reason" = BeginTime ] && [ "$start" != N/A ] &&
      [ $(($(date -d "$start" +%s) - $(date +%s))) -gt 10 ] &&
      scontrol update jobid="$job" StartTime=now+3 2>/dev/null
  done < <(squeue -h -r -t PD -o '%i|%r|%S')
  return 0
}

job_field() { # JOB FIELD, of scontrol's description
  scontrol -o show job "$1" 2>/dev/null | head -1 | tr ' ' '\n' | sed -n "s/^$2=//p" | head -1
}

job_is() { [[ "$(job_field "$1" JobState)" =~ ^($2)$ ]]; } # JOB STATE|STATE

job_is_over() { hurry; ! squeue -h -j "$1" 2>/dev/null | grep -q .; }

jobs_are_over() { hurry; no_jobs; }
