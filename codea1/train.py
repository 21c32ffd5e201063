"""Trains a Code LLM and a Test LLM against each other.

  python -m codea1.train --config=configs/tiny.py --workdir=runs/tiny/code_a1
  python -m codea1.train --config=configs/tiny.py --dry_run    # one step of it, of which nothing is kept

A workdir that holds a run of the same config is continued from its last checkpoint; it is a local folder, or one in a
bucket, gs://BUCKET/FOLDER (docs/storage.md). On several hosts the same command runs on each, with a workdir that all
of them see; see docs/hosts.md. What signals do is in docs/resuming.md.
"""

import contextlib
import json
import sys

from absl import flags
from ml_collections import ConfigDict

from codea1.config import validate
from codea1.runs.folder import RunFolder
from codea1.runs.lock import locked
from codea1.runtime import command
from codea1.runtime.errors import RESTART_EXIT_CODE, BadInput
from codea1.runtime.hosts import Hosts
from codea1.runtime.phases import doing
from codea1.runtime.signals import Stopped, StopRequest
from codea1.runtime.watchdog import Watchdog
from codea1.sandbox.host.pool import SandboxPool
from codea1.training.dry_run import DryRun
from codea1.training.setup import Parts, assemble
from codea1.training.trainer import Trainer

WORKDIR = flags.DEFINE_string("workdir", None, "folder of the run, local or gs://; made where it is missing")
ALLOW_PREVIOUS_STEP = flags.DEFINE_bool(
    "allow_previous_step", False, "where the newest checkpoint is damaged: delete it, and go on from an older one"
)
DRY_RUN = flags.DEFINE_bool(
    "dry_run", False, "compile everything, rehearse one step, examine the sandbox, write nothing"
)
CONFIG = command.define_config(validate)
HOSTS = command.define_hosts()


def main() -> None:
    hosts = HOSTS()
    with contextlib.ExitStack() as stack:
        with hosts.agreed():
            config = CONFIG()
            stack.enter_context(Watchdog(config.watchdog, hosts.index))
            if config.sft.start:
                raise BadInput("config.sft.start is set: this config is for codea1.sft, not for codea1.train.")
            if WORKDIR.value:
                hosts.of_main(lambda: RunFolder.check(WORKDIR.value, config.to_dict()))
            elif not DRY_RUN.value:
                raise BadInput("--workdir is missing: it names the folder of the run.")
            with doing("storage"):
                parts = assemble(config)
            _require_same_input(hosts, config, parts)
            pool = SandboxPool.of_config(config)
            sandbox = stack.enter_context(pool)
        if DRY_RUN.value:
            DryRun(config, parts, sandbox, hosts).run()
            return
        folder = hosts.of_main(lambda: _open(stack, WORKDIR.value, config))
        with hosts.agreed():
            folder.require_visible()
        stop = stack.enter_context(StopRequest())  # not before: what drives a TPU may take signals when it starts
        try:
            Trainer(config, parts, sandbox, folder, hosts, stop, ALLOW_PREVIOUS_STEP.value).run()
        except Stopped:
            sys.exit(RESTART_EXIT_CODE)


def _require_same_input(hosts: Hosts, config: ConfigDict, parts: Parts) -> None:
    hosts.require_same("the configs", json.dumps(config.to_dict(), sort_keys=True).encode())
    hosts.require_same("the questions", repr((parts.train, parts.validation, parts.test)).encode())


def _open(stack: contextlib.ExitStack, workdir: str, config: ConfigDict) -> RunFolder:
    folder = RunFolder.open(workdir, config.to_dict())
    stack.enter_context(locked(folder))
    return folder


if __name__ == "__main__":
    command.run(main)
