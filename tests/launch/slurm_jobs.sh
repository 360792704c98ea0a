#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A Slurm of four nodes in the folder $1, of nobody but this script: two jobs of four tasks each, of which one
# loses a node and the other one runs into its time limit, and a sweep of four tasks. Leaves killed/log, limited/log,
# launched, shared.csv and alone.csv.
# Called as root in a mount namespace of its own, so that node0 to node3 are names of this machine.
set -u
dir=$1 plan=$2
export SLURM_CONF=$dir/slurm.conf ORRERY_SECRET=0123456789abcdef0123 PLAN=$plan
cd "$dir" || exit 1
host=$(hostname -s)
free_ports() { python3 -c 'import socket,sys
s=[socket.socket() for _ in range(5)]
[x.bind(("127.0.0.1",0)) for x in s]
print(*[x.getsockname()[1] for x in s])'; }
read -r -a ports < <(free_ports)
mkdir -p state killed limited spool/node{0..3} tmp/node{0..3}
{ cat /etc/hosts; echo "127.0.0.1 $host node0 node1 node2 node3"; } >hosts
mount --bind hosts /etc/hosts || exit 1

head -c 64 /dev/urandom >key && chmod 600 key
munged --force --key-file "$dir/key" --socket "$dir/munge.sock" --pid-file "$dir/munge.pid" \
  --log-file "$dir/munge.log" --seed-file "$dir/munge.seed" || exit 1
{
  cat <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$dir/munge.sock,cred_expire=5
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
KillWait=5
JobRequeue=1
SlurmctldPort=${ports[0]}
SlurmdSpoolDir=$dir/spool/%n
SlurmdPidFile=$dir/%n.pid
SlurmdLogFile=$dir/%n.log
SlurmctldPidFile=$dir/ctld.pid
SlurmctldLogFile=$dir/ctld.log
StateSaveLocation=$dir/state
TmpFS=$dir/tmp/%n
CONF
  for i in 0 1 2 3; do
    echo "NodeName=node$i NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[$((i + 1))]} CPUs=2 RealMemory=100"
  done
  echo "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
} >slurm.conf

stop() {
  scancel --full --signal=KILL --user=root 2>/dev/null
  sleep 0.5
  mapfile -t daemons < <(cat "$dir"/*.pid)
  kill "${daemons[@]}" 2>/dev/null
  sleep 1
  # A daemon waits for its steps, and a step for a daemon: whatever has this configuration ends.
  for process in /proc/[0-9]*; do
    grep -qzx "SLURM_CONF=$SLURM_CONF" "$process/environ" 2>/dev/null &&
      grep -qE '^slurm' "$process/comm" 2>/dev/null && kill -9 "${process#/proc/}"
  done
}
trap stop EXIT
slurmctld && for i in 0 1 2 3; do slurmd -N "node$i" || exit 1; done

# await COMMAND...: until it succeeds. Steps take as long as this machine's other work lets them: only what
# lasts longer than all of them together, or a job that ended too early, is a failure.
await() {
  until "$@"; do
    if [ "$SECONDS" -ge 840 ] || { [ -n "${job:-}" ] && gone "$job" && ! "$@"; }; then
      echo "no success after $SECONDS s: $*" >&2
      sinfo -N >&2
      squeue >&2
      [ -z "${job:-}" ] || scontrol show job "$job" >&2
      return 1
    fi
    sleep 0.2
  done
}
idle() { [ "$(sinfo -h -t idle -o %D)" = 4 ]; }
says() { grep -q "$2" "$1/log" 2>/dev/null; }
saved() { [ -e "$1/s/LATEST" ]; }
gone() { ! squeue -h -j "$1" 2>/dev/null | grep -q .; }
await idle || exit 1

cat >job.sh <<'JOB'
#!/bin/bash
cd "$1"
resume=()
[ -d s ] && resume=(--resume s)
srun --kill-on-bad-exit=0 "$PLAN" run --model linear-20-1 --dp 4 --global-batch 24 --steps 100000000 \
  --log-every 10 --save-every 20 --save s --timeout 20s "${resume[@]}"
code=$?
echo "attempt ${SLURM_RESTART_COUNT:-0} on $SLURM_JOB_NODELIST ended with $code"
[ -e finish ] && exit 0
[ "$code" = 85 ] && scontrol requeue "$SLURM_JOB_ID"
sleep 90  # a lost node is Slurm's to find, which then ends this script and queues the job again
JOB
submit() { sbatch --parsable --nodes=4 --ntasks=4 --ntasks-per-node=1 --requeue --open-mode=append --output="$1/log" "${@:2}" job.sh "$1"; }
# finish JOB FOLDER: behind a resumed attempt.
finish() {
  await says "$2" "resumed behind step" || return 1
  sleep 2  # some steps
  touch "$2/finish"
  scancel --signal=USR1 "$1"
  await gone "$1"
}

srun -N4 -n4 "$PLAN" launch --deadline 30s --start rank -- "$PLAN" run --model linear-20-1 --dp 4 --global-batch 24 \
  --steps 3 >launched 2>&1

# A sweep of four processes, whose rows are those of one.
cat >study.yaml <<'STUDY'
job: {model: gpt2-xl, topology: [aws-p4d, aws-p5], nodes: 1..8, global_batch: [512, 1024]}
layout: {tp: [1, 5], micro_batch: [1, 2, 4], zero: [0, 1, 2]}
STUDY
"$PLAN" sweep study.yaml --out alone.csv >alone.said 2>&1
srun -N4 -n4 "$PLAN" sweep study.yaml --out shared.csv >shared.said 2>&1

# Slurm's own knowledge of a lost node: its daemon, the daemon's step and the rank end at once.
job=$(submit killed) || exit 1
await saved killed || exit 1
for process in /proc/[0-9]*; do
  if tr '\0' '\n' <"$process/environ" 2>/dev/null | grep -qx "SLURMD_NODENAME=node3" &&
    tr '\0' '\n' <"$process/environ" 2>/dev/null | grep -qx "SLURM_CONF=$SLURM_CONF"; then
    step=$(awk '/^PPid:/ { print $2 }' "$process/status")
    grep -q slurmstepd "/proc/$step/comm" && kill -9 "$step" "${process#/proc/}"
  fi
done
kill -9 "$(cat node3.pid)"
down() { sinfo -h -N -n node3 -o %T | grep -q down; }
await down || exit 1
slurmd -N node3
finish "$job" killed || exit 1

job=
await idle || exit 1
# Slurm may signal half a minute early: not before the ranks are there to hear it, also on a busy machine.
job=$(submit limited --time=3 --signal=USR1@60) || exit 1
finish "$job" limited || exit 1
