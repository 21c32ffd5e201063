"""Plays a run's saved Code LLMs against its saved Test LLMs, on questions that it does not train on.

  python -m codea1.tools.cross_play runs/tiny/code_a1
  python -m codea1.tools.cross_play runs/tiny/code_a1 --steps=10,50,100 --split=test

Prints a matrix: down the steps of the Code LLM, across those of the Test LLM, in each cell the share of programs that a
right test fails. Along a row stands how much better at breaking the same programs the Test LLM became; down a
column, how much harder to break for the same Test LLM the programs. Kept as evaluations/cross_play_SPLIT.json. A run
keeps its last two checkpoints and the best; --config.checkpoint.keep_last=100 keeps what this needs.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags
from ml_collections import ConfigDict
from rich.console import Console
from rich.table import Table

from codea1.config import config_of
from codea1.game.methods import METHODS
from codea1.runs.folder import RunFolder
from codea1.runtime import command
from codea1.runtime.errors import BadInput

if TYPE_CHECKING:
    from codea1.players.player import Player

STEPS = flags.DEFINE_list("steps", None, "checkpoints that play; all that are there")
SPLIT = flags.DEFINE_enum("split", "validation", ["validation", "test"], "questions of the run's config that are asked")
HOSTS = command.define_hosts()


def main(run: str) -> None:
    hosts = HOSTS()
    # Imports JAX, once the flags are checked.
    from codea1.evaluation.held_out import HeldOut, cross_play, kill_matrix
    from codea1.evaluation.result_files import summary, write_evaluation
    from codea1.training.opened_run import opened_run

    with opened_run(run, STEPS.value or [], hosts, _config_with_test_llm) as opened:
        config, parts, steps = opened.config, opened.parts, opened.steps

        def players_of(step: int) -> "Mapping[str, Player]":
            opened.restore(step)
            return parts.players

        asked = HeldOut.of_config(config, parts.rules, SPLIT.value, parts.questions(SPLIT.value), 1)
        measured = cross_play(asked, steps, players_of, opened.grader, hosts)
    ids = [question.id for question in asked.questions]
    evaluation = summary(measured, steps[-1], f"cross_play_{SPLIT.value}", ids)
    hosts.of_main(lambda: write_evaluation(opened.folder, f"cross_play_{SPLIT.value}", evaluation))
    if hosts.is_main:
        Console().print(_table(evaluation, steps, kill_matrix(evaluation["metrics"], steps)))


def _config_with_test_llm(folder: RunFolder) -> ConfigDict:
    config = config_of(folder)
    if "test" not in METHODS[config.method].roles:
        raise BadInput(f"{folder.path} has no Test LLM: its method is {config.method}.")
    return config


def _table(evaluation: Mapping[str, Any], steps: Sequence[int], kills: Sequence[Sequence[float]]) -> Table:
    title = f"right tests that fail the program, in %; {evaluation['questions']} questions of the {SPLIT.value} split"
    table = Table("Code LLM of step", "fails its check", title=title, title_justify="left")
    for step in steps:
        table.add_column(f"Test LLM of {step}", justify="right")
    for step, row in zip(steps, kills, strict=True):
        wrong = 1 - evaluation["metrics"][f"code_pass_at_1_step_{step}"]["mean"]
        table.add_row(str(step), f"{100 * wrong:.1f}", *(f"{100 * share:.1f}" for share in row))
    return table


if __name__ == "__main__":
    command.run(main, argument="RUN")
