"""Scripts that write suites in the place of a Test LLM: trivial adversaries, and one whose strength is a number.

They draw from a question's fixed tests, which a rule wrote (`codea1.lab worlds`, `codea1.lab dump_tests`).
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from codea1.game.calls import CallTest

RANDOM = "random"  # any of the tests
CONSTANTS = "constants"  # tests of nothing but the program's constants and their neighbours, and others if they are few
EXPOSURE = "exposure"  # a test that fails the program, with a given probability, and tests that it passes
SCRIPTS = (RANDOM, CONSTANTS, EXPOSURE)

_NUMBER = re.compile(r"(?<!\w)\d+")


@dataclass(frozen=True)
class Script:
    """How suites are drawn."""

    name: str  # of SCRIPTS
    exposure: float = 0.0  # probability that a suite about a program that some test fails holds one such test

    @property
    def reads_verdicts(self) -> bool:
        """Whether it wants to know which tests fail the program."""
        return self.name == EXPOSURE

    def suite(
        self, graded: Sequence[tuple[CallTest, bool]], program: str, count: int, rng: random.Random
    ) -> list[CallTest]:
        """Draws the tests of one suite about a program, at most `count` different ones, in random order.

        `graded` has the question's tests, each with whether it fails the program, which EXPOSURE alone reads.
        """
        if self.name == EXPOSURE:
            first = [test for test, fails in graded if fails]
            first = [rng.choice(first)] if first and rng.random() < self.exposure else []
            rest = [test for test, fails in graded if not fails]
        else:
            numbers = map(int, _NUMBER.findall(program if self.name == CONSTANTS else ""))
            aimed = {str(number + offset) for number in numbers for offset in (-1, 0, 1)}
            first, rest = [], []
            for test, _ in graded:
                asked = _NUMBER.findall(test.call.text)
                (first if asked and aimed.issuperset(asked) else rest).append(test)
        suite = rng.sample(first, min(count, len(first)))
        suite += rng.sample(rest, min(count - len(suite), len(rest)))
        rng.shuffle(suite)
        return suite
