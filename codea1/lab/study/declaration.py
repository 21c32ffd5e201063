"""A study as a file declares it before it runs: arms, stages with their seeds, comparisons, tables and figures.

config = "configs/tiny.py"
steps = 60                              # of an arm that names no other number

[arms.frozen]
title = "Code-A1, frozen Test LLM"
fields = {frozen = "test"}              # of the config, dotted; `method` and `steps` are keys of their own

[[stages]]
name = "main"
split = "test"                          # that is reported; "validation" where recipes are chosen
arms = ["code_a1", "frozen"]
seeds = [0, 1, 2]
primary = [["code_a1", "frozen"]]       # is the first above the second?
secondary = []

[start]                                 # of the warm starts; without it the config names the models
fields = {"sft.expert_suites" = 0.1}

Each stage has a table of its arms. `columns` says what is measured, and `tables` and `figures` declare more, as in
paper.toml; `codea1.lab.study.layouts` describes them. The key `fields` of the study is for all arms, and `validation`
for the runs of the validation split, by default so that they do not look at the test split.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from codea1.config import Config
from codea1.config_file import read_config
from codea1.game.methods import METHODS
from codea1.lab.study.layouts import (
    BASE,
    OWN_SPLIT,
    Column,
    CurvesFigure,
    Layout,
    Line,
    Pair,
    declared_columns,
    declared_table,
    published_size,
)
from codea1.lab.study.schedule import Job
from codea1.runtime.errors import BadInput

STUDIES = next(folder for depth in (2, 3) if (folder := Path(__file__).parents[depth] / "studies").is_dir())  # shipped
SPLITS = ("validation", "test")
_VALIDATION = {"data.test.split": "validation", "data.test.limit": 96}


@dataclass(frozen=True)
class Arm:
    """One way to train."""

    name: str
    title: str
    method: str = "code_a1"
    steps: int = 0  # 0: the study's
    fields: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""  # `method=` of the config where that is not the method, and sets the fields itself
    taught: bool = False  # its Test LLM was trained on suites, and is only measured, in a run of one step
    suites_of: str = ""  # whose Test LLM wrote the tests it trains on: BASE, the first arm or a taught one

    @property
    def begins_with_base(self) -> bool:
        """Whether its runs begin with a measurement of the base models, the Test LLM shown programs."""
        return not self.taught and self.method not in ("self_play", "black_box")


@dataclass(frozen=True)
class Stage:
    """Arms over seeds, on one split."""

    name: str
    split: str  # "": the config's test questions, which the names of runs leave out
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    primary: tuple[Pair, ...] = ()
    secondary: tuple[Pair, ...] = ()


@dataclass(frozen=True)
class Trial:
    """One training run of a study, and what a result is of. Stages may share it."""

    split: str
    arm: str
    seed: int

    @property
    def name(self) -> str:
        return _name(self.arm, self.seed, self.split)


@dataclass(frozen=True)
class Study:
    """What a file declares."""

    title: str
    config: str  # file, with its argument after a colon
    steps: int  # 0: the config's
    arms: Mapping[str, Arm]
    stages: tuple[Stage, ...]
    start: Mapping[str, Any] | None  # config fields of the warm starts; None: policies are given
    columns: Mapping[str, Column]
    declared_tables: tuple[Layout, ...]  # none: each stage has one
    figures: tuple[CurvesFigure, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)  # of all arms
    validation: Mapping[str, Any] = field(default_factory=_VALIDATION.copy)  # of runs on the validation split
    results: str = ""  # file of the rows in the workdir; empty: a file next to the declaration
    start_folder: str = "start"  # how names of the warm starts' folders begin
    model: str = ""  # folder of the Test LLM before training, where no warm start makes it

    def runs(self, stage: Stage) -> list[Trial]:
        """Returns the runs of a stage, those of one seed together."""
        return [Trial(stage.split, arm, seed) for seed in stage.seeds for arm in stage.arms]

    def all_runs(self) -> list[Trial]:
        """Returns the runs of all stages."""
        return [run for stage in self.stages for run in self.runs(stage)]

    def tables(self) -> list[Layout]:
        """Returns the tables that are declared, or else one of each stage.

        That has a row for the models before training and for each arm, which is compared as the stage's pairs say.
        """
        columns, tables = tuple(self.columns.values()), list(self.declared_tables)
        for stage in [] if tables else self.stages:
            lines = [Line(BASE, "before training", BASE)]
            for arm in stage.arms:
                against = [second for first, second in (*stage.primary, *stage.secondary) if first == arm]
                lines.append(Line(arm, self.arms[arm].title, arm, (BASE, *against)))
            title = f"{stage.name}: the {stage.split or OWN_SPLIT} split"
            layout = Layout(stage.name, title, tuple(lines), columns, columns)
            tables.append(replace(layout, split=stage.split, seeds=stage.seeds, primary=stage.primary))
        return tables

    def recipe(self, name: str) -> dict[str, Any]:
        """Returns all that decides what a run of an arm does but its seed and split, as JSON holds it."""
        arm = self.arms[name]
        recipe = {"config": self.config, "method": arm.method, "steps": arm.steps or self.steps}
        recipe |= {key: value for key in ("variant", "taught", "suites_of") if (value := getattr(arm, key))}
        start = None if self.start is None else dict(self.start)
        return {**recipe, "fields": {**self.fields, **arm.fields}, "start": start}

    def config_of(self, run: Trial) -> Config:
        """Returns the config that a run is declared to have, in a workdir. Raises BadInput: as its command does."""
        words = self.jobs([run], "workdir")[-1].arguments
        return read_config([word for word in words if word.startswith("--config")])

    def require_configs(self) -> None:
        """Raises BadInput, which names the run: one is declared a config that it cannot have."""
        for run in (run for stage in self.stages for run in self.runs(replace(stage, seeds=stage.seeds[:1]))):
            try:
                self.config_of(run)
            except BadInput as error:
                raise BadInput(f"{run.name}: {error}") from None

    def jobs(self, runs: Sequence[Trial], workdir: str) -> list[Job]:
        """Returns the jobs of runs, each after its warm start, which runs of one seed share.

        A run comes after what its arm needs of other runs: what its Test LLM was taught, or the suites it trains on.
        """
        jobs: dict[str, Job] = {}
        for run in runs:
            arm, needs = self.arms[run.arm], []
            seed: dict[str, Any] = {"seed": run.seed}
            given = seed | {"steps": arm.steps or self.steps or "", "method": arm.variant or arm.method}
            fields = {**self.fields, **({} if arm.variant else arm.fields)}
            started = {}
            if self.start is not None:
                needs, started = [f"start_{run.seed}"], {"sft": f"{workdir}/{self.start_folder}_{run.seed}"}
                words = [self._config(seed), f"--workdir={started['sft']}", *_flags(self.start)]
                jobs.setdefault(needs[0], Job(needs[0], "warm start", ("-m", "codea1.sft", *words)))
            if arm.taught:
                name, folder = f"taught_{run.seed}", f"{workdir}/{arm.name}_model_{run.seed}"
                words = [self._config({**seed, "method": "sft", **started}), f"--workdir={folder}"]
                jobs.setdefault(name, Job(name, "SFT", ("-m", "codea1.sft", *words), tuple(needs)))
                needs, fields = [name], {**fields, "test.model": f"{folder}/model", "steps": 1}
            if arm.suites_of:
                dumped = self._dump(arm.suites_of, run, workdir)
                for job in dumped:
                    jobs.setdefault(job.name, job)
                needs = [*needs, dumped[-1].name]
                given["static_tests"] = f"{workdir}/{needs[-1]}.jsonl"
            if run.split == "validation":  # the test split is not looked at
                fields |= self.validation
            words = [self._config(given | started), f"--workdir={workdir}/{run.name}", *_flags(fields)]
            jobs[run.name] = Job(run.name, "train", ("-m", "codea1.train", *words), tuple(needs))
        return list(jobs.values())

    def _dump(self, source: str, run: Trial, workdir: str) -> list[Job]:
        """Returns the job that dumps a Test LLM's suites for the programs of the first arm, after what it reads."""
        first = replace(run, arm=next(iter(self.arms)), seed=self.stages[0].seeds[0])
        jobs, needs, model = self.jobs([first], workdir), [first.name], ""
        if source == BASE:
            model = self.model or f"{workdir}/{self.start_folder}_{first.seed}/model"
        elif source != first.arm:
            jobs += self.jobs([replace(first, arm=source)], workdir)[:-1]  # all but the run, the last: what it reads
            needs, model = [*needs, f"taught_{first.seed}"], f"{workdir}/{source}_model_{first.seed}/model"
        words = [f"--run={workdir}/{first.name}", *([f"--test_model={model}"] if model else [])]
        name = _name("suites", source, run.split)
        dump = ("-m", "codea1.lab", "dump_tests", *words, f"--output={workdir}/{name}.jsonl")
        return [*jobs, Job(name, "suites", dump, tuple(needs))]

    def _config(self, arguments: Mapping[str, Any]) -> str:
        """Returns the flag of the config, with what the study says of its arguments."""
        path, _, declared = self.config.partition(":")
        given = [declared, *(f"{name}={value}" for name, value in arguments.items() if value != "")]
        return f"--config={path}:{','.join(filter(None, given))}"


def _name(*parts: str | int) -> str:
    return "_".join(filter(None, map(str, parts)))


def _flags(fields: Mapping[str, Any]) -> list[str]:
    return [f"--config.{name}={value}" for name, value in fields.items()]


def with_config(study: Study, given: str) -> Study:
    """Returns the study with another config, a file with its argument after a colon.

    Raises BadInput: the config cannot be read, or has an argument that the study sets.
    """
    arguments = {part.partition("=")[0] for part in given.partition(":")[2].split(",")}
    if planned := sorted(arguments & {"seed", "method", "sft", *(["steps"] if study.steps else [])}):
        raise BadInput(f"config argument {planned[0]} is the study's own: leave it out of --config={given}.")
    config = read_config([f"--config={given}"])
    if published_size(config.code.to_dict()):
        return replace(study, config=given, start=None, model=config.test.model)
    return replace(study, config=given)


def read_study(path: str) -> Study:
    """Reads a declaration. Raises BadInput: names the key that is missing, unknown or of a name that nothing has."""
    file = Path(path) if Path(path).exists() else STUDIES / Path(path).name
    try:
        declared = tomllib.loads(file.read_text())
        arms = {name: Arm(name, **given) for name, given in declared.pop("arms").items()}
        given = declared.pop("stages")
        stages = tuple(Stage(**{key: _frozen(value) for key, value in stage.items()}) for stage in given)
        if (start := declared.pop("start", None)) is not None:
            _check(path, "start", start, ["fields"])
            start = start.get("fields", {})
        titles = {BASE: "Base", **{name: arm.title for name, arm in arms.items()}}
        columns = declared_columns(declared.pop("columns", {}))
        tables = tuple(declared_table(table, columns, titles) for table in declared.pop("tables", ()))
        figures = tuple(CurvesFigure(**figure) for figure in declared.pop("figures", ()))
        read = {"arms": arms, "stages": stages, "start": start, "columns": columns, "figures": figures}
        study = Study(**{**declared, **read, "declared_tables": tables})
    except FileNotFoundError:
        raise BadInput(f"study {path} does not exist.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError, LookupError, AttributeError) as error:
        raise BadInput(f"study {path}: {type(error).__name__}: {error}.") from None
    for figure in figures:
        _check(path, f"figure {figure.name}, arms", figure.arms, arms)
    for arm in arms.values():
        _check(path, f"arms.{arm.name}.method", [arm.method], METHODS)
        if arm.suites_of:
            sources = [BASE, next(iter(arms)), *(name for name, other in arms.items() if other.taught)]
            _check(path, f"arms.{arm.name}.suites_of", [arm.suites_of], sources)
    for stage in stages:
        where = f"stage {stage.name}"
        _check(path, f"{where}, split", filter(None, [stage.split]), SPLITS)
        _check(path, f"{where}, arms", stage.arms, arms)
        for key in ("arms", "seeds", "primary", "secondary"):
            values = getattr(stage, key)
            if twice := [value for value in values if values.count(value) > 1]:
                raise BadInput(f"study {path}: {where}, {key}: {twice[0]!r} comes twice.")
        for pair in (*stage.primary, *stage.secondary):
            _check(path, f"{where}, comparisons", pair, stage.arms)
    return study


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _check(path: str, where: str, names: Iterable[str], known: Any) -> None:
    for name in names:
        if name not in known:
            raise BadInput(f"study {path}: {where}: {name!r} is unknown; known are {', '.join(known)}.")
