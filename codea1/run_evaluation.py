"""The evaluation of a run's players on questions of its own config."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from codea1.assembly import assemble, config_of, held_out, sandbox_pool
from codea1.benchmarks.held_out import evaluate, summary
from codea1.hosts import Hosts
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.evaluations import write_evaluation
from codea1.runs.folder import RunFolder
from codea1.runs.tables import evaluation_table
from codea1.sandbox.grading import Grader


def evaluate_run(run: str, step: str, split: str, hosts: Hosts) -> None:
    """Measures the players of one checkpoint, prints the table and keeps it in the run's evaluations/.

    Args:
      step: "last", "best" or a number.
      split: "validation" or "test".

    Raises BadInput: there is no such run or step, or what its config names cannot be used.
    """
    with hosts.agreed():
        folder = RunFolder.existing(run)
        config = config_of(folder)
        parts = assemble(config)
        hosts.require_same("the questions", repr((parts.validation, parts.test)).encode())
    with hosts.agreed():
        checkpoints = Checkpoints.reader(folder.checkpoints)
    number = hosts.of_main(lambda: checkpoints.named(step, files="arrays/"))
    with hosts.agreed():
        pool = sandbox_pool(config)
    with pool as sandbox:
        parts.restore(checkpoints, number)
        asked = held_out(config, parts, split, config.validation.test_samples)
        measured = evaluate(asked, parts.players, Grader(sandbox), hosts)
    evaluation = summary(measured, number, split, [question.id for question in asked.questions])
    hosts.of_main(lambda: _publish(folder, evaluation, number, split))


def _publish(folder: RunFolder, evaluation: Mapping[str, Any], step: int, split: str) -> None:
    write_evaluation(folder, f"{split}_step_{step:06d}", evaluation)
    Console().print(
        evaluation_table(evaluation, f"step {step}, {evaluation['questions']} questions of the {split} split")
    )
