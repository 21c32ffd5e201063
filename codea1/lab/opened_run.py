"""A run opened for the saved players of one step to answer again: its components and a sandbox."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from rich.console import Console

from codea1.config import Config
from codea1.evaluation.held_out import HeldOut, evaluate
from codea1.evaluation.result_files import require_writable, summary, write_evaluation
from codea1.lab.report.tables import evaluation_table
from codea1.players.base import require_base
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runtime.hosts import Hosts
from codea1.sandbox.host.grading import Grader
from codea1.training.setup import Components, assemble, sandbox_pool
from codea1.training.stored_config import config_of


@dataclass(frozen=True)
class OpenedRun:
    """A run whose players have the states of one of its steps."""

    folder: RunFolder
    config: Config
    parts: Components
    step: int
    grader: Grader
    changes: list[str]  # of the folders that its players started from


@contextlib.contextmanager
def opened_run(
    path: str,
    step: str,
    hosts: Hosts,
    config_for: Callable[[RunFolder], Config] = config_of,
    allow_changed_model: bool = False,
) -> Iterator[OpenedRun]:
    """Opens a run; every host calls it, and each has a sandbox of its own until the end of the block.

    Args:
      step: of a checkpoint: "last", "best" or a number; "0" is how the players started.
      config_for: returns the config to play with; by default the run's own. It may raise BadInput.
      allow_changed_model: opens it with model folders that have changed since.

    Raises BadInput: there is no such run or step, or what its config names cannot be used or is not what it was.
    """
    with hosts.agreed():
        folder = RunFolder.existing(path)
        config = config_for(folder)
        parts = assemble(config)
        checkpoints = Checkpoints.reader(folder.checkpoints)
    hosts.require_same("the questions", repr((parts.train, parts.held_out)).encode())
    number = hosts.of_main(lambda: 0 if step == "0" else checkpoints.named(step, files="arrays/"))
    changes, runs = [], config_of(folder)
    for name in (name for name in parts.policies if config.policy(name).model == runs.policy(name).model):
        check = partial(require_base, config, name, checkpoints, number, False, allow_changed_model, folder.starts)
        changes += hosts.of_main(check)
    with hosts.agreed():
        pool = sandbox_pool(config.sandbox)
    with pool as sandbox:
        if number:
            parts.restore(checkpoints, number)
        yield OpenedRun(folder, config, parts, number, Grader(sandbox), changes)


def evaluate_run(run: str, step: str, split: str, hosts: Hosts, allow_changed_model: bool = False) -> None:
    """Measures the players of one checkpoint, prints the table and keeps it in the run's evaluations/.

    Args:
      step: "last", "best" or a number.
      split: "validation" or "test".
      allow_changed_model: as `opened_run` takes it; what has changed is written to the result.

    Raises BadInput: there is no such run or step, or what its config names cannot be used.
    """
    with opened_run(run, step, hosts, allow_changed_model=allow_changed_model) as opened:
        hosts.of_main(lambda: require_writable(opened.folder))
        c, parts, number = opened.config.validation, opened.parts, opened.step
        asked = HeldOut(parts.held_out[split], parts.rules, c.test_samples, c.shown_mutants, purpose=split)
        measured = evaluate(asked, parts.players, opened.grader, hosts)
    evaluation = summary(measured, number, split, [question.id for question in asked.questions])
    evaluation |= {"changes": opened.changes} if opened.changes else {}
    hosts.of_main(lambda: write_evaluation(opened.folder, f"{split}_step_{number:06d}", evaluation))
    if hosts.is_main:
        title = f"step {number}, {evaluation['questions']} questions of the {split} split"
        Console().print(evaluation_table(evaluation, title))
