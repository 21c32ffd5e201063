"""Plays saved Code LLMs, and programs from files, against saved Test LLMs: who beats whom, on held-out questions.

  python -m codea1.lab league runs/a1_1 runs/a1_2@best runs/golden_1 --output=runs/league
  python -m codea1.lab league runs/a1_1 --steps=0,10,50,100 --split=test --output=runs/a1_1/league
  python -m codea1.lab league runs/a1_1 --programs=submissions.jsonl --output=runs/league

RUN@STEP is one checkpoint of a run, and RUN its last, or those of --steps; 0 is how the run started. A run keeps its
last two checkpoints and the best; --config.checkpoint.keep_last=100 keeps them all. Every Code LLM writes one program
for each question, and every Test LLM a suite for each program, at temperature 1 and with its own run's prompts. A line
of a file of programs has task_id and solution, as for codea1.benchmark; a question may have several, or none.

Prints a matrix: down the Code LLMs, across the Test LLMs, in each cell the share of programs that a right test fails;
then the ratings that explain it best, and how much they do not explain. With several steps of one run, along a row
stands how much better at breaking the same programs the Test LLM became; down a column, how much harder to break for
the same Test LLM the programs. Writes league.json, with a value for each question, league.md and league.png.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from absl import flags
from etils import epath
from ml_collections import ConfigDict
from rich.console import Console

from codea1.config import config_of
from codea1.game.answers import extract_program
from codea1.game.methods import METHODS
from codea1.lab.commands import require_absent
from codea1.runs.folder import RunFolder
from codea1.runtime import command
from codea1.runtime.errors import BadInput
from codea1.runtime.extras import require
from codea1.runtime.fields import leaves
from codea1.runtime.hosts import Hosts
from codea1.storage.json_lines import plain
from codea1.storage.objects import location, write_atomically

if TYPE_CHECKING:  # they import JAX, which takes seconds; wrong flags are reported before
    from codea1.evaluation.held_out import HeldOut, Programs
    from codea1.evaluation.result_files import PerQuestion
    from codea1.lab.league.league_report import League
    from codea1.lab.opened_run import OpenedRun

STEPS = flags.DEFINE_list("steps", ["last"], 'checkpoints of each RUN: "last", "best" or numbers')
PROGRAMS = flags.DEFINE_list("programs", [], "JSON lines, local or gs://, whose programs play as Code LLMs do")
SPLIT = flags.DEFINE_enum("split", "validation", ["validation", "test"], "questions of the runs' config that are asked")
OUTPUT = flags.DEFINE_string("output", None, "folder for the results, local or gs://")
HOSTS = command.define_hosts()


def main(*runs: str) -> None:
    hosts = HOSTS()
    with hosts.agreed():
        require("matplotlib", "a league's picture")
        if not OUTPUT.value:
            raise BadInput("--output is missing: it names the folder for the results.")
        output = location(OUTPUT.value, "--output")
        folders: dict[epath.Path, RunFolder] = {}
        steps: dict[epath.Path, list[str]] = {}
        asked = [re.split(r"@(last|best|\d+)\Z", run)[:2] for run in runs]
        if all(step for _, *step in asked):
            require_absent("for a RUN without @STEP", STEPS)
        for name, *step in asked:
            folder = RunFolder.existing(name)
            folders[folder.path] = folder
            steps.setdefault(folder.path, []).extend(step or STEPS.value)
        _require_one_game(list(folders.values()))
        files = {location(file, "--programs"): _programs_of(file) for file in PROGRAMS.value}
    league = _play(folders, steps, files, hosts)

    def write() -> None:
        write_atomically(output / "league.png", league.picture())
        write_atomically(output / "league.md", league.markdown())
        write_atomically(output / "league.json", json.dumps(plain(league.json())) + "\n")

    hosts.of_main(write)
    if hosts.is_main:
        Console(width=None if sys.stdout.isatty() else 120).print(league.table())
        print(f"wrote {output}")


def _require_one_game(folders: Sequence[RunFolder]) -> None:
    """Raises BadInput where runs differ in their questions or in the tests of a suite, or none has a Test LLM."""
    methods = [config_of(folder).method for folder in folders]
    if not any("test" in METHODS[method].roles for method in methods):
        raise BadInput(f"no run has a Test LLM: {', '.join(sorted(set(methods)))}.")
    keys = [*(f"data.{SPLIT.value}.{field}" for field in ("source", "split", "limit")), "game.num_tests"]
    first, *others = ({key: dict(leaves(folder.config))[key] for key in keys} for folder in folders)
    for folder, other in zip(folders[1:], others, strict=True):
        if differing := [
            f"config.{key} is {first[key]!r} there and {other[key]!r} here" for key in keys if first[key] != other[key]
        ]:
            raise BadInput(f"{folder.path} cannot play {folders[0].path}: {'; '.join(differing)}.")


def _programs_of(file: str) -> dict[str, list[str]]:
    """Returns the texts with programs of a file by question. Raises BadInput for what is no such file."""
    from codea1.data.rows import file_rows

    programs: dict[str, list[str]] = {}
    for where, row in file_rows(file):
        if not isinstance(row.get("task_id"), str) or not isinstance(row.get("solution"), str):
            raise BadInput(f"{where}: task_id and solution are not both text.")
        programs.setdefault(row["task_id"], []).append(row["solution"])
    return programs


def _play(
    folders: Mapping[epath.Path, RunFolder],
    steps: Mapping[epath.Path, Sequence[str]],
    files: Mapping[epath.Path, Mapping[str, Sequence[str]]],
    hosts: Hosts,
) -> "League":
    """Plays all games; a run is opened twice, so that no two are in memory at once.

    Args:
      folders: of the runs, by path.
      steps: names of each run's checkpoints.
      files: texts with programs by question, of each file.

    Raises BadInput: a run or a file cannot be used, or the sandbox judges nothing.
    """
    from codea1.evaluation.held_out import evaluate_tests, one_program_each, pass_rates
    from codea1.lab.league.league_report import League
    from codea1.lab.paper.report import short_name

    names = {path: short_name(path, [*folders, *files]) for path in (*folders, *files)}
    sandbox = config_of(next(iter(folders.values()))).sandbox  # one judge for all
    programs: dict[str, Programs] = {}
    for path in folders:
        with _opened(path, steps[path], sandbox, hosts) as (opened, asked):
            for step in _steps(opened, "code"):
                opened.restore(step)
                programs[f"{names[path]}@{step}"] = one_program_each(asked, opened.parts.players["code"])
    ids = [question.id for question in asked.questions]
    with hosts.agreed():
        for path, own in files.items():
            if own.keys().isdisjoint(ids):
                raise BadInput(f"{path} has no program for the {len(ids)} questions of the {SPLIT.value} split.")
            programs[names[path]] = [
                [extract_program(text, each.entry_point).source for text in own.get(each.id, ())]
                for each in asked.questions
            ]
    failing: list[np.ndarray] = []
    scores: dict[str, list[PerQuestion]] = {}  # of a Test LLM, against each of `programs`
    for path, folder in folders.items():
        if "test" not in METHODS[folder.config["method"]].roles:
            continue
        with _opened(path, steps[path], sandbox, hosts) as (opened, asked):
            failing = failing or [
                1 - np.array(pass_rates(asked, own, opened.grader, hosts)) for own in programs.values()
            ]
            for step in _steps(opened, "test"):
                opened.restore(step)
                test = opened.parts.players["test"]
                scores[f"{names[path]}@{step}"] = [
                    evaluate_tests(asked, test, opened.grader, hosts, own) for own in programs.values()
                ]
    kills, validity = (
        np.swapaxes([[score[metric] for score in own] for own in scores.values()], 0, 1)
        for metric in ("test_strict_kill", "test_validity")
    )
    return League(SPLIT.value, ids, list(programs), list(scores), kills, validity, np.array(failing))


@contextmanager
def _opened(
    path: epath.Path, steps: Sequence[str], sandbox: ConfigDict, hosts: Hosts
) -> "Iterator[tuple[OpenedRun, HeldOut]]":
    """Opens a run with the limits of `sandbox`, and its questions without their mutants."""
    from codea1.evaluation.held_out import HeldOut
    from codea1.lab.opened_run import opened_run

    def config_for(folder: RunFolder) -> ConfigDict:
        config = config_of(folder)
        config.sandbox = sandbox
        return config

    with opened_run(str(path), steps, hosts, config_for) as opened:
        questions = [replace(question, mutants=()) for question in opened.parts.questions(SPLIT.value)]
        yield opened, HeldOut.of_config(opened.config, opened.parts.rules, SPLIT.value, questions, samples=1)


def _steps(opened: "OpenedRun", role: str) -> Sequence[int]:
    """Returns the steps at which a role is played by different weights: a frozen player's are all one."""
    is_frozen = METHODS[opened.config.method].roles[role] == opened.config.frozen
    return opened.steps[:1] if is_frozen else opened.steps


if __name__ == "__main__":
    command.run(main, argument="RUN", many=True)
