"""The paper's experiments, the arms of studies/paper.toml: which of them a run's folder is of."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

from codea1.lab.study.declaration import STUDIES, Arm, Trial, read_study
from codea1.lab.study.layouts import BASE, TINY
from codea1.lab.study.results import CHOICE, SUITES, Result, evaluations_of, size_of
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runtime.errors import BadInput
from codea1.runtime.settings import leaves
from codea1.storage.objects import read

SFT_TEST = "sft_test"  # a Test LLM that was trained on suites, and is only measured
CODE_A1 = "code_a1"
FIELDS = ("method", "frozen", "game.mistake_book", "game.alpha", "game.reward", SUITES)  # tell experiments apart
PAPER = read_study(str(STUDIES / "paper.toml"))
ARMS = PAPER.arms

_START = "test.model"  # by the folder's name: SFT_TEST, or anything else
_PUBLISHED = re.compile(r"qwen2\.5-coder-(\d+(?:\.\d+)?b)-instruct", re.IGNORECASE)


def experiment_of(config: Mapping[str, Any]) -> Arm | None:
    """Returns the arm that a run with this config is; None where it is none of the paper's."""
    plain = {"method": CODE_A1, "frozen": "", "game.mistake_book": True, SUITES: "", _START: ""}
    given = dict(leaves(config))
    settings = {name: given.get(name, plain.get(name)) for name in FIELDS}
    start = PurePath(given.get(_START, "")).parent.name
    settings[_START] = SFT_TEST if start.startswith(SFT_TEST) else ""
    settings[SUITES] = PurePath(settings[SUITES]).name
    # What Code-A1's own config says at a size, and other experiments change.
    alpha, reward = (0.3, "strict_tests") if size_of(config) == TINY else (0.5, "official")
    code_a1 = {**plain, "game.alpha": alpha, "game.reward": reward}
    for arm in ARMS.values():
        changed = {"method": arm.method, **arm.fields, _START: SFT_TEST if arm.taught else ""}
        changed[SUITES] = f"suites_{arm.suites_of}.jsonl" if arm.suites_of else ""
        if _what_matters({**code_a1, **changed}) == _what_matters(settings):
            return arm
    return None


def _what_matters(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that a method reads: fixed tests pay no Test LLM and fill no book."""
    if settings["method"] == "static_tests":
        names = ("method", "frozen", SUITES)
    elif settings["method"] == "golden":
        names = ("method", "frozen")
    elif settings["game.reward"] == "simple":
        names = ("method", "frozen", _START, "game.reward", "game.mistake_book")
    else:
        names = tuple(name for name in settings if name != SUITES)
    return {name: settings[name] for name in names}


def read_run(path: str) -> Result:
    """Reads a folder, of a training run or of `codea1.benchmark --output`: what was measured there, and what it is of.

    Raises:
      BadInput: it is neither, or a file in it is damaged.
      StorageFailed: a file cannot be read.
    """
    folder = RunFolder.existing(path)
    run, size, trains = _run_of(folder)
    evaluations = evaluations_of(folder, partial(_chooser, folder, run, size))
    rows = read_metrics(folder.metrics)
    return Result(run, folder.config, evaluations, rows, folder=folder, size=size, trains=trains)


def _run_of(folder: RunFolder) -> tuple[Trial, str, bool]:
    """Returns what a folder is of, the size of its models, and whether it is the folder of that training run."""
    if "method" in folder.config:
        arm = experiment_of(folder.config)
        return Trial("", arm.name if arm else "", folder.config.get("seed", 0)), size_of(folder.config), True
    evaluated = folder.config.get("evaluated")
    if not isinstance(evaluated, dict):
        raise BadInput(f"{folder.path} is neither a training run nor an evaluation, by its config.json.")
    if evaluated.get("run"):
        return *_run_of(RunFolder.existing(evaluated["run"]))[:2], False
    size = _size_of_published(evaluated.get("model") or "")
    return Trial("", BASE if size else "", seed=0), size, False


def _size_of_published(model: str) -> str:
    """Returns the size of a model folder that is called as the published ones are; empty for any other."""
    published = _PUBLISHED.fullmatch(PurePath(model).name)
    return published[1].lower() if published else ""


def _chooser(folder: RunFolder, run: Trial, size: str, evaluation: Mapping[str, Any]) -> str:
    """Returns whose Test LLM chose, by the folders of both evaluations; empty for no choice, "?" where unknown.

    An exported Test LLM is known by the run that gave its name to a folder on the way: exported/code_a1_0/test.
    """
    benchmark, choice, _ = evaluation["split"].partition(CHOICE)
    if not choice:
        return ""

    def setting(split: str, name: str) -> str:
        """Returns a setting of `codea1.benchmark`, by the folder in which it keeps its samples and verdicts."""
        kept = folder.evaluations / f"{split}_step_{evaluation['step']:06d}"
        return json.loads(read(kept / "config.json"))[name]

    try:
        model, tester = setting(benchmark, "model"), setting(evaluation["split"], "test_model")
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return "?"
    if model == tester:
        return run.arm
    if published := _size_of_published(tester):
        return BASE if published == size else "?"
    exported = [part.rpartition("_")[0] for part in PurePath(tester).parts]
    arm = next((name for name in exported if name in ARMS), "?")
    is_of_another_seed = arm == run.arm and f"{arm}_{run.seed}" not in PurePath(tester).parts
    return "?" if is_of_another_seed else arm


def collected(runs: Sequence[Result]) -> list[Result]:
    """Returns those that are in a table.

    Raises BadInput: two are the same experiment with the same seed, or an evaluation is of another such run.
    """
    known: dict[tuple[str, Trial], Result] = {}
    for result in (result for result in runs if result.trains and result.run.arm):
        place = result.size, result.run
        if place in known:
            both, title = f"{known[place].name} and {result.name}", ARMS[result.run.arm].title
            raise BadInput(f"{both} are both {title} with seed {result.run.seed}: give one of them.")
        known[place] = result
    for result in (result for result in runs if not result.trains and (result.size, result.run) in known):
        trained = known[result.size, result.run]
        evaluated = result.config["evaluated"].get("run")
        if evaluated and RunFolder.existing(evaluated).path != (trained.folder and trained.folder.path):
            raise BadInput(f"{result.name} is an evaluation of {evaluated}, and not of {trained.name}.")
    return [result for result in runs if result.run.arm]
