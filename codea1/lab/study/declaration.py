"""A study as a file declares it before it runs: arms, stages with their worlds and seeds, and comparisons.

config = "configs/tiny.py"
steps = 60                              # of an arm that names no other number

[arms.frozen]
title = "Code-A1, frozen Test LLM"
fields = {frozen = "test"}              # of the config, dotted; `method`, `steps` and `opponent` besides

[[stages]]
name = "main"
split = "test"                          # that is reported; "validation" where recipes are chosen
worlds = ["r32"]
arms = ["code_a1", "frozen"]
seeds = [0, 1, 2]
rungs = [1, 2]                          # seeds of each rung; after each, the better half of the arms goes on
primary = [["code_a1", "frozen"]]       # is the first above the second?
secondary = []

[start]                                 # of the warm starts; without it the config names the models
fields = {"sft.expert_suites" = 0.1}

Worlds may be missing where the config names the questions; a table `validation` then has the fields by which a run on
the validation split asks those in the place of the test questions.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

from codea1.game.methods import METHODS
from codea1.lab.study.schedule import Job
from codea1.lab.worlds.worlds import WORLDS
from codea1.runtime.errors import BadInput

_SECONDS = {"warm start": 300.0, "train": 240.0}  # on two idle cores, for the first plan
_LEFT_OVER = ("samples", "tensorboard", "checkpoints")  # folders of a run whose row is kept
_VALIDATION = {"data.test.split": "validation", "data.test.limit": 96}
SPLITS = ("validation", "test")
Pair = tuple[str, str]


@dataclass(frozen=True)
class Arm:
    """One way to train."""

    name: str
    title: str
    method: str = "code_a1"  # "": the config's
    steps: int = 0  # 0: the study's
    fields: Mapping[str, Any] = field(default_factory=dict)
    opponent: str = ""  # arm of two players whose Test LLM, as its run ended, is this arm's from the start, frozen


@dataclass(frozen=True)
class Stage:
    """Arms over worlds and seeds, on one split."""

    name: str
    split: str
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    worlds: tuple[str, ...] = ("",)  # "": the config's own questions
    rungs: tuple[int, ...] = ()  # empty: every arm has every seed
    primary: tuple[Pair, ...] = ()
    secondary: tuple[Pair, ...] = ()


@dataclass(frozen=True)
class Run:
    """One training run of a study: what a row of results is of. Stages may share it."""

    split: str
    world: str
    arm: str
    seed: int

    @property
    def name(self) -> str:
        return "_".join(filter(None, (self.arm, self.world, str(self.seed), self.split)))


@dataclass(frozen=True)
class Study:
    """What a file declares, or a sweep's command line, whose config says the world, the steps and the method itself."""

    title: str
    config: str  # file, with its argument after a colon
    steps: int  # 0: the config's
    arms: Mapping[str, Arm]
    stages: tuple[Stage, ...]
    start: Mapping[str, Any] | None  # config fields of the warm starts; None: policies are given
    validation: Mapping[str, Any] = field(default_factory=_VALIDATION.copy)  # of runs on the validation split
    keeps_runs: bool = False  # with their samples and checkpoints

    def runs(self, stage: Stage, arms: Sequence[str], seeds: Sequence[int]) -> list[Run]:
        """Returns the runs of some arms and seeds of a stage, those of one seed together."""
        return [Run(stage.split, world, arm, seed) for seed in seeds for world in stage.worlds for arm in arms]

    def rungs(self, stage: Stage, score: Callable[[Run], float]) -> Iterator[list[Run]]:
        """Yields the runs of a stage, rung by rung; of a stage without rungs all at once.

        After a rung the better half of the arms is left, by the mean `score` of all runs so far (successive halving,
        Jamieson and Talwalkar 2016); all runs that were yielded must be done then.
        """
        arms, seeds = list(stage.arms), list(stage.seeds)
        first = 0
        for count in stage.rungs or (len(seeds),):
            yield self.runs(stage, arms, seeds[first : first + count])
            first += count
            if stage.rungs:
                means = {arm: mean(map(score, self.runs(stage, [arm], seeds[:first]))) for arm in arms}
                arms = sorted(arms, key=lambda arm: -means[arm])[: -(-len(arms) // 2)]

    def recipe(self, arm: str) -> dict[str, Any]:
        """Returns all that decides what a run of an arm does but its world, seed and split, as JSON holds it."""
        own = self.arms[arm]
        recipe = {"config": self.config, "method": own.method, "steps": own.steps or self.steps}
        if own.opponent:
            recipe["opponent"] = self.recipe(own.opponent)
        return {**recipe, "fields": dict(own.fields), "start": None if self.start is None else dict(self.start)}

    def left_over(self, arm: str) -> tuple[str, ...]:
        """Returns the folders that nothing needs of an arm's run once its row is kept; an opponent has checkpoints."""
        if self.keeps_runs:
            return ()
        opponents = {each.opponent for each in self.arms.values()}
        return tuple(name for name in _LEFT_OVER if name != "checkpoints" or arm not in opponents)

    def jobs(self, runs: Sequence[Run], workdir: str) -> list[Job]:
        """Returns the jobs of runs, each after its warm start, which runs of one world and seed share.

        A run whose arm has an opponent comes after the opponent's run of the same world, seed and split.
        """
        jobs: dict[str, Job] = {}
        for run in runs:
            arm = self.arms[run.arm]
            own: dict[str, Any] = {"world": run.world, "seed": run.seed}
            needs = []
            if self.start is not None:
                start = "_".join(filter(None, ("start", run.world, str(run.seed))))
                words = ["-m", "codea1.sft", self._config(own), f"--workdir={workdir}/{start}", *_flags(self.start)]
                jobs.setdefault(start, Job(start, "warm start", tuple(words), seconds=_SECONDS["warm start"]))
                own["sft"] = f"{workdir}/{start}"
                needs = [start]
            given = self._config(own | {"steps": arm.steps or self.steps or "", "method": arm.method})
            words = ["-m", "codea1.train", given, f"--workdir={workdir}/{run.name}", *_flags(arm.fields)]
            if run.split == "validation":  # the test split is not looked at
                words += _flags(self.validation)
            if arm.opponent:
                trained = replace(run, arm=arm.opponent).name
                model, needs = f"{workdir}/{trained}/test_model", [*needs, f"{trained}_export"]
                export = ("-m", "codea1.export", f"--run={workdir}/{trained}", "--player=test", f"--output={model}")
                jobs |= {job.name: job for job in self.jobs([replace(run, arm=arm.opponent)], workdir)}
                jobs[needs[-1]] = Job(needs[-1], "export", (*export, "--dtype=float32"), (trained,), seconds=20.0)
                words += [f"--config.test.model={model}", "--config.frozen=test"]
            jobs[run.name] = Job(run.name, "train", tuple(words), tuple(needs), run.arm, _SECONDS["train"])
        return list(jobs.values())

    def _config(self, arguments: Mapping[str, Any]) -> str:
        """Returns the flag of the config, with what the study says of its arguments."""
        path, _, own = self.config.partition(":")
        given = [own, *(f"{name}={value}" for name, value in arguments.items() if value != "")]
        return f"--config={path}:{','.join(filter(None, given))}"


def _flags(fields: Mapping[str, Any]) -> list[str]:
    return [f"--config.{name}={value}" for name, value in fields.items()]


def read_study(path: str) -> Study:
    """Reads a declaration. Raises BadInput: names the key that is missing, unknown or of a name that nothing has."""
    try:
        declared = tomllib.loads(Path(path).read_text())
        arms = {name: Arm(name, **given) for name, given in declared.pop("arms").items()}
        given = declared.pop("stages")
        stages = tuple(Stage(**{key: _frozen(value) for key, value in stage.items()}) for stage in given)
        start = declared.pop("start").get("fields", {}) if "start" in declared else None
        study = Study(arms=arms, stages=stages, start=start, **declared)
    except FileNotFoundError:
        raise BadInput(f"study {path} does not exist.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError, KeyError, AttributeError) as error:
        raise BadInput(f"study {path}: {type(error).__name__}: {error}.") from None
    for arm in arms.values():
        _check(path, f"arms.{arm.name}.method", [arm.method], METHODS)
        if arm.opponent:
            others = [name for name, each in arms.items() if name != arm.name and not each.opponent]
            _check(path, f"arms.{arm.name}.opponent", [arm.opponent], others)
    for stage in stages:
        where = f"stage {stage.name}"
        _check(path, f"{where}, split", [stage.split], SPLITS)
        _check(path, f"{where}, worlds", list(filter(None, stage.worlds)), WORLDS)
        _check(path, f"{where}, arms", stage.arms, arms)
        for pair in (*stage.primary, *stage.secondary):
            _check(path, f"{where}, comparisons", pair, stage.arms)
        if sum(stage.rungs) > len(stage.seeds):
            raise BadInput(f"study {path}: {where}: its rungs take {sum(stage.rungs)} seeds of {len(stage.seeds)}.")
    return study


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _check(path: str, where: str, names: Sequence[str], known: Any) -> None:
    for name in names:
        if name not in known:
            raise BadInput(f"study {path}: {where}: {name!r} is unknown; known are {', '.join(known)}.")
