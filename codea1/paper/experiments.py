"""The paper's experiments as data: what each changes in a config, and how a run of it is recognised."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

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


@dataclass(frozen=True)
class Recipe:
    """What Code-A1 itself is at a size, which the other experiments change."""

    alpha: float
    reward: str


_PAPER = Recipe(alpha=0.5, reward="official")
_RECIPES = {TINY: Recipe(alpha=0.3, reward="strict_tests")}


def recipe(size: str) -> Recipe:
    """Returns what Code-A1's own config says at a size."""
    return _RECIPES.get(size, _PAPER)


def size_of(config: Mapping[str, Any]) -> str:
    """Returns the size of a run's models: "1.5b" where the shape or model folder is called so, "tiny" for the demo's.

    Args:
      config: as `RunFolder.config` holds it. A model folder of another name is its own size.
    """
    player = config.get("code", {})
    for name in (player.get("shape", ""), PurePath(player.get("model", "")).name):
        found = _SIZE.search(name)
        if found:
            return found[1].lower()
    is_demo = value(config, "data.test.source") == "procedural"
    return TINY if is_demo else PurePath(player.get("model", "")).name or "unknown"


def experiment_of(config: Mapping[str, Any]) -> Experiment | None:
    """Returns the experiment that a run with this config is; None where it is none of the paper's."""
    own = _identity(config)
    return next((each for each in EXPERIMENTS.values() if _expected(each, size_of(config)) == own), None)


def begins_with_base(name: str) -> bool:
    """Whether an experiment's runs begin with a measurement of the base models, the Test LLM being shown programs."""
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
    """The name of the file in which the suites of a Test LLM are kept, by which a run that trains on them is known."""
    return f"suites_{source}.jsonl"


def _expected(experiment: Experiment, size: str) -> dict[str, Any]:
    own = {
        "method": CODE_A1,
        "frozen": "",
        _START: "",
        "game.mistake_book": True,
        "game.alpha": recipe(size).alpha,
        "game.reward": recipe(size).reward,
        SUITES: suites_name(experiment.suites_of) if experiment.suites_of else "",
    }
    return _what_matters({**own, **experiment.settings})


def _identity(config: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {"method": CODE_A1, "frozen": "", "game.mistake_book": True, SUITES: ""}
    own = {name: value(config, name, defaults.get(name)) for name in FIELDS}
    start = PurePath(value(config, _START, "")).parent.name
    own[_START] = SFT_TEST if start.startswith(SFT_TEST) else ""
    return _what_matters({**own, SUITES: PurePath(own[SUITES]).name})


def _what_matters(settings: dict[str, Any]) -> dict[str, Any]:
    """Without what a method does not read: fixed tests pay no Test LLM and fill no book."""
    if settings["method"] == "static_tests":
        return {name: settings[name] for name in ("method", "frozen", SUITES)}
    if settings["method"] == "golden":
        return {name: settings[name] for name in ("method", "frozen")}
    if settings["game.reward"] == "simple":
        return {name: settings[name] for name in ("method", "frozen", _START, "game.reward", "game.mistake_book")}
    return {name: settings[name] for name in settings if name != SUITES}
