#!/usr/bin/env bash
# One host of a TPU VM; tpu_vm.sh calls it there, on all hosts at once.
#
#   host.sh install PYTHON    a virtual environment with codea1 and the TPU's JAX, then the sandbox's doctor
#   host.sh start FLAG...     codea1.train with these flags, in the background: it outlives the connection
#   host.sh status            one line: codea1-host NAME missing | running | exited CODE
#   host.sh logs [LINES]      the last lines of the log; without a number, those and all that follow
#   host.sh stop              tells the run to end, and after two minutes makes it
#
# With CODEA1_DELETE="KIND NAME ZONE PROJECT HOSTS", `start` also makes the hosts delete their TPU VM when the run has
# ended with code 0, its results and all logs are in the bucket, and nobody has asked for the status for 15 minutes.
set -euo pipefail

seconds_to_end=120
seconds_unwatched=${CODEA1_UNWATCHED_SECONDS:-900}
code=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$HOME/codea1-venv
state=$HOME/codea1-run # lock: held while a run goes on; pid and exit: codea1.train's; log
mkdir -p "$state"

# Ubuntu 22.04 of the TPU VMs has Python 3.10; uv brings the one that is asked for.
install() {
  python3 -m pip install --quiet --user --constraint "$code/requirements.lock" uv
  "$HOME/.local/bin/uv" venv --quiet --allow-existing --python "$1" "$venv"
  "$HOME/.local/bin/uv" pip install --quiet --python "$venv/bin/python" --constraint "$code/requirements.lock" \
    --editable "${code}[all,tpu]"
  (cd "$code" && "$venv/bin/python" -m codea1.sandbox)
}

# A lock ends with the processes that hold it, so that neither a reboot nor a pid used again looks like a run.
running() {
  ! flock --nonblock "$state/lock" true
}

start() {
  if running; then
    echo "error: a run goes on here; stop it first." >&2
    exit 1
  fi
  rm -f "$state/pid" "$state/exit"
  setsid flock --nonblock --close "$state/lock" "$0" supervise "$@" </dev/null >>"$state/log" 2>&1 &
  for _ in {1..100}; do
    [[ ! -s $state/pid ]] || return 0
    sleep 0.1
  done
  echo "error: the run did not start within ten seconds; see $state/log." >&2
  exit 1
}

supervise() {
  cd "$code"
  echo "launch: $(date -u +%FT%TZ) $(hostname): python -m codea1.train $*"
  # TPU drivers lock memory for their transfers, where the user may.
  ulimit -l unlimited 2>/dev/null || true
  # Where the TPUs do not answer, JAX would take the CPU in silence.
  JAX_PLATFORMS=tpu,cpu PYTHONUNBUFFERED=1 "$venv/bin/python" -m codea1.train "$@" &
  local pid=$! code=0
  echo "$pid" >"$state/pid"
  wait "$pid" || code=$?
  echo "launch: $(date -u +%FT%TZ) $(hostname): codea1.train ended with code $code"
  echo "$code" >"$state/exit.new"
  mv "$state/exit.new" "$state/exit"
  touch "$state/asked"
  if ((code == 0)) && [[ ${CODEA1_DELETE-} ]]; then
    setsid "$0" delete_unwatched "$@" & # beyond the lock: another run may start
  fi
}

# Each host does the same, and the first deletes.
delete_unwatched() {
  local kind name zone project hosts flag workdir='' logs results force=()
  read -r kind name zone project hosts <<<"$CODEA1_DELETE"
  for flag; do
    [[ $flag != --workdir=* ]] || workdir=${flag#*=}
  done
  [[ $workdir == gs://* ]] || return 0
  gcloud storage cp "$state/log" "$workdir/launch/$(hostname).log"
  while (($(date +%s) - $(stat --format=%Y "$state/asked") < seconds_unwatched)); do
    sleep 1
  done
  [[ -s $state/exit ]] || return 0
  # Where something is missing, gcloud lists the rest and fails.
  logs=$(gcloud storage ls "$workdir/launch/*.log" | wc -l) || true
  results=$(gcloud storage ls "$workdir/evaluations/after.json" "$workdir/report.md" | wc -l) || true
  if ((logs < hosts || results < 2)); then
    echo "launch: $name is kept and costs money: $workdir has $logs of $hosts logs and $results of 2 results."
    return
  fi
  [[ $kind == tpu-vm ]] || force=(--force) # with its VM
  gcloud compute tpus "$kind" delete "$name" ${force[@]+"${force[@]}"} --async --zone="$zone" --project="$project" --quiet
}

status() {
  touch "$state/asked"
  local what=missing
  if [[ -s $state/exit ]]; then
    what="exited $(<"$state/exit")"
  elif running; then
    what=running
  fi
  echo "codea1-host $(hostname) $what"
}

logs() {
  if (($#)); then
    echo "launch: the end of the log of $(hostname)"
    tail -n "$1" "$state/log"
  else
    tail -n 100 -F "$state/log"
  fi
}

stop() {
  running || return 0
  kill -TERM "$(<"$state/pid")" || true
  for ((second = 0; second < seconds_to_end; second++)); do
    running || return 0
    sleep 1
  done
  kill -KILL "$(<"$state/pid")"
}

case ${1-} in
  install | start | supervise | delete_unwatched | status | logs | stop) "$@" ;;
  *)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p;}' "$0" >&2
    exit 2
    ;;
esac
