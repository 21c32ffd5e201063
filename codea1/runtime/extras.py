"""Packages that only some users need: which extra of pyproject.toml installs each."""

import importlib.util

from codea1.runtime.errors import BadInput

EXTRA_OF = {
    "gcsfs": "gcs",
    "hypothesis": "dev",
    "libtpu": "tpu",
    "matplotlib": "figures",
    "pyarrow": "parquet",
    "tensorflow_datasets": "tfds",
    "wandb": "wandb",
}


def is_installed(package: str) -> bool:
    """Returns whether a package of `EXTRA_OF` can be imported, without importing it."""
    return importlib.util.find_spec(package) is not None


def needs(package: str) -> str:
    """Returns the end of the sentence about what cannot be done without a package of `EXTRA_OF`."""
    return f"needs {package}: in a checkout, pip install -e '.[{EXTRA_OF[package]}]'"


def require(package: str, what: str) -> None:
    """Raises BadInput, which says what `what` needs and how to install it, where a package is missing."""
    if not is_installed(package):
        raise BadInput(f"{what} {needs(package)}.")
