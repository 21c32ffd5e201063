"""The paper's experiments, the arms of studies/paper.toml: the folders of one, what they measured, and its commands."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any

from codea1.data.sources import CLASSIC, world_of
from codea1.lab.study.declaration import BASE, STUDIES, SUITES, Arm, Study, Trial, published_size, read_study
from codea1.lab.study.results import CHOICE, Result, Results, evaluations_of
from codea1.lab.study.schedule import Job
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runtime.errors import BadInput
from codea1.runtime.fields import leaves
from codea1.storage.objects import read

SFT_TEST = "sft_test"  # a Test LLM that was trained on suites, and is only measured
CODE_A1 = "code_a1"
OWN = "own"  # the tester of a run that brings its own Test LLM
TINY = "tiny"  # the size of the demo's models

_RESPONSE_LENGTH = 4096  # tokens of an answer to a benchmark, as in the paper's training: the same for runs and Base

FIELDS = ("method", "frozen", "game.mistake_book", "game.alpha", "game.reward", SUITES)  # tell experiments apart

_START = "test.model"  # by the folder's name: SFT_TEST, or anything else
_PUBLISHED = re.compile(r"qwen2\.5-coder-(\d+(?:\.\d+)?b)-instruct", re.IGNORECASE)
PAPER = read_study(str(STUDIES / "paper.toml"))
ARMS = PAPER.arms


def code_a1_settings(size: str) -> dict[str, Any]:
    """Returns what Code-A1's own config says at a size, and other experiments change."""
    alpha, reward = (0.3, "strict_tests") if size == TINY else (0.5, "official")
    return {"game.alpha": alpha, "game.reward": reward}


def size_of(config: Mapping[str, Any]) -> str:
    """Returns the size of a run's models: "1.5b" where the shape or model folder is called so, "tiny" for the demo's.

    Args:
      config: as `RunFolder.config` holds it. A model folder of another name is its own size.
    """
    player = config.get("code", {})
    if size := published_size(player):
        return size
    if world := world_of(dict(leaves(config)).get("data.test.source", "")):
        return TINY if world == CLASSIC else f"{TINY} {world}"
    return PurePath(player.get("model", "")).name or "unknown"


def experiment_of(config: Mapping[str, Any]) -> Arm | None:
    """Returns the arm that a run with this config is; None where it is none of the paper's."""
    defaults = {"method": CODE_A1, "frozen": "", "game.mistake_book": True, SUITES: ""}
    given = dict(leaves(config))
    own = {name: given.get(name, defaults.get(name)) for name in FIELDS}
    start = PurePath(given.get(_START, "")).parent.name
    own[_START] = SFT_TEST if start.startswith(SFT_TEST) else ""
    own[SUITES] = PurePath(own[SUITES]).name
    code_a1 = {
        "method": CODE_A1,
        "frozen": "",
        _START: "",
        "game.mistake_book": True,
        SUITES: "",
        **code_a1_settings(size_of(config)),
    }
    for each in ARMS.values():
        changed = {"method": each.method, **each.fields, _START: SFT_TEST if each.taught else ""}
        changed[SUITES] = f"suites_{each.suites_of}.jsonl" if each.suites_of else ""
        if _what_matters({**code_a1, **changed}) == _what_matters(own):
            return each
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


def begins_with_base(name: str) -> bool:
    """Returns whether an experiment's runs begin with a measurement of the base models, the Test LLM shown programs."""
    return name in ARMS and ARMS[name].method not in ("self_play", "black_box") and name != SFT_TEST


def size_of_published(model: str) -> str:
    """Returns the size of a model folder that is called as the published ones are; empty for any other."""
    found = _PUBLISHED.fullmatch(PurePath(model).name)
    return found[1].lower() if found else ""


def exported_from(model: str) -> str:
    """Returns the experiment whose run gave its name to a folder on the way to an exported model; empty where none did.

    exported/code_a1_0/test is a model of the experiment code_a1.
    """
    parts = [part.rpartition("_")[0] for part in PurePath(model).parts]
    return next((part for part in parts if part in ARMS), "")


def read_run(path: str) -> Result:
    """Reads a folder, of a training run or of `codea1.benchmark --output`: what was measured there, and what it is of.

    The world of its run is the size of the models, and the arm an experiment or BASE; empty: it is in no table.

    Raises:
      BadInput: it is neither, or a file in it is damaged.
      StorageFailed: a file cannot be read.
    """
    folder = RunFolder.existing(path)
    run, trains = _run_of(folder)
    evaluations = evaluations_of(folder, partial(_chooser, folder, run))
    return Result(run, folder.config, evaluations, read_metrics(folder.metrics), folder=folder, trains=trains)


def _run_of(folder: RunFolder) -> tuple[Trial, bool]:
    """Returns what a folder is of, and whether it is the folder of that training run."""
    if "method" in folder.config:
        arm = experiment_of(folder.config)
        return Trial("", size_of(folder.config), arm.name if arm else "", folder.config.get("seed", 0)), True
    evaluated = folder.config.get("evaluated")
    if not isinstance(evaluated, dict):
        raise BadInput(f"{folder.path} is neither a training run nor an evaluation, by its config.json.")
    if evaluated.get("run"):
        return _run_of(RunFolder.existing(evaluated["run"]))[0], False
    size = size_of_published(evaluated.get("model") or "")
    return Trial("", size, BASE if size else "", seed=0), False


def _chooser(folder: RunFolder, run: Trial, evaluation: Mapping[str, Any]) -> str:
    """Returns whose Test LLM chose, by the folders of both evaluations; empty for no choice, "?" where unknown."""
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
    if size := size_of_published(tester):
        return BASE if size == run.world else "?"
    arm = exported_from(tester)
    is_of_another_seed = arm == run.arm and f"{arm}_{run.seed}" not in PurePath(tester).parts
    return "?" if is_of_another_seed else arm or "?"


def collected(runs: Sequence[Result]) -> Results:
    """Returns those that are in a table.

    Raises BadInput: two are the same experiment with the same seed, or an evaluation is of another such run.
    """
    known: dict[Trial, Result] = {}
    for each in (each for each in runs if each.trains and each.run.arm):
        if each.run in known:
            both, title = f"{known[each.run].name} and {each.name}", ARMS[each.run.arm].title
            raise BadInput(f"{both} are both {title} with seed {each.run.seed}: give one of them.")
        known[each.run] = each
    for each in (each for each in runs if not each.trains and each.run in known):
        evaluated, trained = each.folder and each.folder.config["evaluated"].get("run"), known[each.run].folder
        if evaluated and trained and RunFolder.existing(evaluated).path != trained.path:
            raise BadInput(f"{each.name} is an evaluation of {evaluated}, and not of {known[each.run].name}.")
    return Results(given=[each for each in runs if each.run.arm])


@dataclass(frozen=True)
class Workplace:
    """Where experiments run: the study with its config, and the folder that gets the runs."""

    study: Study
    workdir: str = "runs/tables"

    def trained(self, experiment: str) -> list[Job]:
        """Returns the training jobs that fill a row of a table, without what they wait for."""
        # Every run begins with the measurement of the base models.
        own = CODE_A1 if experiment == BASE else experiment
        runs = {run.name: run for run in self.study.all_runs() if run.arm == own}
        return [job for job in self.study.jobs([*runs.values()], self.workdir) if job.name in runs]

    @property
    def all_command(self) -> str:
        """The command that runs every job."""
        words = ("codea1.lab", "study", "studies/paper.toml", f"--config={self.study.config}")
        return shlex.join(("python", "-m", *words, f"--workdir={self.workdir}"))

    def evaluate(self, benchmark: str, run: str = "", tester: str = "") -> str:
        """Returns the command that measures a player of a run, or without one of the base models, on a benchmark.

        Args:
          tester: whose Test LLM chooses among the samples: OWN, BASE or an experiment, see `exported_from`.
        """
        words = ["-m", "codea1.benchmark", f"--run={run}" if run else f"--model={self.study.model}"]
        words += [f"--benchmark={benchmark}", "--file=FILE", f"--max_response_length={_RESPONSE_LENGTH}"]
        output = "" if run else f"{self.workdir}/{BASE}"
        if tester == OWN:
            words.append("--best_of=own")
        elif tester:
            words.append(f"--best_of={self.study.model if tester == BASE else self._exported(tester)}")
            output = f"{run or f'{self.workdir}/{BASE}'}_with_tests_of_{tester}"
        return shlex.join(["python", *words, *([f"--output={output}"] if output else [])])

    def export(self, tester: str, run: str) -> str:
        """Returns the command that writes the Test LLM of a run, one of the first seed, where `evaluate` reads it."""
        words = ("-m", "codea1.export", f"--run={run}", "--player=test", f"--output={self._exported(tester)}")
        return shlex.join(("python", *words))

    def _exported(self, tester: str) -> str:
        return f"{self.workdir}/exported/{self.trained(tester)[0].name}/test"
