#!/usr/bin/env bash
# A codea1 run under Slurm, from the repository, with the environment that has codea1 activated. docs/pods.md explains it.
#
#   sbatch --nodes=2 --gpus-per-node=8 --ntasks-per-node=8 --cpus-per-task=12 --time=12:00:00 launch/slurm.sh \
#       --config=configs/NAME.py --workdir=/SHARED/a1 [FLAGS OF codea1.train]
#
# A task is a host of the run: one for each GPU, or, on CPUs, one for each node. Give --gpus-per-node, never
# --gpus-per-task: JAX has each task take the GPU of its number among all of the node.
#
#SBATCH --job-name=codea1
#SBATCH --output=codea1-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=TERM@300
set -euo pipefail

# shellcheck source=launch/common.sh
source launch/common.sh # Slurm runs a copy of this file, in the folder where sbatch was called
max_restarts=20

export PYTHONUNBUFFERED=1
# srun does not take over what sbatch was told.
[[ ! ${SLURM_CPUS_PER_TASK-} ]] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

code=0
# A task that ends does not end the others: they save the same step, or notice by themselves. srun's code is the highest
# of all tasks: one that failed by itself (1, 2, 74) hides those that asked for a restart, or were killed.
# shellcheck disable=SC2016  # each task has its own environment
srun --kill-on-bad-exit=0 bash -c 'code=0; trap : TERM # that is for Python
  python -m codea1.train --num_processes="$SLURM_NTASKS" "$@" || code=$?
  if ((code >= 128)); then exit 75; elif ((code == 0 || code == 75)); then exit "$code"; else exit $((code + 100)); fi' \
  codea1.train "$@" || code=$?
case $code in
  10[12] | 174) code=$((code - 100)) ;;
  129 | 1[3-9]?) code=$RESTART_EXIT_CODE ;; # srun itself, or the shell of a task
esac

if ((code == RESTART_EXIT_CODE && ${SLURM_RESTART_COUNT:-0} < max_restarts)); then
  note "the run asked for a restart; job $SLURM_JOB_ID is queued again."
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
