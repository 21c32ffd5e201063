#!/usr/bin/env bash
# A codea1 run on a Cloud TPU VM, of one slice or several, from nothing to nothing. docs/pods.md explains it.
#
#   launch/tpu_vm.sh run --name=a1 --project=P --zone=us-west4-a --accelerator=v5e-16 --pricing=spot \
#       --config=configs/NAME.py --workdir=gs://BUCKET/a1 [-- FLAGS OF codea1.train [-- FLAGS OF gcloud]]
#
#   run      everything below in order, through preemptions and restarts, until the run has ended
#   create   asks for the TPU VM, through the queue or, with --via=direct, now or never
#   install  this commit, Python and JAX on all hosts, then the sandbox's doctor
#   start    codea1.train on all hosts, in the background
#   logs     follows the log of host 0
#   status   what the cloud says of the VM, then what each host says of the run
#   stop     ends the run and leaves the VM
#   delete   deletes the VM with everything on it
#
#   --name --project --zone               always
#   --accelerator=v5e-16                  for run, create and status
#   --slices=2                            for all, where the run has several slices of that kind
#   --pricing=on-demand|spot|reserved     --via=queued|direct     --service_account=EMAIL
#   --network=NAME --subnetwork=NAME --internal-ips               of the VM; gcloud's other flags follow a second --
#   --config=configs/NAME.py --workdir=gs://BUCKET/FOLDER         for run and start
#   --python=3.11|3.12|3.13   --max_restarts=20   --poll_seconds=30
#   --keep                                run leaves the VM when it ends. Without it run deletes the VM, and a VM whose
#                                         `run` was interrupted deletes itself when training has succeeded
#   --dry_run                             prints the commands, runs none
set -euo pipefail

# shellcheck source=launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

tpu() {
  execute gcloud compute tpus "$@" --zone="$zone" --project="$project" --quiet
}

HOST=codea1/launch/host.sh # where install puts it, from the home folder on

on_hosts() { # WORKER|all SHELL_COMMAND
  tpu "$vms" ssh "$name" ${several:+"--node=$1"} --worker="$1" --command="$2"
}

# Prints the names of the TPU VMs, of each slice one.
nodes() {
  local node
  if [[ $several ]]; then
    for ((node = 0; node < slices; node++)); do
      echo "$name-$node"
    done
  else
    echo "$name"
  fi
}

create() {
  local flags=(--accelerator-type="$gcloud_accelerator" --scopes=https://www.googleapis.com/auth/cloud-platform)
  [[ $pricing == on-demand ]] || flags+=("--$pricing")
  [[ ! $service_account ]] || flags+=(--service-account="$service_account")
  flags+=(${create_flags[@]+"${create_flags[@]}"})
  if [[ $via == queued ]]; then
    local node=(--node-id="$name")
    [[ ! $several ]] || node=(--node-count="$slices" --node-prefix="$name")
    tpu queued-resources create "$name" "${node[@]}" --runtime-version="$runtime_version" "${flags[@]}"
  else
    tpu tpu-vm create "$name" --version="$runtime_version" "${flags[@]}"
  fi
}

delete() {
  if [[ $via == queued ]]; then
    tpu queued-resources delete "$name" --force
  else
    tpu tpu-vm delete "$name"
  fi
}

install() {
  local archive
  archive=${TMPDIR:-/tmp}/codea1-$(commit).tar.gz
  git -C "$root" diff --quiet HEAD || note "what is not committed is not installed; commit $(commit) is."
  # Chained, because `run` calls this where errors do not end the script.
  execute git -C "$root" archive --format=tar.gz --prefix=codea1/ --output="$archive" HEAD &&
    tpu "$vms" scp "$archive" "$name:codea1.tar.gz" ${several:+--node=all} --worker=all &&
    on_hosts all "rm -rf codea1 && tar xzf codea1.tar.gz && bash $HOST install $python"
}

start() {
  local kind=queued-resources when_done=()
  [[ $via == queued ]] || kind=tpu-vm
  [[ $keep || ! $accelerator ]] || when_done=(env "CODEA1_DELETE=$kind $name $zone $project $((hosts * slices))")
  on_hosts all "$(quoted ${when_done[@]+"${when_done[@]}"} bash "$HOST" start "--config=$config" "--workdir=$workdir" ${train_flags[@]+"${train_flags[@]}"})"
}

stop() {
  on_hosts all "if [ -e $HOST ]; then bash $HOST stop; fi"
}

logs() {
  on_hosts 0 "bash $HOST logs"
}

last_lines() {
  on_hosts all "if [ -e codea1-run/log ]; then bash $HOST logs 50; fi"
}

hosts_status() {
  on_hosts all "if [ -e $HOST ]; then bash $HOST status; else echo codea1-host \$(hostname) missing; fi"
}

status() {
  [[ $via == direct ]] || tpu queued-resources describe "$name" --format='value(state.state)'
  local node
  for node in $(nodes); do
    tpu tpu-vm describe "$node" --format='value(state)'
  done
  hosts_status
}

# Prints absent, waiting, ready, lost, refused or unknown; of several slices, what the first is that is not ready.
vm_state() {
  local state=ACTIVE node
  if [[ $via == queued ]]; then
    state=$(describe queued-resources "$name" 'value(state.state)')
  fi
  # A queued resource can be ACTIVE for a while after one of its VMs was preempted.
  if [[ $state == ACTIVE ]]; then
    for node in $(nodes); do
      state=$(describe tpu-vm "$node" 'value(state)')
      [[ $state == READY ]] || break
    done
    [[ $via == direct || $state != absent ]] || state=PROVISIONING
  fi
  case $state in
    absent | unknown) echo "$state" ;;
    READY) echo ready ;;
    SUSPENDING | SUSPENDED | PREEMPTED | TERMINATED | STOPPING | STOPPED) echo lost ;;
    FAILED) echo refused ;;
    *) echo waiting ;;
  esac
}

# Prints a state as gcloud names it, absent when there is no such thing, unknown when gcloud cannot tell.
describe() { # KIND NAME FORMAT
  local answer errors
  errors=$(mktemp)
  if answer=$(tpu "$1" describe "$2" --format="$3" 2>"$errors"); then
    echo "$answer"
  elif grep -q NOT_FOUND "$errors"; then
    echo absent
  else
    cat "$errors" >&2
    echo unknown
  fi
  rm -f "$errors"
}

# Reads the hosts' status lines; prints what they come to: unknown, missing, restart, failed, running or done.
# A host without its run (it was rebooted) explains whatever the others died of. Else one that failed by itself ends the
# run: those that lost it, or any other host, ask for a restart, or were aborted.
verdict() {
  local word _ what code=0 heard=0 missing=0 restart=0 failed=0 running=0
  while read -r word _ what code; do
    [[ $word == codea1-host ]] || continue
    heard=$((heard + 1))
    case $what:$code in
      missing:) missing=1 ;;
      running:) running=1 ;;
      exited:0) ;;
      "exited:$RESTART_EXIT_CODE") restart=1 ;;
      *) if ((code >= 128)); then restart=1; else failed=1; fi ;; # 128 and more: by a signal
    esac
  done
  if ((heard < hosts * slices)); then
    echo unknown
  elif ((missing)); then
    echo missing
  elif ((failed)); then
    echo failed
  elif ((restart)); then
    echo restart
  elif ((running)); then
    echo running
  else
    echo 'done'
  fi
}

# Each turn looks at what there is and does the one thing that is next, so it can be interrupted and given again.
run() {
  local restarts=0 attempts=0 begun='' state='' before
  trap 'note "the run goes on without you: run again to see it through, delete to stop paying."; exit 130' INT
  while :; do
    before=$state
    state=$(vm_state)
    [[ $before || $state != unknown ]] ||
      die "gcloud cannot say what there is of $name, as above: it wants a login (gcloud auth login), --project or" \
        "--zone is not yours, or the project lacks the API (gcloud services enable tpu.googleapis.com)."
    if [[ $state == ready ]]; then
      state=$(hosts_status | verdict) || state=unknown
    fi
    [[ $state == "$before" ]] || note "$(date -u +%FT%TZ) $name: $state"
    case $state in
      absent)
        # The first time, what is wrong is in the flags or the quota; later it passes.
        create || ((restarts)) || end 1 "$name could not be created, as above."
        ;;
      lost)
        begun=''
        [[ $before == lost ]] || count_restart "the VM was taken away"
        delete || true
        ;;
      refused)
        tpu queued-resources describe "$name" --format='yaml(state)' >&2 || true
        end 1 "the request for $name was refused, as above."
        ;;
      missing)
        [[ ! $begun ]] || count_restart "a host lost its run"
        begun=yes
        if stop && install && start; then
          attempts=0
        elif [[ $(vm_state) == ready ]]; then
          attempts=$((attempts + 1)) begun=''
          if ((attempts == 3)); then
            last_lines || true
            end 1 "codea1 could not be installed or started three times, as above."
          fi
        fi
        ;;
      restart)
        count_restart "the run asked for it"
        { stop && start; } || note "it could not be started; trying again."
        ;;
      failed)
        last_lines || true
        end 1 "the run failed."
        ;;
      done) end 0 "the run is done." ;;
    esac
    sleep "$poll_seconds"
  done
}

# Uses the restarts of run.
count_restart() {
  restarts=$((restarts + 1))
  ((restarts <= max_restarts)) || end 1 "$1, and $max_restarts restarts are used up (--max_restarts)."
  note "$1: restart $restarts of $max_restarts."
}

end() { # CODE WHY
  note "$2"
  if [[ $(vm_state) == absent ]]; then
    note "there is no $name, and nothing to pay for."
  elif [[ $keep ]]; then
    note "$name is kept and costs money until launch/tpu_vm.sh delete."
  elif delete || [[ $(vm_state) == absent ]]; then
    note "$name is deleted."
  else
    note "$name COULD NOT BE DELETED and costs money until launch/tpu_vm.sh delete."
  fi
  exit "$1"
}

show_run() {
  echo "# where there is no VM yet, or a preempted one was deleted"
  create
  echo "# every $poll_seconds s until READY, then as long as the run goes on"
  status
  echo "# where a host has no run: the first time, after a preemption, after a reboot"
  stop
  install
  start
  echo "# where a host ended with code $RESTART_EXIT_CODE or by a signal, up to $max_restarts times"
  stop
  start
  echo "# where a host failed"
  last_lines
  echo "# after a preemption and, without --keep, in the end"
  delete
}

main() {
  local command=${1-}
  case $command in
    run | create | install | start | logs | status | stop | delete) ;;
    -h | --help | help)
      usage
      exit
      ;;
    *)
      usage >&2
      die "'$command' is not a command of this script."
      ;;
  esac
  parse_flags "${@:2}"
  require name project zone
  several='' vms=tpu-vm
  ((slices == 1)) || several=yes vms=queued-resources # whose nodes the slices are
  [[ ! $several || $via == queued ]] || die "--via=direct makes one slice; --slices=$slices takes the queue."
  need_program gcloud
  case $command in
    run) require accelerator config workdir ;;
    create | status) require accelerator ;;
    start) require config workdir ;;
  esac
  if [[ $command == run && $dry_run ]]; then
    show_run
  else
    "$command"
  fi
}

main "$@"
