# shellcheck shell=bash
# What tpu_vm.sh and gke.sh share: the restart code, the accelerators, the flags, the dry run. Plain bash 3.2, for macOS.
# shellcheck disable=SC2034  # the variables are for the scripts that source this

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# A program that ends with this code, sysexits.h's EX_TEMPFAIL, says: start me again with the same workdir.
RESTART_EXIT_CODE=75

# The comment at the top of the script.
usage() {
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p;}' "$0"
}

# For what the user gave, as codea1's programs: one sentence and exit code 2.
die() {
  echo "error: $*" >&2
  exit 2
}

note() {
  echo "launch: $*" >&2
}

# Prints the arguments as one line that a shell reads back as the same arguments.
quoted() {
  local argument space='' plain='^[A-Za-z0-9_./:=@,+~-]+$' quote="'\\''"
  for argument in "$@"; do
    [[ $argument =~ $plain ]] || argument="'${argument//\'/$quote}'"
    printf '%s%s' "$space" "$argument"
    space=' '
  done
}

# Runs a command, or prints it in a dry run.
execute() {
  if [[ $dry_run ]]; then
    quoted "$@"
    echo
  else
    "$@"
  fi
}

# Sets the flags from the command line; what follows a bare -- is for codea1.train, and what follows a second one is for
# the gcloud command that creates the TPUs.
parse_flags() {
  name='' project='' zone='' accelerator='' pricing=on-demand config='' workdir='' python=3.11 service_account=''
  via=queued keep='' poll_seconds=30 max_restarts=20 dry_run='' slices=1
  cluster='' location='' image='' reservation=''
  train_flags=() create_flags=()
  local argument
  while (($#)); do
    argument=$1
    shift
    case $argument in
      --)
        while (($#)) && [[ $1 != -- ]]; do
          train_flags+=("$1")
          shift
        done
        (($# < 2)) || create_flags+=("${@:2}")
        return
        ;;
      --network=* | --subnetwork=* | --internal-ips) create_flags+=("$argument") ;;
      --dry_run) dry_run=yes ;;
      --keep) keep=yes ;;
      --name=* | --project=* | --zone=* | --accelerator=* | --pricing=* | --config=* | --workdir=* | --python=* | \
        --service_account=* | --via=* | --poll_seconds=* | --max_restarts=* | --cluster=* | --location=* | --image=* | \
        --reservation=* | --slices=*)
        argument=${argument#--}
        printf -v "${argument%%=*}" %s "${argument#*=}"
        ;;
      *) die "$argument is not a flag of this script; flags look like --name=NAME, and those of codea1.train follow --." ;;
    esac
  done
}

# require FLAG...: each was given, and every flag that was given can be.
require() {
  local flag
  for flag in "$@"; do
    [[ ${!flag} ]] || die "--$flag is missing."
  done
  [[ $name =~ ^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$ ]] ||
    die "--name=$name is not a name: up to 40 lower-case letters, digits and hyphens, from a letter on."
  [[ ! $zone || $zone =~ ^[a-z]+-[a-z]+[0-9]+-[a-z]$ ]] || die "--zone=$zone is not a zone such as us-west4-a."
  [[ $pricing == on-demand || $pricing == spot || $pricing == reserved ]] ||
    die "--pricing=$pricing is none of on-demand, spot and reserved."
  [[ $via == queued || $via == direct ]] || die "--via=$via is neither queued nor direct."
  [[ $slices =~ ^[1-9][0-9]*$ ]] || die "--slices=$slices is not a whole number from 1 on."
  [[ $python =~ ^3\.1[123]$ ]] || die "--python=$python: codea1 runs on Python 3.11, 3.12 and 3.13."
  [[ $max_restarts =~ ^[0-9]+$ ]] || die "--max_restarts=$max_restarts is not a whole number."
  [[ $poll_seconds =~ ^[0-9]+$ ]] || die "--poll_seconds=$poll_seconds is not a whole number."
  [[ ! $workdir || $workdir =~ ^gs://[a-z0-9][a-z0-9._-]+/.+ ]] ||
    die "--workdir=$workdir is not a folder of a bucket, gs://BUCKET/FOLDER: a host's own disk ends with the host."
  # As for codea1.train, tiny is configs/tiny.py.
  [[ ! $config ]] || git -C "$root" cat-file -e "HEAD:${config%%:*}" 2>/dev/null ||
    git -C "$root" cat-file -e "HEAD:configs/${config%%:*}.py" 2>/dev/null ||
    die "--config=$config: ${config%%:*} is not a file of commit $(commit), and a commit is what is installed."
  [[ ! $accelerator ]] || look_up_accelerator
  [[ ! $accelerator || ! $config ]] || require_topology "$(config_topology)"
}

# Prints the topology that the config is made for: as a flag or the config's argument gives it, or the one that its file
# names. Prints nothing where the file names none or several; codea1.train compares then, on the pod.
config_topology() {
  local file topologies='' flags=${train_flags[*]-}
  if [[ $flags =~ --config\.mesh\.topology=([^ ]*) || $config =~ [:,]topology=([^,]*) ]]; then
    echo "${BASH_REMATCH[1]}"
    return
  fi
  for file in "${config%%:*}" "configs/${config%%:*}.py"; do
    topologies+=$(git -C "$root" show "HEAD:$file" 2>/dev/null | sed -n 's/.*topology *= *"\([^"]*\)".*/\1/p' |
      sort -u) || true # one of the two files is there
  done
  [[ $topologies == *$'\n'* ]] || echo "$topologies"
}

# Where the config's topology is known, it is the one that is asked for.
require_topology() { # TOPOLOGY
  local asked=$accelerator
  ((slices == 1)) || asked=${slices}x$accelerator
  [[ ! $1 || $1 == "$asked" ]] || die "--config=$config is for $1; --accelerator=$accelerator --slices=$slices is $asked."
}

need_program() {
  [[ $dry_run ]] || command -v "$1" >/dev/null || die "$1 is not installed here; --dry_run does without."
}

commit() {
  git -C "$root" rev-parse --short HEAD
}

# From --accelerator: hosts, chips_per_host, topology, and what gcloud and GKE call it.
look_up_accelerator() {
  local generation=${accelerator%%-*} chips
  case $generation in
    v5e | v6e)
      case $accelerator in
        *-1) topology=1x1 chips=1 chips_per_host=1 ;;
        *-4) topology=2x2 chips=4 chips_per_host=4 ;;
        *-8) topology=2x4 chips=8 chips_per_host=8 ;;
        *-16) topology=4x4 chips=16 chips_per_host=4 ;;
        *-32) topology=4x8 chips=32 chips_per_host=4 ;;
        *-64) topology=8x8 chips=64 chips_per_host=4 ;;
        *-128) topology=8x16 chips=128 chips_per_host=4 ;;
        *-256) topology=16x16 chips=256 chips_per_host=4 ;;
        *) die "--accelerator=$accelerator: $generation comes as -1, -4, -8, -16, -32, -64, -128 and -256 chips." ;;
      esac
      ;;
    v5p) # the number counts TensorCores, two a chip
      chips_per_host=4
      case $accelerator in
        *-8) topology=2x2x1 chips=4 ;;
        *-16) topology=2x2x2 chips=8 ;;
        *-32) topology=2x2x4 chips=16 ;;
        *-64) topology=2x4x4 chips=32 ;;
        *-128) topology=4x4x4 chips=64 ;;
        *-256) topology=4x4x8 chips=128 ;;
        *) die "--accelerator=$accelerator: v5p comes as -8, -16, -32, -64, -128 and -256 cores, two cores a chip." ;;
      esac
      ;;
    *) die "--accelerator=$accelerator is not a TPU that this script knows: v5e-16, v6e-64, v5p-32 and the like." ;;
  esac
  hosts=$((chips / chips_per_host))
  case $generation in
    v5e)
      gcloud_accelerator=v5litepod-$chips runtime_version=v2-alpha-tpuv5-lite
      gke_accelerator=tpu-v5-lite-podslice machine_type=ct5lp-hightpu-${chips_per_host}t
      ;;
    v6e)
      gcloud_accelerator=$accelerator runtime_version=v2-alpha-tpuv6e
      gke_accelerator=tpu-v6e-slice machine_type=ct6e-standard-${chips_per_host}t
      ;;
    v5p)
      gcloud_accelerator=$accelerator runtime_version=v2-alpha-tpuv5
      gke_accelerator=tpu-v5p-slice machine_type=ct5p-hightpu-${chips_per_host}t
      ;;
  esac
}
