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
claims = [["Learning pays.", "code_a1", "frozen"]]  # shown where the first is above the second

[start]                                 # of the warm starts; without it the config names the models
fields = {"sft.expert_suites" = 0.1}

An arm may also be `taught`, or train on the `suites_of` a Test LLM or the `tests` of a rule ("statement 7"). A study
may fill the paper's `tables` (paper.toml), and give `fields` to all arms.

Rows of different code are not compared. A row's code is the source at each start of what made its run: one that went
on under other source is compared with none.

Worlds may be missing where the config names the questions; a table `validation` then has the fields by which a run on
the validation split asks those in the place of the test questions.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

from ml_collections import ConfigDict

from codea1.config import validate
from codea1.game.methods import METHODS
from codea1.lab.study.schedule import Job
from codea1.lab.worlds.rules import RULES
from codea1.lab.worlds.worlds import WORLDS
from codea1.runtime.command import read_config
from codea1.runtime.errors import BadInput

BASE = "base"  # the models before training
SUITES = "data.static_tests"  # config field: the file whose tests `static_tests` trains on
STUDIES = next(each for depth in (2, 3) if (each := Path(__file__).parents[depth] / "studies").is_dir())  # shipped
_LEFT_OVER = ("samples", "tensorboard", "checkpoints")  # folders of a run whose row is kept
_VALIDATION = {"data.test.split": "validation", "data.test.limit": 96}
SPLITS = ("validation", "test")
_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?b)(?![a-z])", re.IGNORECASE)
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
    variant: str = ""  # `method=` of the config where that is not the method, and sets the fields itself
    taught: bool = False  # its Test LLM was trained on suites, and is only measured, in a run of one step
    tests: str = ""  # that it trains on: a rule of `codea1.lab.worlds.rules`, and how many tests of each question
    suites_of: str = ""  # whose Test LLM wrote the tests it trains on: BASE, the first arm or a taught one


@dataclass(frozen=True)
class Stage:
    """Arms over worlds and seeds, on one split."""

    name: str
    split: str  # "": the config's own test questions, which the names of runs leave out
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    worlds: tuple[str, ...] = ("",)  # "": the config's own questions
    rungs: tuple[int, ...] = ()  # empty: every arm has every seed
    primary: tuple[Pair, ...] = ()
    secondary: tuple[Pair, ...] = ()
    claims: tuple[tuple[str, str, str], ...] = ()  # text, the arm above, the arm below


@dataclass(frozen=True)
class Trial:
    """One training run of a study: what a row of results is of. Stages may share it."""

    split: str
    world: str
    arm: str
    seed: int

    @property
    def name(self) -> str:
        return _name(self.arm, self.world, self.seed, self.split)


@dataclass(frozen=True)
class Study:
    """What a file declares, or a sweep's command line, whose config says the world, the steps and the method itself."""

    title: str
    config: str  # file, with its argument after a colon
    steps: int  # 0: the config's
    arms: Mapping[str, Arm]
    stages: tuple[Stage, ...]
    start: Mapping[str, Any] | None  # config fields of the warm starts; None: policies are given
    fields: Mapping[str, Any] = field(default_factory=dict)  # of all arms
    validation: Mapping[str, Any] = field(default_factory=_VALIDATION.copy)  # of runs on the validation split
    keeps_runs: bool = False  # with their samples and checkpoints
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of tables
    tables: Sequence[Mapping[str, Any]] = ()  # that run folders, which are kept, fill: `codea1.lab.paper.layouts`
    start_folder: str = "start"  # how names of the warm starts' folders begin
    model: str = ""  # folder of the Test LLM before training, where no warm start makes it

    def runs(self, stage: Stage, arms: Sequence[str], seeds: Sequence[int]) -> list[Trial]:
        """Returns the runs of some arms and seeds of a stage, those of one seed together."""
        return [Trial(stage.split, world, arm, seed) for seed in seeds for world in stage.worlds for arm in arms]

    def all_runs(self) -> list[Trial]:
        """Returns the runs of all stages."""
        return [run for stage in self.stages for run in self.runs(stage, stage.arms, stage.seeds)]

    def folders(self, workdir: str) -> list[str]:
        """Returns the folders of all runs, those of one arm together."""
        order = list(self.arms)
        return [f"{workdir}/{run.name}" for run in sorted(self.all_runs(), key=lambda run: order.index(run.arm))]

    def rungs(self, stage: Stage, score: Callable[[Trial], float]) -> Iterator[list[Trial]]:
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
        recipe |= {name: given for name in ("variant", "taught", "tests", "suites_of") if (given := getattr(own, name))}
        return {
            **recipe,
            "fields": {**self.fields, **own.fields},
            "start": None if self.start is None else dict(self.start),
        }

    def config_of(self, run: Trial) -> ConfigDict:
        """Returns the config that a run is declared to have, in a workdir. Raises BadInput: as its command does."""
        words = self.jobs([run], "workdir")[-1].arguments
        return read_config(validate, [word for word in words if word.startswith("--config")])

    def require_configs(self) -> None:
        """Raises BadInput, which names the run: one is declared a config that it cannot have."""
        for stage in self.stages:
            for run in self.runs(stage, stage.arms, stage.seeds[:1]):
                try:
                    self.config_of(run)
                except BadInput as error:
                    raise BadInput(f"{run.name}: {error}") from None

    def left_over(self, arm: str) -> tuple[str, ...]:
        """Returns the folders that nothing needs of an arm's run once its row is kept.

        Other jobs read the checkpoints of an opponent, and of the first arm where suites are dumped for its programs.
        """
        if self.keeps_runs:
            return ()
        read = {each.opponent for each in self.arms.values()}
        if any(each.suites_of for each in self.arms.values()):
            read.add(next(iter(self.arms)))
        return tuple(name for name in _LEFT_OVER if name != "checkpoints" or arm not in read)

    def jobs(self, runs: Sequence[Trial], workdir: str) -> list[Job]:
        """Returns the jobs of runs, each after its warm start, which runs of one world and seed share.

        A run comes after what its arm needs of other runs: its opponent's of the same world, seed and split, what its
        Test LLM was taught, or the suites that it trains on.
        """
        jobs: dict[str, Job] = {}
        for run in runs:
            arm, needs, place = self.arms[run.arm], [], _name(run.world, run.seed)
            own: dict[str, Any] = {"world": run.world, "seed": run.seed}
            given = own | {"steps": arm.steps or self.steps or "", "method": arm.variant or arm.method}
            fields = {**self.fields, **({} if arm.variant else arm.fields)}
            started = {}
            if self.start is not None:
                needs, started = [f"start_{place}"], {"sft": f"{workdir}/{self.start_folder}_{place}"}
                words = [self._config(own), f"--workdir={started['sft']}", *_flags(self.start)]
                jobs.setdefault(needs[0], Job(needs[0], "warm start", ("-m", "codea1.sft", *words)))
            if arm.taught:
                name, folder = f"taught_{place}", f"{workdir}/{arm.name}_model_{place}"
                words = [self._config({**own, "method": "sft", **started}), f"--workdir={folder}"]
                jobs.setdefault(name, Job(name, "SFT", ("-m", "codea1.sft", *words), tuple(needs)))
                needs, fields = [name], {**fields, "test.model": f"{folder}/model", "steps": 1}
            if arm.suites_of:
                dumped = self._dump(arm.suites_of, run, workdir)
                for job in dumped:
                    jobs.setdefault(job.name, job)
                needs = [*needs, dumped[-1].name]
                given["static_tests"] = f"{workdir}/{needs[-1]}.jsonl"
            if arm.tests:
                rule, count = arm.tests.split()
                name = _name("tests", rule, count, run.world)
                words = [run.world, f"--rule={rule}", f"--count={count}", f"--output={workdir}/{name}.jsonl"]
                jobs.setdefault(name, Job(name, "suites", ("-m", "codea1.lab", "worlds", *words)))
                needs, given["static_tests"] = [*needs, name], f"{workdir}/{name}.jsonl"
            if run.split == "validation":  # the test split is not looked at
                fields |= self.validation
            if arm.opponent:
                trained = replace(run, arm=arm.opponent)
                model, name = f"{workdir}/{trained.name}/test_model", f"{trained.name}_export"
                export = ("-m", "codea1.export", f"--run={workdir}/{trained.name}", "--player=test")
                for job in self.jobs([trained], workdir):
                    jobs.setdefault(job.name, job)
                words = [f"--output={model}", "--dtype=float32"]
                jobs[name] = Job(name, "export", (*export, *words), (trained.name,))
                needs, fields = [*needs, name], {**fields, "test.model": model, "frozen": "test"}
            words = [self._config(given | started), f"--workdir={workdir}/{run.name}", *_flags(fields)]
            jobs[run.name] = Job(run.name, "train", ("-m", "codea1.train", *words), tuple(needs))
        return list(jobs.values())

    def _dump(self, source: str, run: Trial, workdir: str) -> list[Job]:
        """Returns the job that dumps a Test LLM's suites for the programs of the first arm, after what it reads."""
        first = replace(run, arm=next(iter(self.arms)), seed=self.stages[0].seeds[0])
        place = _name(first.world, first.seed)
        jobs, needs, model = self.jobs([first], workdir), [first.name], ""
        if source == BASE:
            model = self.model or f"{workdir}/{self.start_folder}_{place}/model"
        elif source != first.arm:
            jobs += self.jobs([replace(first, arm=source)], workdir)[:-1]
            needs, model = [*needs, f"taught_{place}"], f"{workdir}/{source}_model_{place}/model"
        words = [f"--run={workdir}/{first.name}", *([f"--test_model={model}"] if model else [])]
        name = _name("suites", source, run.world, run.split)
        dump = ("-m", "codea1.lab", "dump_tests", *words, f"--output={workdir}/{name}.jsonl")
        return [*jobs, Job(name, "suites", dump, tuple(needs))]

    def _config(self, arguments: Mapping[str, Any]) -> str:
        """Returns the flag of the config, with what the study says of its arguments."""
        path, _, own = self.config.partition(":")
        given = [own, *(f"{name}={value}" for name, value in arguments.items() if value != "")]
        return f"--config={path}:{','.join(filter(None, given))}"


def _name(*parts: str | int) -> str:
    return "_".join(filter(None, map(str, parts)))


def _flags(fields: Mapping[str, Any]) -> list[str]:
    return [f"--config.{name}={value}" for name, value in fields.items()]


def with_config(study: Study, given: str) -> Study:
    """Returns the study with another config, a file with its argument after a colon.

    Raises BadInput: the config cannot be read, or has an argument that is the study's own.
    """
    arguments = {part.partition("=")[0] for part in given.partition(":")[2].split(",")}
    worlds = any(world for stage in study.stages for world in stage.worlds)
    own = {"seed", "method", "sft", *(["steps"] if study.steps else []), *(["world"] if worlds else [])}
    if planned := sorted(arguments & own):
        raise BadInput(f"config argument {planned[0]} is the study's own: leave it out of --config={given}.")
    config = read_config(validate, [f"--config={given}"])
    if published_size(config.code):
        return replace(study, config=given, start=None, model=config.test.model)
    return replace(study, config=given)


def published_size(player: Mapping[str, Any]) -> str:
    """Returns the size that a player's shape or model folder names, as "1.5b"; empty: codea1.sft makes the model."""
    names = (player.get("shape", ""), Path(player.get("model", "")).name)
    return next((found[1].lower() for name in names if (found := _SIZE.search(name))), "")


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
        if arm.tests and not re.fullmatch(rf"({'|'.join(RULES)}) \d+", arm.tests):
            raise BadInput(f"study {path}: arms.{arm.name}.tests is {arm.tests!r}, not a rule and a number of tests.")
        if arm.suites_of:
            sources = [BASE, next(iter(arms)), *(name for name, each in arms.items() if each.taught)]
            _check(path, f"arms.{arm.name}.suites_of", [arm.suites_of], sources)
    for stage in stages:
        where = f"stage {stage.name}"
        _check(path, f"{where}, split", filter(None, [stage.split]), SPLITS)
        _check(path, f"{where}, worlds", filter(None, stage.worlds), WORLDS)
        _check(path, f"{where}, arms", stage.arms, arms)
        for key in ("worlds", "arms", "seeds", "primary", "secondary"):
            given = getattr(stage, key)
            if twice := [each for each in given if given.count(each) > 1]:
                raise BadInput(f"study {path}: {where}, {key}: {twice[0]!r} comes twice.")
        for pair in (*stage.primary, *stage.secondary):
            _check(path, f"{where}, comparisons", pair, stage.arms)
        for claim in stage.claims:
            if len(claim) != 3:
                raise BadInput(f"study {path}: {where}: claim {claim!r} is not a text, an arm above and an arm below.")
            _check(path, f"{where}, claims", claim[1:], stage.arms)
        if sum(stage.rungs) > len(stage.seeds):
            raise BadInput(f"study {path}: {where}: its rungs take {sum(stage.rungs)} seeds of {len(stage.seeds)}.")
    return study


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _check(path: str, where: str, names: Iterable[str], known: Any) -> None:
    for name in names:
        if name not in known:
            raise BadInput(f"study {path}: {where}: {name!r} is unknown; known are {', '.join(known)}.")
