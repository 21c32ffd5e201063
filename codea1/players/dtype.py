"""The dtype of products where a config leaves it to the machine."""

import functools
import timeit
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp

_CPU = Path("/proc/cpuinfo")
_SIZES = 256, 1024, 4096  # rows, inputs and outputs of a product that is timed


def auto_dtype(of_run: Mapping | None) -> tuple[str, str]:
    """Returns the dtype that "auto" is here, and why.

    Args:
      of_run: the config of the same run when it began, which a run that goes on keeps; None of a run that begins.
    """
    if of_run:
        return of_run["model"]["dtype"], "as when the run began"
    return fastest_dtype(jax.devices()[0].platform)


@functools.cache
def fastest_dtype(platform: str) -> tuple[str, str]:
    """Returns in which dtype products are faster on a platform, and how that is known."""
    if platform != "cpu":
        return "bfloat16", f"this is a {platform.upper()}"
    if _CPU.exists() and " amx_bf16" in _CPU.read_text():
        return "bfloat16", "this CPU has AMX"
    ratio = _seconds("bfloat16") / _seconds("float32")
    dtype = "bfloat16" if ratio < 1 else "float32"
    return dtype, f"on this CPU, which has no AMX, a product in bfloat16 takes {ratio:.2f} times as long as in float32"


def _seconds(dtype: str) -> float:
    """Returns the least seconds of ten products."""
    rows, inputs, outputs = _SIZES
    factors = jnp.ones((rows, inputs), dtype), jnp.ones((inputs, outputs), dtype)
    multiply = jax.jit(functools.partial(jnp.matmul, preferred_element_type=jnp.float32))
    jax.block_until_ready(multiply(*factors))
    return min(timeit.repeat(lambda: jax.block_until_ready(multiply(*factors)), repeat=10, number=1))
