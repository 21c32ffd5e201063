#!/usr/bin/env bash
# A codea1 run on GKE, as a JobSet with a pod for each host. docs/pods.md explains it.
#
#   launch/gke.sh start --name=a1 --project=P --zone=us-west4-a --cluster=C --accelerator=v5e-16 --pricing=spot \
#       --image=us-west4-docker.pkg.dev/P/REPOSITORY/codea1:1 \
#       --config=configs/NAME.py --workdir=gs://BUCKET/a1 [-- FLAGS OF codea1.train [-- FLAGS OF gcloud]]
#
#   image    builds the container of this commit and pushes it
#   create   makes a node pool with the TPUs
#   render   prints the manifest
#   start    applies it: from then on GKE restarts what was preempted
#   logs     follows the log of host 0
#   status   the JobSet and its pods
#   stop     deletes the JobSet
#   delete   deletes the node pool
#
#   --name --project                      always
#   --zone --cluster                      for all but image and render; --location where the cluster's is not the zone
#   --accelerator=v5e-16                  for create, render and start
#   --pricing=on-demand|spot|reserved     with --reservation=NAME for reserved
#   --image                               for image, render and start
#   --config=configs/NAME.py --workdir=gs://BUCKET/FOLDER         for render and start
#   --python=3.11|3.12|3.13   --max_restarts=20   --service_account=KUBERNETES_SERVICE_ACCOUNT
#   --dry_run                             prints the commands, runs none
set -euo pipefail

# shellcheck source=launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# The context is the one that `gcloud container clusters get-credentials` makes.
kube() {
  execute kubectl --context="gke_${project}_${location:-$zone}_$cluster" "$@"
}

image() {
  local archive
  archive=${TMPDIR:-/tmp}/codea1-$(commit).tar.gz
  git -C "$root" diff --quiet HEAD || note "what is not committed is not in the image; commit $(commit) is."
  execute git -C "$root" archive --format=tar.gz --output="$archive" HEAD
  if [[ $dry_run ]]; then
    echo "$(quoted docker build --file=launch/Dockerfile "--build-arg=PYTHON=$python" "--tag=$image" -) <$(quoted "$archive")"
  else
    docker build --file=launch/Dockerfile --build-arg=PYTHON="$python" --tag="$image" - <"$archive"
  fi
  execute docker push "$image"
}

create() {
  local flags=(--machine-type="$machine_type" --num-nodes="$hosts")
  # A pool of single hosts takes no topology.
  ((hosts == 1)) || flags+=(--tpu-topology="$topology")
  case $pricing in
    spot) flags+=(--spot) ;;
    reserved) flags+=(--reservation-affinity=specific --reservation="$reservation") ;;
  esac
  flags+=(${create_flags[@]+"${create_flags[@]}"})
  execute gcloud container node-pools create "$name" --cluster="$cluster" --location="${location:-$zone}" \
    --node-locations="$zone" --project="$project" --scopes=cloud-platform "${flags[@]}" --quiet
}

delete() {
  execute gcloud container node-pools delete "$name" --cluster="$cluster" --location="${location:-$zone}" \
    --project="$project" --quiet
}

start() {
  if [[ $dry_run ]]; then
    echo "$(kube apply --filename=-) <<'END'"
    render
    echo END
  else
    render | kube apply --filename=-
  fi
}

logs() {
  kube logs --follow --tail=100 \
    --selector="jobset.sigs.k8s.io/jobset-name=$name,batch.kubernetes.io/job-completion-index=0"
}

status() {
  kube get jobset "$name"
  kube get pods --selector="jobset.sigs.k8s.io/jobset-name=$name" --output=wide
}

stop() {
  kube delete jobset "$name"
}

# Prints `- 'ARGUMENT'` lines of YAML.
yaml_list() { # INDENT ARGUMENT...
  local argument quote="''"
  for argument in "${@:2}"; do
    printf "%$1s- '%s'\n" '' "${argument//\'/$quote}"
  done
}

# The pods' selectors, by pricing.
selectors() {
  echo "                cloud.google.com/gke-tpu-accelerator: $gke_accelerator"
  echo "                cloud.google.com/gke-tpu-topology: $topology"
  case $pricing in
    spot) echo '                cloud.google.com/gke-spot: "true"' ;;
    reserved) echo "                cloud.google.com/reservation-name: $reservation" ;;
  esac
}

render() {
  cat <<END
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: $name
  annotations:
    # All pods in one node pool, which is one slice.
    alpha.jobset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool
spec:
  network:
    enableDNSHostnames: true # the headless service by which hosts find each other
  failurePolicy:
    maxRestarts: $max_restarts
    rules:
      - name: failed-in-earnest
        action: FailJobSet
        onJobFailureReasons: [PodFailurePolicy]
      # Whatever else ends a pod starts all of them again: preemption, code $RESTART_EXIT_CODE, signals.
  replicatedJobs:
    - name: hosts
      replicas: 1
      template:
        spec:
          completionMode: Indexed
          completions: $hosts
          parallelism: $hosts
          backoffLimit: 0
          podFailurePolicy:
            rules:
              - action: Count
                onPodConditions:
                  - type: DisruptionTarget
              - action: FailJob
                onExitCodes:
                  containerName: codea1
                  operator: In
                  values: [1, 2, 74] # an exception, a mistake in what was given, a storage to be repaired
          template:
            spec:
              restartPolicy: Never
              serviceAccountName: ${service_account:-default}
              automountServiceAccountToken: false
              # The pod's own init is process 1, or SIGTERM would not end Python and orphans would stay.
              shareProcessNamespace: true
              nodeSelector:
$(selectors)
              tolerations:
                - key: google.com/tpu
                  operator: Exists
                - key: cloud.google.com/gke-spot
                  operator: Exists
              containers:
                - name: codea1
                  image: $image
                  command:
                    - bash
                    - -c
                    # TPU drivers lock memory for their transfers.
                    - 'ulimit -l 68719476736 && python -m codea1.sandbox && exec python -m codea1.train "\$@"'
                    - codea1.train
                  args:
$(yaml_list 20 "--config=$config" "--workdir=$workdir" ${train_flags[@]+"${train_flags[@]}"})
                  env:
                    - name: PYTHONUNBUFFERED
                      value: "1"
                    # Where the TPUs do not answer, JAX would take the CPU in silence.
                    - name: JAX_PLATFORMS
                      value: tpu,cpu
                  # What the sandbox needs, and no more; docs/pods.md says what for.
                  securityContext:
                    privileged: false
                    allowPrivilegeEscalation: false
                    capabilities:
                      drop: [ALL]
                      add: [KILL, SETGID, SETUID, SYS_RESOURCE]
                    seccompProfile:
                      type: Unconfined
                    appArmorProfile:
                      type: Unconfined
                  resources:
                    limits:
                      google.com/tpu: $chips_per_host
END
}

main() {
  local command=${1-}
  case $command in
    image | create | render | start | logs | status | stop | delete) ;;
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
  require name project
  ((slices == 1)) || die "--slices=$slices is for tpu_vm.sh; this script makes one slice."
  case $command in
    image) require image ;;
    create) require zone cluster accelerator ;;
    render) require image accelerator config workdir ;;
    start) require zone cluster image accelerator config workdir ;;
    *) require zone cluster ;;
  esac
  case $command in
    image) need_program docker ;;
    create | delete) need_program gcloud ;;
    render) ;;
    *) need_program kubectl ;;
  esac
  [[ $pricing != reserved || $reservation ]] || die "--pricing=reserved takes --reservation=NAME."
  "$command"
}

main "$@"
