"""TPU slices by name: their chips as devices that can be compiled for, what a chip can do, and the configs for them."""

import os
import re
import runpy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codea1.config import Config
from codea1.config_file import validate
from codea1.runtime.errors import BadInput
from codea1.runtime.extras import require
from codea1.slices import SLICES, split

if TYPE_CHECKING:  # a mistake in a config is reported before JAX is there
    import jax

    from codea1.lab.aot.work import Chip

# Silence libtpu where there is no TPU, and let several processes of one machine load it.
ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_LOG_DIR": "disabled",
}

FOLDER = Path(__file__).resolve().parents[3] / "configs"


@dataclass(frozen=True)
class Topology:
    """A TPU slice, or several of one kind."""

    name: str
    chip: "Chip"
    devices: "Sequence[jax.Device]"  # they can be compiled for, and nothing else


def topology(name: str) -> Topology:
    """Returns the slice called `name`: as Google names it, "v5e-16", or by its shape, "v5e:4x4"; or "2xv5e-16", two.

    Raises:
      BadInput: there is no such slice, or libtpu is not installed.
    """
    import jax
    from jax.experimental import topologies

    from codea1.lab.aot.work import CHIPS

    slices, of_one = split(name)
    shape = SLICES.get(of_one, of_one)
    generation = shape.partition(":")[0]
    if generation not in CHIPS or not re.fullmatch(r"\w+:\d+(x\d+){1,2}", shape):
        raise BadInput(
            f"--topology={name} is unknown; known are {', '.join(SLICES)}, shapes such as v5e:4x4, and 2xv5e-16."
        )
    require("libtpu", "the TPU compiler")
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    options: dict[str, Any] = {"chips_per_host_bounds": (1, 1, 1)} if shape.endswith(":1x1") else {}
    if slices > 1:
        options["num_slices"] = slices
    try:
        description = topologies.get_topology_desc(platform="tpu", topology_name=shape, **options)
    except jax.errors.JaxRuntimeError as error:
        raise BadInput(f"--topology={name} is no slice that libtpu knows: {error}") from None
    return Topology(name, CHIPS[generation], description.devices)


def shipped_configs() -> Iterator[tuple[str, Config]]:
    """Yields the configs that are shipped for slices, files of configs/ that list the arguments they are for.

    Each comes with its name, "code_a1:size=1.5b,topology=v5e-16". Raises BadInput where configs/ is not there.
    """
    paths = sorted(FOLDER.glob("*.py"))
    if not paths:
        raise BadInput(f"{FOLDER} holds no configs: --all needs a checkout of the repository.")
    for path in paths:
        module = runpy.run_path(str(path))
        for arg in module.get("SLICES", ()):
            yield f"{path.stem}:{arg}" if arg else path.stem, validate(module["get_config"](arg))
