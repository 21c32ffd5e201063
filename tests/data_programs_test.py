"""Which program a row means, and which of its functions is under test."""

import pytest

from codea1.data.loader import complete_program, entry_point

HELPED = "def helper(x):\n    return x + 1\n\ndef total(a):\n    return sum(map(helper, a))\n"


def test_a_whole_ground_truth_is_the_program():
    assert complete_program("def total(a):\n'''Sum up.'''", HELPED) == (HELPED, None)


def test_a_bare_body_completes_the_last_function_of_the_problem():
    problem = 'import math\n\ndef poly(x):\n    return x\n\n\ndef root(a):\n    """Find it."""\n'
    body = "    def step(x):\n        return x\n    return step(math.sqrt(a))\n\ndef after():\n    pass\n"
    program, completed = complete_program(problem, body)
    assert program == problem + body
    assert completed == "root"
    script = "def check(candidate):\n    assert candidate(4) == 2"
    assert entry_point(program, completed, script, "poly") == "root"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def f(:\n", "does not parse"),
        ("x = 3\n", "defines no function"),
        ("def f():\n  return '\0'", "does not parse"),
    ],
)
def test_a_ground_truth_that_is_no_program_is_refused(code, reason):
    with pytest.raises(ValueError, match=reason):
        complete_program("Add two numbers.", code)


def test_the_script_tests_what_it_calls():
    by_parameter = "def check(total):\n    assert total([1]) == 2"
    assert entry_point(HELPED, None, by_parameter, "helper") == "total"
    by_other_name = "def check(helper):\n    for inp in [[1]]:\n        assertion(total(*inp), 2)"
    assert entry_point(HELPED, None, by_other_name, "helper") == "total"


def test_the_scripts_own_functions_are_not_under_test():
    script = "def helper(x):\n    return x\n\ndef check(candidate):\n    assert helper(candidate([1])) == 2"
    assert entry_point(HELPED, None, script, "total") == "total"


def test_the_function_under_test_may_itself_be_named_check():
    script = "def check(check):\n    assert check(1) == 2"
    assert entry_point("def check(n):\n    return n + 1", None, script, "check") == "check"
    assert entry_point("def g(n):\n    return n\n\ndef check(n):\n    return g(n)", None, script, "g") == "check"


def test_without_a_script_the_row_says_what_is_tested():
    assert entry_point(HELPED, None, None, "total") == "total"
    with pytest.raises(ValueError, match="'average'"):
        entry_point(HELPED, None, None, "average")


@pytest.mark.parametrize(
    ("script", "reason"),
    [("def test():\n    pass", "no function check"), ("def check(helper):\n    total(", "does not parse")],
)
def test_a_script_that_cannot_judge_is_refused(script, reason):
    with pytest.raises(ValueError, match=reason):
        entry_point(HELPED, None, script, "total")
