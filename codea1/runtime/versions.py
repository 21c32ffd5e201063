"""What runs here: versions of this package and of those it stands on, and the machine."""

import contextlib
import hashlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

_SETTINGS = (  # variables of the environment that change numbers or what is drawn
    *("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NVIDIA_TF32_OVERRIDE", "JAX_DEFAULT_MATMUL_PRECISION"),
    *("JAX_DEFAULT_PRNG_IMPL", "JAX_THREEFRY_PARTITIONABLE", "JAX_RANDOM_SEED_OFFSET"),
)


def versions() -> dict[str, str]:
    """Returns what runs here: codea1, with the commit of a checkout; JAX; Python; a digest of all packages."""
    root, there = Path(__file__).parents[2], {package.name: package.version for package in metadata.distributions()}
    commit = ""
    if (root / ".git").exists():
        with contextlib.suppress(OSError):  # there is no git
            describe = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
            commit = subprocess.run(describe, capture_output=True, text=True).stdout.strip()
    packages = "\n".join(sorted(f"{name}=={version}" for name, version in there.items() if name != "codea1"))
    return {
        "codea1": " ".join(filter(None, (there.get("codea1", "not installed"), commit))),
        "jax": there.get("jax", "not installed"),
        "python": platform.python_version(),
        "packages": hashlib.sha256(packages.encode()).hexdigest()[:12],
    }


def machine() -> dict[str, str]:
    """Returns on what and how it runs, as far as that decides numbers. Starts the devices."""
    import jax

    devices = jax.devices()
    settings = [f"{name}={os.environ[name]}" for name in _SETTINGS if os.environ.get(name)]
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "devices": f"{len(devices)} x {devices[0].device_kind}",
        "settings": " ".join(settings) or "none",
    }
