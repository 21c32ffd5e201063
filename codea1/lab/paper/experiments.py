"""The paper's experiments: what each changes in a config, how a run of it is recognised, the commands that run it."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from codea1.data.sources import CLASSIC, world_of
from codea1.lab.study.schedule import Job

BASE = "base"  # no experiment: the models before training
SFT_TEST = "sft_test"  # a Test LLM that was trained on suites, and is only measured
CODE_A1 = "code_a1"
TINY = "tiny"  # the size of the demo's models
SUITES = "data.static_tests"  # config field: the file whose tests `static_tests` trains on

FIELDS = ("method", "frozen", "game.mistake_book", "game.alpha", "game.reward", SUITES)  # tell experiments apart

_START = "test.model"  # by the folder's name: SFT_TEST, or anything else
_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?b)(?![a-z])", re.IGNORECASE)
_PUBLISHED = re.compile(r"qwen2\.5-coder-(\d+(?:\.\d+)?b)-instruct", re.IGNORECASE)
_ONE, _THREE, _FIVE = (0,), (0, 1, 2), (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Experiment:
    """One way to train: what it changes in the config of Code-A1, and the seeds `reproduce` trains it on."""

    name: str
    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # config fields, dotted
    argument: str = ""  # `method=` of the shipped configs, where it is not settings["method"]
    seeds: tuple[int, ...] = _ONE
    suites_of: str = ""  # static tests: whose Test LLM wrote them: BASE, SFT_TEST or an experiment's name

    @property
    def method(self) -> str:
        return self.settings.get("method", CODE_A1)

    @property
    def trains_on_fixed_tests(self) -> bool:
        return self.method in ("golden", "static_tests")


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(CODE_A1, "Code-A1", seeds=_FIVE),
        Experiment("golden", "Golden Tests", {"method": "golden"}, seeds=_FIVE),
        Experiment("self_play", "Self-Play", {"method": "self_play"}, seeds=_FIVE),
        Experiment("no_book", "Code-A1 without Mistake Book", {"game.mistake_book": False}, seeds=_THREE),
        Experiment("alpha_0", "Code-A1, alpha = 0", {"game.alpha": 0.0}),
        Experiment("alpha_0.25", "Code-A1, alpha = 0.25", {"game.alpha": 0.25}),
        Experiment("alpha_0.75", "Code-A1, alpha = 0.75", {"game.alpha": 0.75}),
        Experiment("alpha_1", "Code-A1, alpha = 1", {"game.alpha": 1.0}),
        Experiment("black_box", "Code-A1, black-box Test LLM", {"method": "black_box"}),
        Experiment("frozen_code", "Code-A1, frozen Code LLM", {"frozen": "code"}),
        Experiment("frozen_test", "Code-A1, frozen Test LLM", {"frozen": "test"}),
        Experiment("static_base", "RL on suites of the Base Test LLM", {"method": "static_tests"}, suites_of=BASE),
        Experiment("static_sft", "RL on suites of the SFT Test LLM", {"method": "static_tests"}, suites_of=SFT_TEST),
        Experiment("static_a1", "RL on suites of Code-A1's Test LLM", {"method": "static_tests"}, suites_of=CODE_A1),
        Experiment("simple", "The simpler variant", {"game.reward": "simple"}, argument="simple"),
        Experiment(SFT_TEST, "SFT Test LLM", {"frozen": "test", _START: SFT_TEST}, seeds=_FIVE),
    )
}


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
    for name in (player.get("shape", ""), PurePath(player.get("model", "")).name):
        if found := _SIZE.search(name):
            return found[1].lower()
    if world := world_of(value(config, "data.test.source", "")):
        return TINY if world == CLASSIC else f"{TINY} {world}"
    return PurePath(player.get("model", "")).name or "unknown"


def experiment_of(config: Mapping[str, Any]) -> Experiment | None:
    """Returns the experiment that a run with this config is; None where it is none of the paper's."""
    defaults = {"method": CODE_A1, "frozen": "", "game.mistake_book": True, SUITES: ""}
    own = {name: value(config, name, defaults.get(name)) for name in FIELDS}
    start = PurePath(value(config, _START, "")).parent.name
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
    for each in EXPERIMENTS.values():
        suites = {SUITES: suites_name(each.suites_of)} if each.suites_of else {}
        if _what_matters({**code_a1, **suites, **each.settings}) == _what_matters(own):
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
    return name in EXPERIMENTS and EXPERIMENTS[name].method not in ("self_play", "black_box") and name != SFT_TEST


def size_of_published(model: str) -> str:
    """Returns the size of a model folder that is called as the published ones are; empty for any other."""
    found = _PUBLISHED.fullmatch(PurePath(model).name)
    return found[1].lower() if found else ""


def exported_from(model: str) -> str:
    """Returns the experiment whose run gave its name to a folder on the way to an exported model; empty where none did.

    exported/code_a1_0/test is a model of the experiment code_a1.
    """
    parts = [part.rpartition("_")[0] for part in PurePath(model).parts]
    return next((part for part in parts if part in EXPERIMENTS), "")


def value(config: Mapping[str, Any], dotted: str, default: Any = None) -> Any:
    """Returns a field of a config in JSON's form, or `default` where it has none."""
    for name in dotted.split("."):
        if not isinstance(config, Mapping) or name not in config:
            return default
        config = config[name]
    return config


def suites_name(source: str) -> str:
    """Returns the name of the file with a Test LLM's suites, by which a run that trains on them is recognised."""
    return f"suites_{source}.jsonl"


@dataclass(frozen=True)
class Workplace:
    """Where experiments run: the config with its arguments, and the folder that gets the runs."""

    config: str = "configs/tiny.py"
    arguments: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "runs/tables"
    size: str = TINY
    test_model: str = ""  # folder of the Test LLM before training; empty where the warm start makes it

    def jobs(self) -> list[Job]:
        """Returns every job of every experiment, each after what it needs; experiments of most seeds come first."""
        seeds = sorted({seed for each in EXPERIMENTS.values() for seed in each.seeds})
        pairs = [(each, seed) for seed in seeds for each in EXPERIMENTS.values() if seed in each.seeds]
        trained = [self.train(each, seed) for each, seed in sorted(pairs, key=lambda pair: -len(pair[0].seeds))]
        prepared = [job for seed in seeds for job in self._prepare(seed)]
        dumped = [self._dump_suites(each.suites_of) for each in EXPERIMENTS.values() if each.suites_of]
        known = {job.name: job for job in (*prepared, *dumped, *trained)}
        planned: dict[str, Job] = {}

        def add(job: Job) -> None:
            for name in job.needs:
                add(known[name])
            planned.setdefault(job.name, job)

        for job in trained:
            add(job)
        return list(planned.values())

    def jobs_for(self, experiment: str) -> list[Job]:
        """Returns the training jobs that fill a row of a table, without what they wait for."""
        return [self.train(_trained_as(experiment), seed) for seed in _trained_as(experiment).seeds]

    def runs(self) -> list[str]:
        """Returns the folders of all runs."""
        return [self.run(each.name, seed) for each in EXPERIMENTS.values() for seed in each.seeds]

    def run(self, experiment: str, seed: int) -> str:
        """Returns the folder of a run."""
        return f"{self.workdir}/{experiment}_{seed}"

    def folders(self, experiment: str) -> list[str]:
        """Returns the folders of a row's runs."""
        own = _trained_as(experiment)
        return [self.run(own.name, seed) for seed in own.seeds]

    @property
    def all_command(self) -> str:
        """The command that runs every job."""
        given = ",".join(f"{name}={each}" for name, each in self.arguments.items())
        config = f"--config={self.config}:{given}" if given else f"--config={self.config}"
        return shlex.join(("python", "-m", "codea1.lab", "reproduce", config, f"--workdir={self.workdir}"))

    def report(self, runs: Sequence[str]) -> Job:
        """Returns the job that fills the tables from runs."""
        return Job("report", "report", ("-m", "codea1.report", *runs, f"--output={self.workdir}/report"))

    def evaluate(self, benchmark: str, run: str = "", tester: str = "") -> str:
        """Returns the command that measures the Code LLM of a run on a benchmark; of the base models without one.

        Args:
          tester: whose Test LLM chooses among the samples; see `exported_from`.
        """
        words = ["-m", "codea1.evaluate", f"--run={run}" if run else f"--model={self.test_model}"]
        words += [f"--benchmark={benchmark}", "--file=FILE"]
        output = "" if run else f"{self.workdir}/{BASE}"
        if tester:
            words += ["--best_of", f"--test_model={self.test_model if tester == BASE else self._exported(tester)}"]
            output = f"{run or f'{self.workdir}/{BASE}'}_with_tests_of_{tester}"
        return shlex.join(["python", *words, *([f"--output={output}"] if output else [])])

    def export(self, tester: str, run: str) -> str:
        """Returns the command that writes the Test LLM of a run, one of the first seed, where `evaluate` reads it."""
        words = ("-m", "codea1.export", f"--run={run}", "--player=test", f"--output={self._exported(tester)}")
        return shlex.join(("python", *words))

    def train(self, experiment: Experiment, seed: int) -> Job:
        """Returns the job that trains an experiment with one seed, measured before the first step and at the end."""
        fields = {name: each for name, each in experiment.settings.items() if name.startswith(("game.", "frozen"))}
        arguments = {"method": experiment.argument or experiment.method}
        needs = () if self.test_model else (f"start_{seed}",)
        if experiment.argument:
            fields = {}
        if experiment.suites_of:
            arguments["static_tests"] = f"{self.workdir}/{suites_name(experiment.suites_of)}"
            needs += (f"suites_{experiment.suites_of}",)
        if experiment.name == SFT_TEST:  # it is measured, and plays one step in which it learns nothing
            fields |= {"test.model": f"{self._sft_folder(seed)}/model", "steps": 1}
            needs = (f"taught_{seed}",)
        words = [self._config(seed, arguments), f"--workdir={self.run(experiment.name, seed)}"]
        words += [f"--config.{name}={each}" for name, each in fields.items()]
        name = f"{experiment.name}_{seed}"
        return Job(name, "train", ("-m", "codea1.train", *words), needs, experiment.name)

    def _prepare(self, seed: int) -> tuple[Job, Job]:
        """Returns the jobs of the warm start and of the SFT Test LLM."""
        start = ("-m", "codea1.sft", self._config(seed), f"--workdir={self.workdir}/sft_{seed}")
        taught = ("-m", "codea1.sft", self._config(seed, {"method": "sft"}), f"--workdir={self._sft_folder(seed)}")
        needs = () if self.test_model else (f"start_{seed}",)
        return Job(f"start_{seed}", "warm start", start), Job(f"taught_{seed}", "SFT", taught, needs)

    def _dump_suites(self, source: str) -> Job:
        """Returns the job that dumps the tests of a Test LLM, always written for the programs of Code-A1."""
        seed = EXPERIMENTS[CODE_A1].seeds[0]
        words = ["-m", "codea1.lab", "dump_tests", f"--run={self.run(CODE_A1, seed)}"]
        needs = [f"{CODE_A1}_{seed}"]
        if source == BASE:
            words.append(f"--test_model={self.test_model or f'{self.workdir}/sft_{seed}/model'}")
        elif source == SFT_TEST:
            words.append(f"--test_model={self._sft_folder(seed)}/model")
            needs.append(f"taught_{seed}")
        words.append(f"--output={self.workdir}/{suites_name(source)}")
        return Job(f"suites_{source}", "suites", tuple(words), tuple(needs))

    def _exported(self, tester: str) -> str:
        return f"{self.workdir}/exported/{tester}_{EXPERIMENTS[tester].seeds[0]}/test"

    def _sft_folder(self, seed: int) -> str:
        return f"{self.workdir}/{SFT_TEST}_model_{seed}"

    def _config(self, seed: int, arguments: Mapping[str, str] | None = None) -> str:
        own = {"seed": str(seed), **(arguments or {})}
        if arguments and not self.test_model:
            own["sft"] = f"{self.workdir}/sft_{seed}"
        given = ",".join(f"{name}={each}" for name, each in {**self.arguments, **own}.items())
        return f"--config={self.config}:{given}"


def _trained_as(experiment: str) -> Experiment:
    """Returns the experiment whose runs measure a row: every run begins with the measurement of the base models."""
    return EXPERIMENTS[CODE_A1 if experiment == BASE else experiment]
