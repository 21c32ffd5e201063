"""From a config file and flags to a `Config`: what the file calls, and how both are read and checked.

A config file defines `get_config(arg)`, which returns `default_config()` changed. `arg` is the text after the colon of
`--config=configs/tiny.py:seed=1,method=golden`, read by `parse_arg`; `--config.game.alpha=0.25` overrides one field.
"""

import ast
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from codea1.config import DEFAULT, OF_TEST_LLM, RULES, Config, settings
from codea1.game.methods import METHODS
from codea1.game.reward_files import FunctionReward, register_reward
from codea1.game.rewards import REWARDS
from codea1.runtime import removed
from codea1.runtime.errors import BadInput
from codea1.runtime.settings import leaves, split_changes, unknown_field

# Where shipped configs are: next to the package in the repository, in it where it is installed from a wheel.
CONFIGS = [Path(__file__).parents[depth] / "configs" for depth in (1, 0)]
SIMPLE, SFT = "simple", "sft"  # what `method=` of a shipped config can be besides a method
FIELDS = dict(leaves(DEFAULT.to_dict()))  # defaults by dotted name


def default_config() -> ConfigDict:
    """Returns the config that files change; `validate` checks what they set."""
    return ConfigDict(DEFAULT.to_dict(), type_safe=False)


def parse_arg(arg: str | None, **defaults: Any) -> ConfigDict:
    """Reads `name=value,name=value` against typed defaults.

    Raises:
      BadInput: an unknown name, or a value that is not of its default's type.
    """
    parsed = ConfigDict(defaults)
    for part in filter(None, (arg or "").split(",")):
        name, _, text = part.partition("=")
        if name not in defaults:
            raise BadInput(f"config argument {name!r} is unknown; known are {', '.join(sorted(defaults))}.")
        kind = type(defaults[name])
        try:
            parsed[name] = {"True": True, "False": False}[text] if kind is bool else kind(text)
        except (KeyError, ValueError):
            raise BadInput(f"config argument {name}={text!r} is not of type {kind.__name__}.") from None
    return parsed


def use_method(config: ConfigDict, name: str, static_tests: str = "", own: Collection[str] = ()) -> None:
    """Sets the fields of a method, or of `simple`, by its name. The config file sets those of its `own` recipes.

    Raises BadInput: there is no such method or recipe.
    """
    known = (*METHODS, SIMPLE, *own)
    if gone := removed.removed_name("the method", name, removed.METHODS):
        raise BadInput(gone)
    if name not in known:
        raise BadInput(f"method={name} is unknown; known are {', '.join(known)}.")
    config.data.static_tests = static_tests
    if name in METHODS:
        config.method = name
    if "test" not in METHODS[config.method].roles:  # what a shipped config sets for all methods
        config.update_from_flattened_dict({key: FIELDS[key] for key in OF_TEST_LLM})
    if name == SIMPLE:
        _use_simple(config)


def _use_simple(config: ConfigDict) -> None:
    """Sets what a simpler variant in circulation changes of Code-A1: its rewards, book and update.

    Rewards are those of `codea1.game.rewards.SimpleReward` with weight 0.6. The Mistake Book has at most 2,000 tests in
    all: those that a program failed, of suites paid more than 0.5; they are replayed in proportion to what was paid.
    Plain policy gradient: one optimizer step on all samples of a training step, where the ratio is 1 and nothing is
    clipped, with rewards normalised over the batch of each role; no KL term; AdamW with a constant rate of 1e-5. The
    description says nothing of TOPVAR: the config's stays, and the Test LLM's batch is the suites that it selects.
    """
    config.game.reward = "simple"
    config.game.alpha = 0.6
    config.game.book_policy = "reward"
    config.game.book_total_cap = 2000
    for player in (config.code, config.test):
        player.advantage = "batch"
        player.mini_batches = 1
        player.kl_coefficient = 0.0
        player.learning_rate = 1e-5
        player.warmup_steps = 0
        player.decay = "constant"


def define_config() -> Callable[[], Config]:
    """Defines --config; the returned function reads and validates the config once flags are parsed.

    Raises (the returned function): BadInput, as `read_config` does.
    """
    help = "config file, or the name of a shipped one, with its argument after a colon; --config.FIELD=VALUE overrides"
    flags.DEFINE_string("config", None, help, allow_override=True)
    return lambda: read_config(sys.argv[1:])


def read_config(arguments: Sequence[str]) -> Config:
    """Returns the config of a command that is given these arguments, --config and --config.FIELD.

    Raises:
      BadInput: --config is missing, names no config file, or a field cannot be what the file or a flag sets.
    """
    changes, words = split_changes(arguments, FIELDS)
    given = ""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word.startswith(("--config=", "-config=")) or word in ("--config", "-config"):
            given = word.partition("=")[2] or following
    file = _from_file(given)
    config = file.copy_and_resolve_references()
    config.update_from_flattened_dict({name: _value(name, text) for name, text in changes.items()})
    return validate(config, file if changes else None)


def config_name(given: str) -> str:
    """Returns a value of --config as "code_a1:size=7b" for configs/code_a1.py:size=7b."""
    path, _, arg = given.partition(":")
    stem = os.path.basename(path).removesuffix(".py")
    return f"{stem}:{arg}" if arg else stem


def _value(name: str, text: str) -> Any:
    """Returns what the text of a flag says, by the type of the field's default."""
    if name not in FIELDS:
        if gone := removed.removed_field(name):
            raise BadInput(gone)
        raise unknown_field(name, FIELDS)
    kind = type(FIELDS[name])
    try:
        if kind is bool:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        return ast.literal_eval(text) if kind is tuple else kind(text)
    except (KeyError, ValueError, SyntaxError):
        return text  # `validate` says what type it must be of


def _shipped_configs() -> dict[str, str]:
    return {file.stem: str(file) for folder in CONFIGS for file in sorted(folder.glob("*.py")) if file.stem[0] != "_"}


def _from_file(given: str) -> ConfigDict:
    """Returns what the `get_config` of a config file returns; `given` names it, with its argument after a colon."""
    name, colon, argument = given.partition(":")
    if not name:
        raise BadInput("--config is missing; the demo's is --config=tiny.")
    path = _shipped_configs().get(name, name)
    if not os.path.isfile(path):
        raise BadInput(f"config file {path} does not exist; shipped configs are {', '.join(_shipped_configs())}.")
    if not path.endswith(".py"):
        raise BadInput(f"config file {path} is not Python: a config is a .py file, as tiny.py is.")
    try:
        get_config = runpy.run_path(path, run_name="codea1_config_file").get("get_config")
        if not callable(get_config):
            raise BadInput(f"config file {path} must define get_config(arg), which returns the config.")
        config = get_config(*[argument] * bool(colon))
    except BadInput:
        raise
    except Exception as error:  # a config file is Python, and may raise anything
        lines = [line for line in traceback.extract_tb(error.__traceback__) if line.filename == path]
        where = f", line {lines[-1].lineno}, {lines[-1].line}" if lines else ""
        cause = error.__context__ if isinstance(error.__context__, KeyError) else error  # of a ConfigDict
        reason = " ".join(str(cause.args[0] if isinstance(cause, KeyError) else cause).split())
        raise BadInput(f"config file {path}{where}: {type(error).__name__}: {reason.rstrip('.?')}.") from None
    if not isinstance(config, ConfigDict):
        raise BadInput(f"config file {path}: get_config(arg) must return the config, not {config!r}.")
    return config


def validate(values: ConfigDict, file: ConfigDict | None = None) -> Config:
    """Returns the config of a new run, once all is checked that can be without loading anything.

    Args:
      values: of the fields, as a config file and flags set them.
      file: the same before flags changed it: what it sets may have lost what reads it by that.

    Raises:
      BadInput: names the first field that cannot be or would decide nothing, its value and what it may be.
    """
    config = settings(values.to_dict())
    before = None if file is None else settings(file.to_dict())
    if before and config.method != before.method:
        raise BadInput(
            f"config.method is {config.method!r}; it must be {before.method!r}, as in its file: "
            f"--config=FILE:method={config.method} sets all that a method changes."
        )
    for name in {config.game.reward: None, (before or config).game.reward: None}:
        register_reward(name)
    paying: Any = REWARDS[config.game.reward] if ".py:" in config.game.reward else FunctionReward
    if METHODS[config.method].fixed_tests and not issubclass(paying, FunctionReward):
        named = f"config.game.reward is {config.game.reward!r}"
        raise BadInput(f"{named}; of rewards in a file, method {config.method} reads functions alone.")
    _check_warm_ups(config)
    for name, rule in RULES.items():
        value, default = attrgetter(name)(config), FIELDS[name]
        for where in rule.where:
            is_files = before is not None and value == attrgetter(name)(before) and where.holds(before, name)
            if value != default and not is_files and not where.holds(config, name):
                must = f"it must be {default!r}: it is read only where {where.condition}"
                raise BadInput(f"config.{name} is {value!r}; {must}.")
    return config


def _check_warm_ups(config: Config) -> None:
    """Raises BadInput for a warm-up that outlasts its run; the usual one may, in a trial of fewer steps."""
    most = {f"{name}.warmup_steps": config.steps for name in config.learners} | {"sft.warmup_steps": config.sft.steps}
    most |= {f"{name}.critic.warmup_steps": config.steps - 1 for name in config.learners}
    for key, steps in most.items():
        if (value := attrgetter(key)(config)) > max(steps, FIELDS[key]):
            raise BadInput(f"config.{key} is {value}; it must not exceed {steps}: what it warms up would hardly train.")
