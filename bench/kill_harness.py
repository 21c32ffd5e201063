"""A run that is killed again and again ends as the one that never was.

  python -m bench.kill_harness [--kills=200] [--terms=20] [--seed=0] [--steps=8] [--seconds=S] [--workdir=FOLDER]

Runs of `codea1.train` on a small random model are killed (SIGKILL) at random moments, started again until they end, and
compared with a run that nobody killed: metrics but for times and the sandbox's counts, samples, evaluations, and the
last checkpoint's parameters, optimizer states, Mistake Book and position. Besides, some are told to end (SIGTERM), and
must ask to be started again. What each run was doing when it was killed is counted. Exit code 1 when anything differs.

Lives are forked from this process, which has imported everything and started no JAX: that saves most of a start.
"""

import argparse
import collections
import contextlib
import gc
import json
import mmap
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import flags
from etils import epath

from bench.micro_run import NOT_PROMISED, content, make_micro_config, make_model_folder, scripted_answer, write_config
from codea1 import train
from codea1.data.tokenizer import ChatTokenizer
from codea1.game.mistake_book import ALL_SHARDS
from codea1.runs.book_files import read_shards
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runs.samples import Samples
from codea1.runtime import command, phases
from codea1.runtime.errors import RESTART_EXIT_CODE

# What a kill waits for, and how long it may wait then, in seconds: the start, or an activity of the run. "save": a
# checkpoint's folder that is not complete yet.
MOMENTS = {"start": 4.0, "rollout": 0.2, "sandbox": 0.02, "update": 0.1, "storage": 0.05, "save": 0.05}
PATIENCE = 300.0  # seconds that a life may take

Kind = collections.Counter[str]


class Published(list):
    """A list of activities that is also in memory which outlives the process."""

    def __init__(self, memory: mmap.mmap) -> None:
        super().__init__()
        self._memory = memory

    def append(self, each: phases.Activity) -> None:
        super().append(each)
        self._publish()

    def pop(self) -> phases.Activity:
        each = super().pop()
        self._publish()
        return each

    def _publish(self) -> None:
        names = " > ".join(each.name for each in self).encode()
        self._memory[:] = names[: len(self._memory)].ljust(len(self._memory), b"\0")


class Life:
    """One process of `codea1.train` on a workdir, or of anything else."""

    def __init__(self, main: Callable[[], None], log: Path) -> None:
        self._memory = mmap.mmap(-1, 128)
        self._code: int | None = None
        self.began = time.monotonic()
        sys.stdout.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # JAX's, about forks: it has not started here
            self.pid = os.fork()
        if self.pid == 0:
            _become(main, log, self._memory)

    @property
    def doing(self) -> str:
        return self._memory[:].rstrip(b"\0").decode()

    def ended(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it goes on."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self, seconds: float = PATIENCE) -> int:
        deadline = time.monotonic() + seconds
        while (code := self.ended()) is None:
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                raise TimeoutError(f"a process took more than {seconds:.0f} s in: {self.doing}")
            time.sleep(0.002)
        return code


def _become(main: Callable[[], None], log: Path, memory: mmap.mmap) -> None:
    phases._activities = Published(memory)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    code = 1
    try:
        main()
        code = 0
    except SystemExit as error:
        code = error.code or 0
    except Exception:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Harness:
    """Runs, kills and compares, in one folder."""

    def __init__(self, folder: Path, steps: int, random_: random.Random) -> None:
        self.folder, self.random = folder, random_
        self.kills, self.terms, self.codes = Kind(), Kind(), Kind()
        self.half_written = 0  # checkpoints, at the time of a kill
        self.log = folder / "log.txt"
        self.config_file = folder / "config.py"
        # In a process of its own: it starts JAX, and a child that is forked afterwards lacks JAX's threads.
        self.check(lambda: self.prepare(steps))
        self.whole = folder / "whole"
        self.check(self.training(self.whole))

    def prepare(self, steps: int) -> None:
        config = make_micro_config(self.folder / "model", self.folder / "data")
        config.steps = steps
        config.checkpoint.every = 2
        config.validation.every = 3
        config.game.num_tests = 3
        write_config(config, self.config_file)
        make_model_folder(_made(self.folder / "model"))

    def training(self, workdir: Path) -> Callable[[], None]:
        def main() -> None:
            ChatTokenizer.decode = scripted_answer
            sys.argv = ["codea1.train", f"--config={self.config_file}", f"--workdir={workdir}"]
            command.run(train.main)

        return main

    def check(self, main: Callable[[], None]) -> None:
        code = Life(main, self.log).wait()
        if code:
            raise RuntimeError(f"exit code {code}; see {self.log}")

    def play(self, signals: list[signal.Signals], until: float) -> None:
        """Has the signals fall on runs, one after the other, until none is left or time is up and the run has ended."""
        number = 0
        while signals and time.monotonic() < until:
            number += 1
            workdir = self.folder / f"run{number}"
            lives = 0
            while not self.live(workdir, signals):
                lives += 1
            self.check(lambda workdir=workdir: require_same(self.whole, workdir))
            print(f"run {number}: ended lives {lives}; the same. Signals left: {len(signals)}", flush=True)

    def live(self, workdir: Path, signals: list[signal.Signals]) -> bool:
        """One life, which a signal may end; returns whether the run came to its end."""
        (workdir / "restarts.json").unlink(missing_ok=True)  # kills from outside are nothing that a run does again
        life = Life(self.training(workdir), self.log)
        struck = self.strike(life, workdir, signals) if signals else None
        code = life.wait()
        # Told to end before it listens, it ends by the signal.
        ends = {signal.SIGKILL: (-signal.SIGKILL,), signal.SIGTERM: (RESTART_EXIT_CODE, -signal.SIGTERM)}
        if code not in (0, *ends.get(struck, ())):
            raise RuntimeError(f"a life of {workdir} ended with {code}; see {self.log}")
        if struck == signal.SIGTERM:
            self.codes[str(code)] += 1
        return code == 0

    def strike(self, life: Life, workdir: Path, signals: list[signal.Signals]) -> signal.Signals | None:
        """Sends a signal at a random moment and returns it; None where the run ended before."""
        moment = self.random.choice(list(MOMENTS))
        times = 1 if moment == "start" else self.random.randint(1, 5)
        delay = self.random.uniform(0, MOMENTS[moment])
        is_there = False
        while times:
            was_there, is_there = is_there, self.at(moment, life, workdir)
            times -= is_there and not was_there
            if life.ended() is not None:
                return None
            if time.monotonic() > life.began + PATIENCE:
                os.kill(life.pid, signal.SIGKILL)
                raise TimeoutError(f"a life of {workdir} takes too long in: {life.doing}")
            time.sleep(0.001)
        time.sleep(delay)
        if life.ended() is not None:
            return None
        number = signals.pop()
        os.kill(life.pid, number)
        doing = life.doing
        told = self.kills if number == signal.SIGKILL else self.terms
        told[doing.partition(" > ")[2] if doing.startswith("step") else doing or "start or end"] += 1
        if number == signal.SIGKILL:
            life.wait()
            self.half_written += unfinished(workdir)
        return number

    def at(self, moment: str, life: Life, workdir: Path) -> bool:
        if moment == "start":
            return True
        if moment == "save":
            return unfinished(workdir)
        return life.doing.rpartition(" > ")[2] == moment and life.doing.startswith("step")


def unfinished(workdir: Path) -> bool:
    """Whether there is a checkpoint that is not complete."""
    with contextlib.suppress(FileNotFoundError):
        return any(not (path / "commit_success.txt").exists() for path in (workdir / "checkpoints").iterdir())
    return False


def require_same(whole: Path, workdir: Path) -> None:
    """Raises AssertionError naming what differs."""
    for read in (metrics, samples, evaluations, state, book, best_step):
        assert read(whole) == read(workdir), f"{workdir}: {read.__name__} differ from those of {whole}"
    trees = [arrays(run) for run in (whole, workdir)]
    assert jax.tree.structure(trees[0]) == jax.tree.structure(trees[1])
    jax.tree.map(lambda one, other: np.testing.assert_array_equal(one, other), *trees)
    rows = metrics(workdir)
    assert [row["step"] for row in rows] == list(range(len(rows))), f"{workdir}: not each step once, in order"


def metrics(workdir: Path) -> list[dict]:
    rows = read_metrics(RunFolder.existing(str(workdir)).metrics)
    return [{name: value for name, value in row.items() if not name.startswith(NOT_PROMISED)} for row in rows]


def samples(workdir: Path) -> list[dict]:
    written = Samples(RunFolder.existing(str(workdir)))
    return [row for step in written.steps() for row in written.read(step)]


def evaluations(workdir: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (workdir / "evaluations").iterdir()}


def state(workdir: Path) -> dict:
    """Without what times go into: the row that a signal in the last validation left, and the checksum of metrics."""
    saved = json.loads((_last(workdir) / "state" / "metadata").read_text())
    return {name: value for name, value in saved.items() if name not in ("row", "record")}


def book(workdir: Path) -> object:
    return content(read_shards(epath.Path(_last(workdir)) / "book", ALL_SHARDS))


def best_step(workdir: Path) -> int | None:
    return Checkpoints.reader(RunFolder.existing(str(workdir)).checkpoints).best_step()


def arrays(workdir: Path) -> object:
    with ocp.StandardCheckpointer() as reader:
        return reader.restore(_last(workdir) / "arrays")


def _last(workdir: Path) -> Path:
    return max((workdir / "checkpoints").iterdir(), key=lambda path: int(path.name))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--terms", type=int, default=20)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after that no further run is killed")
    parser.add_argument("--workdir", type=Path, help="empty folder for the runs; a temporary one where it is not given")
    asked = parser.parse_args()
    # By the environment, or every life would choose another. Lives find what the first one compiled, however small.
    cache = os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.path.expanduser("~/.cache/codea1/jax-kill-harness"))
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    flags.FLAGS.unparse_flags()
    gc.freeze()  # a life would look for garbage in all of it, again and again, and copy its pages
    random_ = random.Random(asked.seed)
    signals = [signal.SIGKILL] * asked.kills + [signal.SIGTERM] * asked.terms
    random_.shuffle(signals)
    with tempfile.TemporaryDirectory() as temporary:
        started = time.monotonic()
        harness = Harness(_made(asked.workdir or Path(temporary)).resolve(), asked.steps, random_)
        print(f"{len(os.listdir('/proc/self/task'))} threads here; whole run: {time.monotonic() - started:.0f} s")
        harness.play(signals, until=started + asked.seconds)
        kills, terms = harness.kills.total(), harness.terms.total()
        print(f"{kills} kills and {terms} times told to end, in {time.monotonic() - started:.0f} s")
    for title, counted in {"killed in": harness.kills, "told to end in": harness.terms}.items():
        for doing, count in counted.most_common():
            print(f"{title:>15} {doing:40} {count:4}")
    print(f"{harness.half_written} of the kills left a checkpoint half written")
    print(f"exit codes of those told to end: {dict(harness.codes)}")


if __name__ == "__main__":
    main()
