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
# A task that ends does not end the others: they save the same step, or notice by themselves.
# shellcheck disable=SC2016  # each task has its own environment
srun --kill-on-bad-exit=0 bash -c 'exec python -m codea1.train --num_processes="$SLURM_NTASKS" "$@"' codea1.train "$@" ||
  code=$?

# The code is the highest of all tasks: a request for a restart hides the exceptions of those that it left behind.
if ((code == RESTART_EXIT_CODE && ${SLURM_RESTART_COUNT:-0} < max_restarts)); then
  note "the run asked for a restart; job $SLURM_JOB_ID is queued again."
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
