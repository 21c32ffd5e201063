"""A reward in a user's file, `FILE.py:NAME`: a plain function, or a class.

What it lacks or misspells is reported before anything slow starts, and what its methods return wrongly when they do.
"""

import inspect
import math
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import combinations
from types import ModuleType
from typing import Any, NoReturn

from codea1.game.answers import ExtractedProgram
from codea1.game.asserts import MarkedAssert
from codea1.game.calls import Call
from codea1.game.methods import own_file
from codea1.game.outcomes import ShownTest, SolutionOutcome, SuiteOutcome
from codea1.game.question import Signature
from codea1.game.rewards import INFRA, REWARDS, OfficialReward, Reward, SolutionReward, SuiteReward
from codea1.runtime import removed
from codea1.runtime.errors import REPORTED, BadInput
from codea1.values.verdict import Verdict

# What a hook returns; of `calls` and `mark`, the items.
_RESULTS: dict[str, type] = {
    "read_program": ExtractedProgram,
    "signature": Signature,
    "calls": Call,
    "mark": MarkedAssert,
    "test_reward": SuiteReward,
    "code_reward": SolutionReward,
}
_MANY = ("calls", "mark")
_NUMBERS = {"test_reward": ("total", "validity", "adversarial", "penalty"), "code_reward": ("total",)}
_SETTINGS = ("alpha", "num_tests", "mutant_weight")  # what a reward gets from config.game


class FunctionReward(OfficialReward):
    """What `reward(program, question, tests)` returns: the program's reward, or also a suite's, where it is a pair.

    The function gets the program's source, the `Question` and a list of `ShownTest`: for the program's reward of all
    its suites and of the Mistake Book, or the dataset's where these pay; for a suite's those of the suite. Suites
    are paid as by OfficialReward where it returns one number.
    """

    function: Callable[..., Any]

    def code_reward(self, solution: SolutionOutcome) -> SolutionReward:
        paid = super().code_reward(solution)
        if paid.masked == INFRA or Verdict.INFRA in solution.golden:
            return replace(paid, total=None, masked=INFRA)
        tests = [*(test for suite in solution.suites for test in suite.tests), *solution.fixed]
        total, _ = self._paid(solution, tests)
        return replace(paid, total=total, masked="")

    def test_reward(self, solution: SolutionOutcome, suite: SuiteOutcome) -> SuiteReward:
        paid = super().test_reward(solution, suite)
        if paid.total is None:
            return paid
        _, of_suite = self._paid(solution, [*suite.tests])
        return paid if of_suite is None else replace(paid, total=of_suite, terms=(0.0, 0.0, 0.0))

    def _paid(self, solution: SolutionOutcome, tests: list[ShownTest]) -> tuple[float, float | None]:
        function = type(self).function
        result = function(solution.program, solution.question, tests)
        pair = result if isinstance(result, tuple) else (result,)
        if len(pair) not in (1, 2) or not all(map(_is_finite, pair)):
            where = f"{_place('', function)}: {function.__name__} returned {repr(result)[:80]}"
            raise BadInput(f"config.game.reward: {where}; it must be a finite number, or a pair of them.")
        return pair if len(pair) == 2 else (*pair, None)


def register_reward(name: str) -> None:
    """Adds the reward FILE.py:NAME to REWARDS, for which the file is run; of another name checks that it is there.

    Raises BadInput: there is no such reward, or its file cannot be used.
    """
    if ".py:" in name:  # nothing else that reads a run runs the file
        path, _, wanted = name.rpartition(":")
        REWARDS[name] = reward_class(path, wanted, own_file(path, "reward"))
    elif gone := removed.removed_name("the reward", name, removed.REWARDS):
        raise BadInput(gone)
    elif name not in REWARDS:
        known = ", ".join(sorted(other for other in REWARDS if ":" not in other))
        raise BadInput(f"config.game.reward is {name!r}; it must be one of {known}, or FILE.py:NAME.")


def reward_class(path: str, name: str, source: bytes) -> type[Reward]:
    """Runs the source of a file and returns its class `name`, whose hooks raise BadInput instead of what is wrong.

    Raises BadInput: there is no such class, it is no reward, lacks a method or has one that nothing would call, or the
    file raises.
    """
    module = ModuleType(f"reward_file_{len(REWARDS)}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # where dataclasses look for the names of annotations
    try:
        exec(compile(source, path, "exec"), vars(module))
        wanted: Any = vars(module).get(name)
        if inspect.isfunction(wanted):
            wanted = type(name, (FunctionReward,), {"function": staticmethod(wanted), "__module__": module.__name__})
        if is_reward := isinstance(wanted, type) and issubclass(wanted, Reward):
            reward = wanted(0.5, 1, 0.0)
            weights = [*map(float, reward.weights)]
    except Exception as error:
        _refuse(error, path)
    if not is_reward:
        raise BadInput(
            f"config.game.reward: {path} defines no {name} that is a function or a codea1.game.rewards.Reward."
        )
    if len(weights) != 3:
        raise BadInput(f"config.game.reward: {path}: {name}.weights is {weights}; it must be three numbers.")
    _require_read(wanted, path)
    return _checked(wanted, path)


def _require_read(reward: type[Reward], path: str) -> None:
    """Raises BadInput: a public name of a user's class is almost that of a hook, or is a setting, which decides."""
    classes = [base for base in reward.__mro__ if not base.__module__.startswith("codea1.")]
    for name, value in [item for base in classes for item in vars(base).items() if item[0][0] != "_"]:
        if name in _SETTINGS and not inspect.ismemberdescriptor(value):
            wrong = f"{name} is what config.game.{name} says; a class cannot set it"
            raise BadInput(f"config.game.reward: {_place(path, value)}: {wrong}.")
        near = [hook for hook in (*_RESULTS, "weights") if _are_near(name, hook)]
        if near and name not in near:
            wrong = f"{name} is no method that a reward calls; did you mean {near[0]}?"
            raise BadInput(f"config.game.reward: {_place(path, value)}: {wrong}")


def _are_near(name: str, hook: str) -> bool:
    """Returns whether names become one when both lose two letters at most; one, of a short hook such as `mark`."""
    left = max(len(name), len(hook)) - (2 if len(hook) > 5 else 1)
    return not {*combinations(name, left)}.isdisjoint(combinations(hook, left))


def _checked(reward: type[Reward], path: str) -> type[Reward]:
    """Returns the class with every hook checked, those that it inherits too: they read what its others return."""

    def hook(name: str) -> Callable:
        def call(self: Reward, *arguments: Any) -> Any:
            try:
                result = getattr(super(checked, self), name)(*arguments)
                if name in _MANY and isinstance(result, Iterable):
                    result = [*result]
            except REPORTED:
                raise
            except Exception as error:
                _refuse(error, path, getattr(reward, "function", getattr(reward, name)), name)
            if wrong := _wrong(name, result):
                where = _place(path, getattr(reward, name))
                raise BadInput(f"config.game.reward: {where}: {name} returned {repr(result)[:80]}; {wrong}.")
            return result

        return call

    checked: Any = type(reward.__name__, (reward,), {name: hook(name) for name in _RESULTS})
    return checked


def _wrong(name: str, result: Any) -> str:
    """Returns what a hook must return, where that is something else; "" where it is not."""
    kind = _RESULTS[name]
    results = result if name in _MANY else [result]
    if not isinstance(results, list) or not all(isinstance(item, kind) for item in results):
        return f"it must be {'a list of' if name in _MANY else 'of type'} {kind.__name__}"
    for part in _NUMBERS.get(name, ()):
        number, may_be_none = getattr(result, part), part == "total"
        if not _is_finite(number) and not (number is None and may_be_none):
            return f"its {part} must be a finite number{' or None' * may_be_none}"
    return ""


def _is_finite(number: Any) -> bool:
    return isinstance(number, int | float) and math.isfinite(number)


def _place(path: str, value: Any) -> str:
    """Returns the file and line where a method was written, as far as Python knows them."""
    code = getattr(inspect.unwrap(getattr(value, "fget", value)), "__code__", None)
    return f"{code.co_filename}, line {code.co_firstlineno}" if code else path


def _refuse(error: Exception, path: str, method: Any = None, name: str = "") -> NoReturn:
    """Raises BadInput with what the file, or its method `name`, raised and the last of its lines that did."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    where = f"{path}, line {lines[-1]}" if lines else _place(path, method)
    called = f"{name} raised " if name else ""
    raise BadInput(f"config.game.reward: {where}: {called}{type(error).__name__}: {error}.") from None
