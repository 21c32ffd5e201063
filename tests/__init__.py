"""Tests. Whoever imports them has the shapes and dtypes checked that `learn` and `models` state: runs check nothing."""

import inspect
from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Has a function refuse and not return arrays of other shapes than it states; its other types are mypy's."""
    arrays = {name: hint for name, hint in function.__annotations__.items() if "jaxtyping" in repr(hint)}
    if not arrays:
        return function
    function.__annotations__ = arrays
    signature = inspect.signature(function)
    check = beartype(function, conf=BeartypeConf(is_pep484_tower=True))  # an int is a float
    if function.__name__ != "__init__":
        return check

    def check_arrays(*args: Any, **kwargs: Any) -> None:
        # JAX makes dataclasses of anything: of shardings, of None.
        values = signature.bind(*args, **kwargs).arguments
        given = [values[name] for name in arrays if values.get(name) is not None]
        if given and all(hasattr(value, "shape") for value in given):
            check(*args, **kwargs)

    return check_arrays


install_import_hook(["codea1.learn", "codea1.models"], "tests.checked")
