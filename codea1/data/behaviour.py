"""What our own generated programs do, found by running them in this process.

Only for programs that `codea1.data.compositions` wrote. Programs that a policy wrote go to the sandbox.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from codea1.data.compositions import ENTRY_POINT


class _Raised:
    """The outcome of a call that raised, equal to no value."""

    def __repr__(self) -> str:
        return "RAISED"


RAISED = _Raised()


@lru_cache(maxsize=1 << 16)
def compiled(program: str) -> Callable[..., Any]:
    """The function that a trusted program defines."""
    namespace: dict[str, Any] = {}
    exec(program, namespace)
    return namespace[ENTRY_POINT]


def outcome(program: str, arguments: tuple) -> Any:
    """The value of one call, or RAISED. No generated program changes its arguments."""
    try:
        return compiled(program)(*arguments)
    except (ValueError, IndexError, TypeError, ZeroDivisionError):
        return RAISED


def behaviour(program: str, inputs: Iterable[tuple]) -> tuple[Any, ...]:
    """The outcomes on all inputs, in order."""
    return tuple(outcome(program, arguments) for arguments in inputs)


def assert_line(arguments: tuple, value: Any) -> str:
    """The test as the policies write it: assert f([1, 2]) == 3."""
    return f"assert {ENTRY_POINT}({', '.join(map(repr, arguments))}) == {value!r}"
