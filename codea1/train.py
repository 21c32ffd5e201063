"""Trains a Code LLM and a Test LLM against each other.

  python -m codea1.train --config=configs/tiny.py --workdir=runs/tiny/code_a1

A workdir that holds a run of the same config is continued from its last checkpoint.
"""

from absl import flags

from codea1 import program
from codea1.assembly import assemble, sandbox_limits
from codea1.errors import BadInput
from codea1.runs.folder import RunFolder
from codea1.sandbox.pool import SandboxPool
from codea1.trainer import Trainer

WORKDIR = flags.DEFINE_string("workdir", None, "folder of the run; made where it is missing, continued where it is not")
CONFIG = program.define_config()


def main() -> None:
    config = CONFIG()
    if not WORKDIR.value:
        raise BadInput("--workdir is missing: it names the folder of the run.")
    RunFolder.check(WORKDIR.value, config.to_dict())
    parts = assemble(config)
    with SandboxPool(config.sandbox.slots, sandbox_limits(config), config.sandbox.isolation) as sandbox:
        Trainer(config, parts, sandbox, RunFolder.open(WORKDIR.value, config.to_dict())).run()


if __name__ == "__main__":
    program.run(main)
