"""EvalPlus's own judgement of what a program returned, as evalplus 0.3.1 makes it in `evalplus/eval/__init__.py`.

Exactly equal is right. Where the expected value is a float, or a list or tuple of floats, or the problem has a
tolerance, so is what is of the same type and length and close by `numpy.allclose`. 16 problems have rules of
their own.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from codea1.lab.sandbox.benchmarks import DESCRIBED_BYTES, Description
from codea1.lab.sandbox.child import NO_DIGEST
from codea1.values import contains_nan, decode_exact

FLOAT_ATOL = 1e-6  # where floats are expected and the problem names no tolerance
RTOL = 1e-7
MAX_COMPARED = 1 << 20  # numbers: no honest process describes more, and numpy repeats the smaller of two shapes

# By entry point, of MBPP+ alone.
SETS = frozenset(
    (
        "similar_elements",
        "find_char_long",
        "common_in_nested_lists",
        "extract_singly",
        "larg_nnum",
        "intersection_array",
        "find_dissimilar",
        "Diff",
    )
)
NOT_NONE = frozenset(("check_str", "text_match_three", "text_starta_endb"))
ANYTHING = frozenset(("are_equivalent",))


@dataclass
class Expected:
    """What the ground truth returned for one input."""

    digest: bytes
    seconds: float
    type_name: str = ""
    compared: bytes = b""  # canonical digest, as in `Description`
    is_comparable: bool = False  # it has no NaN, which equals nothing
    is_described: bool = False  # whatever a program's digest, it is asked what the value is: see DESCRIBED_BYTES
    value: object = None  # where numbers that are close to it are right, too


@dataclass
class Recorder:
    """The comparison that accepts all that a ground truth returns, and keeps what judging takes."""

    atol: float
    expected: dict[int, Expected] = field(default_factory=dict)

    def agrees(self, index: int, digest: bytes, seconds: float) -> bool:
        self.expected[index] = Expected(digest, seconds)
        return False

    def accepts(self, index: int, value: Description) -> bool:
        expected = self.expected[index]
        expected.type_name, expected.compared, expected.is_comparable = value.type_name, value.compared, True
        if value.exact:
            try:
                read = _decoded(value)
            except ValueError:
                return False
            expected.is_comparable = not contains_nan(read)
            expected.is_described = bool(value.compared) and len(value.exact) <= DESCRIBED_BYTES
            self.atol = self.atol or FLOAT_ATOL * is_floats(read)  # as `Oracle` has it, from then on
            expected.value = read if self.atol != 0 else None
        return True


class Oracle:
    """The comparison of a program's values with the ground truth's, for one list of inputs."""

    def __init__(
        self, dataset: str, entry_point: str, atol: float, inputs: Sequence[Sequence], expected: Sequence[Expected]
    ) -> None:
        """Takes `dataset`, "humaneval" or "mbpp", and what is `expected` of each of `inputs`."""
        self._special = entry_point if dataset == "mbpp" else ""
        self._is_root = dataset == "humaneval" and entry_point == "find_zero"
        self._inputs, self._expected, self._atol = inputs, expected, atol
        # Of one list of inputs, EvalPlus keeps the tolerance for floats from the first float that is expected on.
        self._first_float = next((i for i, answer in enumerate(expected) if is_floats(answer.value)), len(expected))
        self._needs_value = self._is_root or self._special in NOT_NONE

    def agrees(self, index: int, digest: bytes, seconds: float) -> bool:
        expected = self._expected[index]
        is_asked = self._needs_value or not expected.is_comparable or expected.is_described
        return digest == expected.digest != NO_DIGEST and not is_asked

    def accepts(self, index: int, value: Description) -> bool:
        expected = self._expected[index]
        if self._is_root:
            return _is_root(self._inputs[index], value, self._atol)
        if self._special in ANYTHING:
            return True
        if self._special in NOT_NONE:
            return _agree_on_none(value, expected)
        if expected.is_comparable and value.compared and value.compared == expected.compared:
            return True
        out = _decoded_or_none(value)
        atol = FLOAT_ATOL if self._atol == 0 and index >= self._first_float else self._atol
        with contextlib.suppress(ValueError, OverflowError):  # of inputs for which a rule has no answer
            if self._special and _is_alternative(self._special, self._inputs[index], out, atol):
                return True
        return atol != 0 and value.type_name == expected.type_name and is_close(out, expected.value, atol=atol)


def is_floats(value: Any) -> bool:
    """Returns whether it is a float, or a list or tuple of at least one float and nothing else."""
    if type(value) in (list, tuple) and value:  # and not `Members` of a set
        return all(isinstance(item, float) for item in value)
    return isinstance(value, float)


def is_close(out: Any, expected: Any, *, atol: float) -> bool:
    """Returns whether a value is of the expected type, as long where it has a length, and numerically close."""
    if type(out) is not type(expected) or (isinstance(expected, list | tuple) and len(out) != len(expected)):
        return False
    # Of anything else that has a length numpy makes an array, too: of a range, which takes no room itself, gigabytes.
    if not _holds_numbers(out) or not _holds_numbers(expected):
        return False
    try:
        if np.broadcast(np.asarray(out), np.asarray(expected)).size > MAX_COMPARED:
            return False
        with np.errstate(all="ignore"):
            return bool(np.allclose(out, expected, rtol=RTOL, atol=atol))
    except Exception:  # no numbers, or of another shape
        return False


def _holds_numbers(value: Any) -> bool:
    """Returns whether it is a number, or a list or tuple of such and of further lists and tuples of them."""
    if type(value) in (list, tuple):  # and not `Members` of a set, which are never close to anything
        return all(map(_holds_numbers, value))
    return isinstance(value, int | float | complex)


def _decoded(value: Description) -> object:
    """Decodes the value. Raises ValueError for what is no encoding."""
    if not isinstance(value.exact, bytes):
        raise ValueError("a description without an encoding")
    return decode_exact(value.exact, hashed=False)


def _decoded_or_none(value: Description) -> Any:
    """Decodes the value; None for one that cannot be."""
    try:
        return _decoded(value) if value.exact else None
    except ValueError:
        return None


def _agree_on_none(value: Description, expected: Expected) -> bool:
    is_something = expected.type_name != "builtins.NoneType"
    if value.type_name == "builtins.bool":
        return _decoded_or_none(value) is is_something
    return is_something == (value.type_name != "builtins.NoneType")


def _is_root(arguments: Sequence, value: Description, atol: float) -> bool:
    """Returns whether the value is a root of the polynomial: in HumanEval/32 any is right."""
    try:
        out = _decoded_or_none(value)
        return abs(sum(factor * math.pow(out, i) for i, factor in enumerate(arguments[0]))) <= atol
    except (TypeError, ValueError, OverflowError):
        return False


def _is_alternative(name: str, arguments: Sequence, out: object, atol: float) -> bool:
    """Returns whether the value is another right answer to what some problems leave open."""
    if not isinstance(out, int | float):
        return False
    if name == "sum_div":
        return out == 0
    if name == "surface_Area":  # the height meant is that of the pyramid, not of its faces
        base, height = arguments
        slant = math.sqrt((base / 2) ** 2 + height**2)
        return abs(out - round(base**2 + 4 * (base * slant) / 2)) <= atol
    if name == "digit_distance_nums":  # the shorter number is padded with zeros
        first, second = (str(number) for number in arguments)
        width = max(len(first), len(second))
        digits = zip(first.zfill(width), second.zfill(width), strict=True)
        return out == sum(abs(int(a) - int(b)) for a, b in digits)
    return False
