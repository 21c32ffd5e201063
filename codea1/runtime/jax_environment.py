"""What the environment tells JAX before it is imported: devices to use, and where compiled functions are kept."""

import importlib.util
import os
import pkgutil
import sys

from codea1.runtime import hosts
from codea1.runtime.errors import BadInput

COMPILED = os.path.expanduser("~/.cache/codea1/jax")  # where compiled functions are kept, by default


def set_up_jax() -> None:
    """Keeps compiled functions per machine, and JAX from starting libtpu where it is only there to compile for TPUs.

    What the environment sets already stands, and GPUs are found as ever. JAX reads the environment when it is imported;
    where it has been, it is configured directly.
    """
    if os.environ.get("JAX_ENABLE_X64", "").lower() in ("1", "true", "t", "yes", "y", "on"):
        raise BadInput("JAX_ENABLE_X64 is set, and nothing here computes in 64 bits: unset it.")
    settings: dict[str, str | float] = {}
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ and os.path.isabs(COMPILED):  # else there is no home folder
        settings["jax_compilation_cache_dir"] = COMPILED
        settings["jax_persistent_cache_min_compile_time_secs"] = 0.5
    is_idle = importlib.util.find_spec("libtpu") is not None and not hosts.has_tpu_chips()
    if is_idle and not os.environ.get("JAX_PLATFORMS"):
        plugins = importlib.util.find_spec("jax_plugins")
        names = [module.name for module in pkgutil.iter_modules(plugins.submodule_search_locations)] if plugins else []
        if all(name.startswith("xla_cuda") for name in names):  # the platforms of other plugins are unknown
            settings["jax_platforms"] = "cuda,cpu" if names else "cpu"
    for name, value in settings.items():
        os.environ[name.upper()] = str(value)
        if jax := sys.modules.get("jax"):
            jax.config.update(name, value)
