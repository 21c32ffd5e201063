"""What a siege asks a grader to judge: forgeries by family and honest controls, from the TOML files in its folder."""

import ast
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

RIGHT, WRONG = "right", "wrong"  # the families of controls
OWN = "own"  # the source of a forgery of which no report is known
_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Family:
    """Forgeries that work in one way."""

    title: str
    works: str  # how
    defence: str


@dataclass(frozen=True)
class Challenge:
    """A program that a grader judges. All programs but the right controls are wrong."""

    name: str
    family: str  # a key of `families()`, or RIGHT or WRONG for a control
    question: str  # a key of `questions()`
    program: str
    earlier: tuple[str, ...] = ()  # programs that the same process grades before it; their verdicts do not count
    source: str = OWN  # a key of `sources()`, or OWN

    @property
    def is_forgery(self) -> bool:
        return self.family not in (RIGHT, WRONG)


@cache
def sources() -> dict[str, dict[str, str]]:
    """Returns the public reports that forgeries name, each with its text and url."""
    return _read(_FOLDER / "sources.toml")


@cache
def families() -> dict[str, Family]:
    """Returns the families, by the names of their files."""
    read = {path.stem: _read(path) for path in _files()}
    return {name: Family(file["title"], file["works"], file["defence"]) for name, file in read.items()}


@cache
def questions() -> dict[str, dict[str, Any]]:
    """Returns the questions, by their ids, as a grader gets them.

    Each has id, text, kind ("function", "method" or "stdin") and tests. Tests of whole programs have stdin and stdout.
    The others have arguments and expected; they are in `asserts` too, as source, and the question has an entry_point:
    `add`, or `Solution().twoSum`. All values are what JSON can hold.
    """
    return {name: _question(name, table) for name, table in _read(_FOLDER / "questions.toml").items()}


@cache
def attempts() -> tuple[Challenge, ...]:
    """Returns the controls and then the forgeries."""
    made = []
    for question, table in _read(_FOLDER / "questions.toml").items():
        for kind in (RIGHT, WRONG):
            made += [Challenge(f"{kind} {n}", kind, question, code) for n, code in enumerate(table[kind], start=1)]
    for path in _files():
        for row in _read(path)["forgery"]:
            earlier = tuple(row.get("earlier", ()))
            made.append(Challenge(row["name"], path.stem, row["question"], row["program"], earlier, row["source"]))
    return tuple(made)


def _files() -> Sequence[Path]:
    return sorted((_FOLDER / "forgeries").glob("*.toml"))


def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _question(name: str, table: dict[str, Any]) -> dict[str, Any]:
    if "runs" in table:
        return {"id": name, "kind": "stdin", "text": table["text"], "tests": table["runs"]}
    entry_point = table["entry_point"]
    kind = "method" if "." in entry_point else "function"
    parts = {"kind": kind, "text": table["text"], "entry_point": entry_point, "asserts": table["asserts"]}
    return {"id": name, **parts, "tests": [_test(source) for source in table["asserts"]]}


def _test(source: str) -> dict[str, Any]:
    compared: Any = ast.parse(source).body[0]
    call, (expected,) = compared.test.left, compared.test.comparators
    return {"arguments": [ast.literal_eval(argument) for argument in call.args], "expected": ast.literal_eval(expected)}
