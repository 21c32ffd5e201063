"""Suites that a script writes: how often they expose a program, and which tests they are made of."""

import random

import pytest

from codea1.game.asserts import parse_assert
from codea1.game.scripts import CONSTANTS, EXPOSURE, RANDOM, Script

PROGRAM = "def f(x):\n    return x >= 16"
TESTS = [parse_assert(f"assert f({x}) == {x > 16}", "f") for x in range(12, 24)]
GRADED = [(test, test.call.text == "f(16)") for test in TESTS]


@pytest.mark.parametrize("exposure", [0.0, 0.3, 1.0])
def test_of_suites_as_many_expose_as_the_exposure_says(exposure):
    rng, script = random.Random(0), Script(EXPOSURE, exposure)
    suites = [script.suite(GRADED, PROGRAM, 4, rng) for _ in range(2000)]
    assert all(len({test.identity for test in suite}) == 4 for suite in suites)
    exposing = [TESTS[4] in suite for suite in suites]
    assert sum(exposing) / 2000 == pytest.approx(exposure, abs=0.03)
    if exposure == 1.0:  # it stands anywhere
        assert len({suite.index(TESTS[4]) for suite in suites}) == 4


@pytest.mark.parametrize("script", [Script(RANDOM), Script(EXPOSURE, 1.0), Script(CONSTANTS)])
def test_a_program_that_no_test_fails_gets_any_tests(script):
    suites = [script.suite([(test, False) for test in TESTS], "def f(x): pass", 4, random.Random(i)) for i in range(99)]
    assert {test.identity for suite in suites for test in suite} == {test.identity for test in TESTS}


def test_constants_are_the_programs_and_their_neighbours_before_others():
    script = Script(CONSTANTS)
    suites = [script.suite(GRADED, PROGRAM, 4, random.Random(i)) for i in range(50)]
    near = {"f(15)", "f(16)", "f(17)"}
    assert all(near < {test.call.text for test in suite} for suite in suites)
    lists = [parse_assert(f"assert f({values}) == 0", "f") for values in ([16, 17], [16, 30], [])]
    two = script.suite([(test, False) for test in lists], PROGRAM, 2, random.Random(0))
    assert {test.call.text for test in two} == {"f([16, 17])", "f([])"}


def test_there_are_no_more_tests_than_there_are():
    assert len(Script(RANDOM).suite(GRADED[:2], PROGRAM, 4, random.Random(0))) == 2
    assert Script(EXPOSURE, 1.0).suite([], PROGRAM, 4, random.Random(0)) == []
