"""Plays a run's saved Code LLMs against its saved Test LLMs, on questions that it does not train on.

  python -m codea1.cross_play runs/tiny/code_a1
  python -m codea1.cross_play runs/tiny/code_a1 --steps=10,50,100 --split=test

Prints a matrix: down the steps of the Code LLM, across those of the Test LLM, in each cell the share of programs that a
right test fails. Read along a row it tells how much better at breaking the same programs the Test LLM became; down a
column, how much harder to break for the same Test LLM the programs. Kept as evaluations/cross_play_SPLIT.json. A run
keeps its last two checkpoints and the best; --config.checkpoint.keep_last=100 keeps what this needs.
"""

from collections.abc import Mapping
from typing import Any

from absl import flags
from rich.console import Console
from rich.table import Table

from codea1 import program
from codea1.assembly import assemble, config_of, held_out, sandbox_pool
from codea1.benchmarks.cross_play import Players, cross_play, matrix
from codea1.benchmarks.held_out import summary
from codea1.errors import BadInput
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.evaluations import write_evaluation
from codea1.runs.folder import RunFolder
from codea1.sandbox.grading import Grader

STEPS = flags.DEFINE_list("steps", None, "checkpoints that play; all that are there")
SPLIT = flags.DEFINE_enum("split", "validation", ["validation", "test"], "questions of the run's config that are asked")
HOSTS = program.define_hosts()


def main(run: str) -> None:
    hosts = HOSTS()
    with hosts.agreed():
        folder = RunFolder.existing(run)
        config = config_of(folder)
        parts = assemble(config)
        if "test" not in parts.players:
            raise BadInput(f"{folder.path} has no Test LLM: its method is {config.method}.")
        checkpoints = Checkpoints.reader(folder.checkpoints)
    there = hosts.of_main(
        lambda: [checkpoints.named(step, files="arrays/") for step in STEPS.value or map(str, checkpoints.steps())]
    )
    steps = sorted(set(there))
    if not steps:
        raise BadInput(f"{folder.checkpoints} has no complete step.")
    with hosts.agreed():
        pool = sandbox_pool(config)

    def players_of(step: int) -> Players:
        parts.restore(checkpoints, step)
        return parts.players

    with pool as sandbox:
        asked = held_out(config, parts, SPLIT.value, samples=1)
        measured = cross_play(asked, steps, players_of, Grader(sandbox), hosts)
    ids = [question.id for question in asked.questions]
    evaluation = summary(measured, steps[-1], f"cross_play_{SPLIT.value}", ids)
    hosts.of_main(lambda: write_evaluation(folder, f"cross_play_{SPLIT.value}", evaluation))
    if hosts.is_main:
        Console().print(_table(evaluation, steps))


def _table(evaluation: Mapping[str, Any], steps: list[int]) -> Table:
    metrics = evaluation["metrics"]
    title = f"right tests that fail the program, in %; {evaluation['questions']} questions of the {SPLIT.value} split"
    table = Table("Code LLM of step", "fails its check", title=title, title_justify="left")
    for step in steps:
        table.add_column(f"Test LLM of {step}", justify="right")
    for step, row in zip(steps, matrix(metrics, "kill", steps), strict=True):
        wrong = 1 - metrics[f"code_pass_at_1_step_{step}"]["mean"]
        table.add_row(str(step), f"{100 * wrong:.1f}", *(f"{100 * share:.1f}" for share in row))
    return table


if __name__ == "__main__":
    program.run(main, argument="RUN")
