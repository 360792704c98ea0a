#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A real torchrun on this machine, in the folder $1: two agents of one rank each, of which one is killed. The
# other one goes on alone, from the newest snapshot. Leaves log, what the first agent's rank said.
set -u
dir=$1 plan=$2
cd "$dir" || exit 1
export ORRERY_SECRET=0123456789abcdef01
cat >worker.sh <<WORKER
#!/bin/bash
resume=()
[ -e s/LATEST ] && resume=(--resume s)
exec "$plan" run --model linear-20-1 --global-batch 24 --dp "\$WORLD_SIZE" --steps 100000000 --log-every 10 \\
  --save-every 20 --save s --timeout 20s "\${resume[@]}"
WORKER
chmod +x worker.sh
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')

# below PROCESS: its children and theirs.
below() {
  local child
  for child in $(ps -o pid= --ppid "$1"); do
    echo "$child"
    below "$child"
  done
}
agents=()
stop() {
  for agent in "${agents[@]}"; do
    mapfile -t processes < <(below "$agent")
    kill -9 "$agent" "${processes[@]}" 2>/dev/null
  done
}
trap stop EXIT
# -r and -t: without them torch 1.13 does not start under Python 3.11.
for i in 0 1; do
  torchrun --no_python -r 1 -t 1 --log_dir "logs.$i" --nnodes 1:2 --nproc_per_node 1 --max_restarts 3 \
    --rdzv_backend c10d --rdzv_id job --rdzv_endpoint "127.0.0.1:$port" \
    --rdzv_conf last_call_timeout=8,timeout=300 ./worker.sh >"agent.$i" 2>&1 &
  agents+=("$!")
  # The rendezvous is in the agent that came first: the one that stays.
  until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
    kill -0 "${agents[0]}" 2>/dev/null || { cat agent.0 >&2; exit 1; }
    sleep 0.2
  done
done
# await COMMAND...: until it succeeds, however busy this machine is.
await() {
  until "$@"; do
    [ "$SECONDS" -lt 540 ] || { echo "no success after $SECONDS s: $*" >&2; cat agent.* >&2; return 1; }
    sleep 0.2
  done
}
says() { grep -rqs "$1" logs.0 logs.1; }
await says "2 ranks on" || exit 1
await says "^saved" || exit 1
mapfile -t processes < <(below "${agents[1]}")
kill -9 "${agents[1]}" "${processes[@]}"
await says "resumed behind step" || exit 1
await says "1 rank on" || exit 1
sleep 1
mapfile -t processes < <(below "${agents[0]}")
kill -TERM "${processes[@]}"
await says "stopped by SIGTERM\|median step" || exit 1
cat logs.0/*/attempt_*/*/stdout.log logs.1/*/attempt_*/*/stdout.log >log
