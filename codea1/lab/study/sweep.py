"""A study of a few config fields, each over some values: every combination is an arm, over seeds."""

import itertools
import re
from collections.abc import Sequence

from codea1.config import validate
from codea1.lab.study.declaration import Arm, Stage, Study, published_size
from codea1.runtime.command import read_config
from codea1.runtime.errors import BadInput

_SWEPT = re.compile(r"config\.([\w.]+)=(.+)")
_COMMA = re.compile(r",(?![^(]*\))")  # none of a tuple's


def sweep_study(config: Sequence[str], swept: Sequence[str], seeds: int) -> Study:
    """Returns the study of every combination of values, each compared with the first; every run's config was read.

    Runs are measured on the validation questions of the config, and kept.

    Args:
      config: --config and each --config.FIELD of all runs.
      swept: fields with their values, such as "config.game.alpha=0.1,0.3".
      seeds: how many runs each combination has, from seed 0.

    Raises BadInput: names the field that is not one, cannot be swept, or has a value that it cannot have.
    """
    values = _values(swept)
    base = read_config(validate, config)
    given = config[0].partition("=")[2]
    fixed = dict(word.removeprefix("--config.").split("=", 1) for word in config[1:])
    named = {part.partition("=")[0] for part in given.partition(":")[2].split(",")} | fixed.keys() | values.keys()
    if "seed" in named:
        raise BadInput(f"config.seed is the sweep's own: it runs seeds 0 to {seeds - 1}.")
    arms: dict[str, Arm] = {}
    for combination in itertools.product(*values.values()):
        own = dict(zip(values, combination, strict=True))
        name = ",".join(f"{field}={value}" for field, value in own.items())
        # A name is that of a folder.
        arm = Arm(name.replace("/", "_"), name.replace(",", ", "), method="", fields=fixed | own)
        if arm.name in arms:
            raise BadInput(f"{arm.title} and {arms[arm.name].title} would have one folder, {arm.name}.")
        arms[arm.name] = arm
    first, *others = arms
    stage = Stage(
        "sweep",
        split="validation",
        worlds=("",),
        arms=tuple(arms),
        seeds=tuple(range(seeds)),
        secondary=tuple((other, first) for other in others),
    )
    study = Study(
        f"Sweep of {' and '.join(values)}",
        config=given,
        steps=0,
        arms=arms,
        stages=(stage,),
        start=None if "sft" in named or published_size(base.code) else fixed,
        validation={f"data.test.{name}": base.data.validation[name] for name in ("source", "split", "limit")},
        keeps_runs=True,
    )
    study.require_configs()
    return study


def _values(swept: Sequence[str]) -> dict[str, list[str]]:
    """Returns the values of each field, as they are typed. Raises BadInput as `sweep_study` does."""
    values: dict[str, list[str]] = {}
    for text in swept:
        found = _SWEPT.fullmatch(text)
        if not found:
            raise BadInput(f"--sweep={text} is not of the form --sweep=config.game.alpha=0.1,0.3.")
        field, own = found[1], _COMMA.split(found[2])
        if field.startswith("sft."):
            raise BadInput(f"config.{field} cannot be swept: all runs of a seed have one warm start.")
        if field in values:
            raise BadInput(f"config.{field} is swept twice.")
        if len(set(own)) < len(own):
            raise BadInput(f"config.{field} is swept over {found[2]}: a value comes twice.")
        values[field] = own
    if not values:
        raise BadInput("give --sweep, a field with its values, such as --sweep=config.game.alpha=0.1,0.3.")
    return values
