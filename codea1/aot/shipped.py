"""The configs that are shipped for TPU slices: those files of configs/ that list the arguments they are for."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from ml_collections import ConfigDict

from codea1.runtime.errors import BadInput

FOLDER = Path(__file__).resolve().parents[2] / "configs"


def configs() -> Iterator[tuple[str, ConfigDict]]:
    """Each config with its name, "code_a1:size=1.5b,topology=v5e-16". Raises BadInput where configs/ is not there."""
    paths = sorted(FOLDER.glob("*.py"))
    if not paths:
        raise BadInput(f"{FOLDER} holds no configs: --all needs a checkout of the repository.")
    for path in paths:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for arg in getattr(module, "SLICES", ()):
            yield f"{path.stem}:{arg}" if arg else path.stem, module.get_config(arg)
