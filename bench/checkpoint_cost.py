"""What saving adds to a run: the demo's game, in which stretches with a checkpoint alternate with others without.

  python -m bench.checkpoint_cost --config=configs/tiny.py [--pairs=8] [--every=10]

One run of the config from its warm start, which must be there (`codea1.sft` makes it), at a learning rate of almost 0,
so that all steps are alike. Saves are due every so many steps; half of them are made and the others left out, in the
order of Thue and Morse, which favours neither side. A stretch begins and ends half way between saves, so that what is
written in the background falls into it. Times are per token sampled: stretches differ in those.
"""

import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from absl import flags
from ml_collections import ConfigDict

from codea1 import train
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runtime import command
from codea1.runtime.hosts import Hosts
from codea1.sandbox.host.pool import SandboxPool
from codea1.training.setup import assemble
from codea1.training.trainer import Trainer

PAIRS = flags.DEFINE_integer("pairs", 8, "stretches of each kind", lower_bound=1)
EVERY = flags.DEFINE_integer("every", 10, "steps from one save to the next", lower_bound=2)


@dataclass(frozen=True)
class Moment:
    """The clocks at the end of a step, in seconds."""

    wall: float
    cpu: float  # of this process, which saves; the sandbox's are not in it

    @classmethod
    def now(cls) -> "Moment":
        used = resource.getrusage(resource.RUSAGE_SELF)
        return cls(time.monotonic(), used.ru_utime + used.ru_stime)


def is_made(number: int) -> bool:
    """Whether the save of that number is made: its binary digits have an odd sum."""
    return number.bit_count() % 2 == 1


class Timed(Trainer):
    """A run that leaves out half of its saves, and notes when its steps ended and how long saving held it up."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.ends: dict[int, Moment] = {}
        self.held_up: dict[int, float] = {}

    def _finish_step(self) -> None:
        super()._finish_step()
        self.ends[self._position.step] = Moment.now()

    def _save(self, *arguments: object, **named: object) -> None:
        step = self._position.step
        if step % EVERY.value == 0 and not is_made(step // EVERY.value):
            return
        started = time.monotonic()
        super()._save(*arguments, **named)
        self.held_up[step] = time.monotonic() - started


def measured(config: ConfigDict, workdir: Path) -> Timed:
    """The run, done; as many saves are made in it as are left out, but for one that comes first."""
    config.steps = EVERY.value * (2 * PAIRS.value + 3)
    config.validation.every = config.steps
    config.code.learning_rate = config.test.learning_rate = 1e-12
    config.data.validation.limit = config.data.test.limit = 12  # they lie outside of the stretches
    config.checkpoint.every = EVERY.value
    folder = RunFolder.open(str(workdir), config.to_dict())
    with SandboxPool.of_config(config) as sandbox, Timed(config, assemble(config), sandbox, folder, Hosts()) as run:
        train.train(run)
    return run


def stretches(run: Timed) -> dict[bool, list[Moment]]:
    """Seconds per thousand sampled tokens, of the stretches without and with a save."""
    rows = {row["step"]: row for row in read_metrics(run._folder.metrics)}
    found: dict[bool, list[Moment]] = {False: [], True: []}
    for number in range(2, 2 * PAIRS.value + 2):  # the first save opens files and starts threads
        first = number * EVERY.value - EVERY.value // 2
        last = first + EVERY.value
        steps = [rows[step] for step in range(first + 1, last + 1)]
        tokens = sum(row["perf/tokens_per_second"] * row["time/round"] for row in steps) / 1000
        begun, ended = run.ends[first], run.ends[last]
        found[is_made(number)].append(Moment((ended.wall - begun.wall) / tokens, (ended.cpu - begun.cpu) / tokens))
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        run = measured(train.CONFIG(), Path(temporary) / "run")
        found = stretches(run)
    print(f"stretches of {EVERY.value} steps; seconds per 1000 sampled tokens")
    for made, title in ((False, "without a save"), (True, "with a save")):
        print(f"{title:16} wall {' '.join(f'{each.wall:.3f}' for each in found[made])}")
        print(f"{title:16} CPU  {' '.join(f'{each.cpu:.3f}' for each in found[made])}")
    for clock in ("wall", "cpu"):
        without, saved = ([getattr(each, clock) for each in found[made]] for made in (False, True))
        unsure = statistics.variance(without) / len(without) + statistics.variance(saved) / len(saved)
        mean = statistics.mean(without)
        added = 100 * (statistics.mean(saved) / mean - 1)
        error = 100 * unsure**0.5 / mean
        print(f"a save every {EVERY.value} steps adds {added:.2f} % {clock} time, standard error {error:.2f}")
    held_up = [seconds for step, seconds in run.held_up.items() if EVERY.value < step < max(run.held_up)]
    print(f"a save holds the run up for {statistics.mean(held_up):.3f} s")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    command.run(main)
