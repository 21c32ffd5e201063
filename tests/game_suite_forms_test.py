"""The forms in which models write tests: what `assert_forms=all` reads of a suite, as data, and what it must not."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1.config_file import default_config
from codea1.game.answers import parse_suite
from codea1.game.asserts import parse_assert
from codea1.values import decode_exact
from configs import code_a1, tiny

METHOD = "Solution().f"


def fenced(*lines: str, fence: str = "```python") -> str:
    return "\n".join([fence, *lines, "```"])


READ = [  # answer of a Test LLM, entry point, and each test read: arguments, answer and, but for plain `==`, the form
    # One assert.
    ("plain", fenced("assert f(1) == 2"), "f", [((1,), 2)]),
    ("message", fenced("assert f(1) == 2, 'one'"), "f", [((1,), 2)]),
    ("turned round", fenced("assert 2 == f(1)"), "f", [((1,), 2)]),
    ("true", fenced("assert f(1)"), "f", [((1,), True, "bool")]),
    ("false", fenced("assert not f(1)"), "f", [((1,), False, "bool")]),
    ("none", fenced("assert f(1) is None"), "f", [((1,), None)]),
    ("identity", fenced("assert f(2) is True", "assert False is f(3)"), "f", [((2,), True, "is"), ((3,), False, "is")]),
    # What Python makes of the answer first.
    ("list", fenced("assert list(f(3)) == [0, 1, 2]"), "f", [((3,), [0, 1, 2], "list")]),
    ("tuple", fenced("assert tuple(f(2)) == (0, 1)"), "f", [((2,), (0, 1), "tuple")]),
    ("set", fenced("assert set(f([1, 1])) == {1}"), "f", [(([1, 1],), {1}, "set")]),
    ("set of a list", fenced("assert set(f([1, 2])) == set([2, 1])"), "f", [(([1, 2],), {1, 2}, "set")]),
    ("sorted", fenced("assert sorted(f('ba')) == ['a', 'b']"), "f", [(("ba",), ["a", "b"], "sorted")]),
    ("sorted on both sides", fenced("assert sorted(f(1)) == sorted([3, 2])"), "f", [((1,), [2, 3], "sorted")]),
    ("wrapped on the right", fenced("assert [1] == list(f(1))"), "f", [((1,), [1], "list")]),
    ("round", fenced("assert round(f(1), 2) == 3.14"), "f", [((1,), 3.14, "round 2")]),
    ("a wrapped name", fenced("r = f(1)", "assert sorted(r) == [1]"), "f", [((1,), [1], "sorted")]),
    # Within a tolerance.
    ("abs", fenced("assert abs(f(2) - 1.5) < 1e-6"), "f", [((2,), 1.5, "within < 1e-06")]),
    ("abs turned round", fenced("assert abs(1.5 - f(2)) <= 0.001"), "f", [((2,), 1.5, "within <= 0.001")]),
    ("abs of a name", fenced("r = f(2)", "assert abs(r - 1.5) < 10 ** -3"), "f", [((2,), 1.5, "within < 0.001")]),
    (
        "abs of math",
        fenced("import math", "assert abs(f(1) - 2 * math.pi) < 1e-9"),
        "f",
        [((1,), 6.283185307179586, "within < 1e-09")],
    ),
    ("isclose", fenced("assert math.isclose(f(2), 2.0, abs_tol=1e-3)"), "f", [((2,), 2.0, "within <= 0.001")]),
    ("numpy's isclose", fenced("assert np.isclose(f(2), 2.0)"), "f", [((2,), 2.0, "within <= 2.0010000000000003e-05")]),
    (
        "numpy's isclose with its tolerances",
        fenced("assert np.isclose(2.0, f(2), rtol=0, atol=1e-3)"),
        "f",
        [((2,), 2.0, "within <= 0.001")],
    ),
    ("isclose as it is", fenced("assert isclose(2.0, f(2))"), "f", [((2,), 2.0, "within <= 2e-09")]),
    ("approx", fenced("assert f(2) == pytest.approx(4)"), "f", [((2,), 4, "within <= 4e-06")]),
    ("approx on the left", fenced("assert approx(4.0, abs=0.01) == f(2)"), "f", [((2,), 4.0, "within <= 0.01")]),
    # What must raise.
    ("raises", fenced("with pytest.raises(ValueError):", "    f(-1)"), "f", [((-1,), True, "raises ValueError")]),
    ("raises in a line", fenced("with raises(KeyError): f({})"), "f", [(({},), True, "raises KeyError")]),
    # Names.
    ("expected", fenced("expected = [1, 2]", "assert f(1) == expected"), "f", [((1,), [1, 2])]),
    ("names of both", fenced("n, expected = 3, 6", "assert f(n) == expected"), "f", [((3,), 6)]),
    (
        "a name inside",
        fenced("x = 1", "assert f([x, x], k={'a': x}) == (x,)"),
        "f",
        [(([1, 1], ("k", {"a": 1})), (1,))],
    ),
    ("an annotated name", fenced("x: int = 1", "assert f(x) == 2"), "f", [((1,), 2)]),
    ("a result and an answer", fenced("got = f(1)", "want = 2", "assert got == want"), "f", [((1,), 2)]),
    ("the value a name had", fenced("x = 1", "y = [x]", "x = 2", "assert f(y) == x"), "f", [(([1],), 2)]),
    ("spread", fenced("a = [1, 2]", "assert f(*a) == 3"), "f", [((1, 2), 3)]),
    (
        "names past an import",
        fenced("x = 1", "from sol import f", "import pytest", "assert f(x) == 2"),
        "f",
        [((1,), 2)],
    ),
    ("names past a docstring", fenced("x = 1", '"""One."""', "assert f(x) == 2"), "f", [((1,), 2)]),
    ("names past a print", fenced("x = 1", "print('x', x)", "assert f(x) == 2"), "f", [((1,), 2)]),
    ("names past another assert", fenced("r = f(1)", "assert isinstance(r, int)", "assert r == 2"), "f", [((1,), 2)]),
    # Methods.
    ("a new object", fenced("assert Solution().f(1) == 2"), METHOD, [((1,), 2)]),
    ("an object", fenced("s = Solution()", "assert s.f(1) == 2"), METHOD, [((1,), 2)]),
    ("a bound method", fenced("f = Solution().f", "assert f(1) == 2"), METHOD, [((1,), 2)]),
    # Without a fence.
    ("a line", "assert f(1) == 2", "f", [((1,), 2)]),
    ("numbered", "1. assert f(1) == 2\n2) assert f(2) == 3", "f", [((1,), 2), ((2,), 3)]),
    ("listed", "- assert f(1) == 2\n* assert f(2) == 3", "f", [((1,), 2), ((2,), 3)]),
    ("back-ticked", "`assert f(1) == 2`", "f", [((1,), 2)]),
    ("numbered and back-ticked", "Tests:\n1. `assert f('`') == 2`: a tick\n", "f", [(("`",), 2)]),
    ("code alone", "x = 1\nassert f(x) == 2\n", "f", [((1,), 2)]),
    # Fences.
    ("unclosed", "Here:\n```python\nx = 1\nassert f(x) == 2", "f", [((1,), 2)]),
    ("py", fenced("assert f(1) == 2", fence="```py"), "f", [((1,), 2)]),
    ("python3", fenced("assert f(1) == 2", fence="```python3"), "f", [((1,), 2)]),
    ("capitals", fenced("assert f(1) == 2", fence="```Python"), "f", [((1,), 2)]),
    ("no language", fenced("assert f(1) == 2", fence="```"), "f", [((1,), 2)]),
    ("a fence in a line", "```python assert f(1) == 2```", "f", [((1,), 2)]),
    ("indented", "1. One:\n   ```python\n   x = 1\n   assert f(x) == 2\n   ```", "f", [((1,), 2)]),
    ("the program first", f"{fenced('def f(n): return n + 1')}\n- `assert f(1) == 2`", "f", [((1,), 2)]),
    ("a fence that the prompt opened", "assert f(\n    1\n) == 2\n```\nIt adds one.", "f", [((1,), 2)]),
    (
        "thoughts that the prompt began",
        f"{fenced('assert f(1) == 9')}\n</think>\n{fenced('assert f(1) == 2')}",
        "f",
        [((1,), 2)],
    ),
    # In functions and classes.
    ("a test", fenced("def test_f():", "    x = 1", "    assert f(x) == 2"), "f", [((1,), 2)]),
    (
        "two tests",
        fenced("def test_a():", "  x = 1", "  assert f(x) == 2", "def test_b():", "  assert f(2) == 3"),
        "f",
        [((1,), 2), ((2,), 3)],
    ),
    ("check", fenced("def check(candidate):", "    assert candidate(1) == 2", "", "check(f)"), "f", [((1,), 2)]),
    ("main", fenced("if __name__ == '__main__':", "    assert f(1) == 2", "    print('ok')"), "f", [((1,), 2)]),
    (
        "a class of tests",
        fenced("class TestF:", "    def test_one(self):", "        assert f(1) == 2"),
        "f",
        [((1,), 2)],
    ),
    (
        "unittest",
        fenced(
            "class TestF(unittest.TestCase):",
            "    def test(self):",
            "        self.assertEqual(f(1), 2)",
            "        self.assertTrue(f(2))",
            "        self.assertIsNone(f(3))",
        ),
        "f",
        [((1,), 2), ((2,), True, "bool"), ((3,), None)],
    ),
    ("unittest, close", fenced("self.assertAlmostEqual(f(1), 0.5, places=3)"), "f", [((1,), 0.5, "within <= 0.0005")]),
    (
        "unittest, raises",
        fenced("with self.assertRaises(TypeError):", "    f('a')"),
        "f",
        [(("a",), True, "raises TypeError")],
    ),
    # What runs, whatever is around it.
    ("if true", fenced("if True: assert f(1) == 2", "else: assert f(2) == 9"), "f", [((1,), 2)]),
    ("main turned round", fenced("if '__main__' == __name__: assert f(1) == 2"), "f", [((1,), 2)]),
    ("a loop that runs", fenced("for _ in range(3):", "    assert f(1) == 2"), "f", [((1,), 2)]),
    ("finally", fenced("try: assert f(1) == 2", "finally: assert f(2) == 3"), "f", [((1,), 2), ((2,), 3)]),
    ("a byte order mark", "\ufeffassert f(1)=='日a';assert f(2) == 2", "f", [((1,), "日a"), ((2,), 2)]),
    ("a decorator", fenced("@pytest.mark.slow", "def test_f():", "    assert f(1) == 2"), "f", [((1,), 2)]),
    ("a name of another block", f"{fenced('x = 1')}\nand\n{fenced('assert f(x) == 2')}", "f", [((1,), 2)]),
    (
        "a broken test beside",
        fenced("def test_f():", "    assert f([1, == 2", "    assert f(2) == 3"),
        "f",
        [((2,), 3)],
    ),
    # What states no value of the function, or one that is not known.
    ("unequal", fenced("assert f(1) != 2"), "f", []),
    ("less", fenced("assert f(1) < 2"), "f", []),
    ("a part", fenced("assert f(1)[0] == 2", "assert len(f(1)) == 2"), "f", []),
    ("negated", fenced("assert not f(1) == 2", "assert not sorted(f(1))"), "f", []),
    ("another function", fenced("assert g(1) == 2", "assert list(g(1)) == [2]", "self.assertEqual(g(1), 2)"), "f", []),
    ("another object", fenced("s = Other()", "assert s.f(1) == 2"), METHOD, []),
    ("wrapped twice", fenced("assert list(set(f(1))) == [2]"), "f", []),
    ("a key", fenced("assert sorted(f(1), key=len) == ['a']"), "f", []),
    ("a loop", fenced("x = 1", "for x in [2, 3]:", "    assert f(x) == 2", "assert f(x) == 3"), "f", []),
    ("a broken loop", fenced("x = 1", "for x in [2, 3]:", "    assert f(x) == 2", "    y = ("), "f", []),
    ("changed in a loop", fenced("x = [1]", "for i in range(3):", "    x.append(i)", "assert f(x) == 2"), "f", []),
    ("changed by a method", fenced("x = [1]", "x.append(2)", "assert f(x) == 2"), "f", []),
    ("changed by a value", fenced("x = [1]", "y = x.pop()", "assert f(x) == 2"), "f", []),
    ("changed by an argument", fenced("x = [1]", "r = f(g(x))", "assert f(x) == 2"), "f", []),
    ("changed by a test", fenced("x = [1]", "def test():", "    x.append(2)", "assert f(x) == 2"), "f", []),
    (
        "changed by a test of tests",
        fenced("x = [1]", "def a():", "  x.pop()", "  def b(): pass", "assert f(x) == 2"),
        "f",
        [],
    ),
    ("changed by a condition", fenced("x = [1]", "if x.pop(): pass", "assert f(x) == 2"), "f", []),
    ("changed in a branch", fenced("x = [1]", "if y:", "    x = [2]", "assert f(x) == 2"), "f", []),
    ("changed in an assert", fenced("x = [1]", "assert x.pop() == 1", "assert f(x) == 2"), "f", []),
    ("changed in place", fenced("x = y = [1]", "assert f(y) == 2", "z = [1]", "z += [2]", "assert f(z) == 2"), "f", []),
    ("changed item", fenced("x = [1]", "x[0] = 2", "assert f(x) == 2"), "f", []),
    ("of another test", fenced("def test_a():", "    x = 1", "def test_b():", "    assert f(x) == 2"), "f", []),
    ("arguments", fenced("x = 1", "def test(*x):", "    assert f(x) == 2"), "f", []),
    ("a fixture", fenced("x = 1", "def test_a(x):", "    assert f(x) == 2"), "f", []),
    ("imported over", fenced("x = 1", "from cases import x", "assert f(x) == 2"), "f", []),
    (
        "a wide tolerance",
        fenced("assert abs(f(1) - 0) < 1e9", "assert abs(f(1) - 5) < 1", "assert f(1) == approx(2, rel=0.5)"),
        "f",
        [],
    ),
    ("no tolerance", fenced("assert abs(f(1) - 2) < 0", "assert abs(f(1) - 2) < float('nan')"), "f", []),
    ("no number", fenced("assert abs(f(1) - [2]) < 0.01", "assert abs(f(1) - float('inf')) < 0.01"), "f", []),
    ("far away", fenced("assert abs(f(1) - 2) > 0.01", "assert not math.isclose(f(1), 2)"), "f", []),
    (
        "coarsely rounded",
        fenced("assert round(f(1)) == 2", "assert round(f(1), 0) == 2", "assert round(f(1), -9) == 0"),
        "f",
        [],
    ),
    ("raises with a message", fenced("with pytest.raises(ValueError, match='no'):", "    f(-1)"), "f", []),
    ("raises one of two", fenced("with pytest.raises((ValueError, TypeError)):", "    f(-1)"), "f", []),
    ("raises somewhere", fenced("with pytest.raises(ValueError):", "    x = g()", "    f(-1)"), "f", []),
    ("raises elsewhere", fenced("with pytest.raises(ValueError):", "    g(-1)"), "f", []),
    ("another language", fenced("x = 1", "assert f(x) == 2", fence="```text"), "f", []),
    ("in a sentence", "We assert f(1) == 2 here.", "f", []),
]


@pytest.mark.parametrize(("text", "entry_point", "expected"), [row[1:] for row in READ], ids=[row[0] for row in READ])
def test_forms_that_models_write(text: str, entry_point: str, expected: list[tuple]):
    read = [item.test for item in parse_suite(text, entry_point, all_forms=True).asserts if item.test]
    found = []
    for test in read:
        positional, named = decode_exact(test.call.arguments)
        form = test.call.entry_point.removesuffix(entry_point).rstrip()
        found.append(((*positional, *named.items()), decode_exact(test.expected), *([form] if form else [])))
    assert found == expected


def test_an_assert_is_shown_as_it_is_written():
    lines = ["def test_f():", "    assert f( 1 )==2, 'é'; assert f(", "        2) == 3", "    self.assertTrue(f(4))"]
    written = ["assert f( 1 )==2, 'é'", "assert f(\n        2) == 3", "self.assertTrue(f(4))"]
    assert [item.source for item in parse_suite(fenced(*lines), "f", all_forms=True).asserts] == written


def test_what_is_no_test_is_counted_with_the_reason():
    lines = ["assert f(1) < 2", "assert abs(f(1) - 2) < 1", "assert abs(f(1) - g(1)) < 1e-6", "assert g(1) == 2"]
    lines += ["with pytest.raises(ValueError, match='x'):", "    f(1)"]
    assert [item.rejection for item in parse_suite(fenced(*lines), "f", all_forms=True).asserts] == [
        "operator <",
        "tolerance is none, or more than 1% of the answer",
        "answer is not a number",
        "not the entry point",
        "not one call that raises one exception",
    ]


TEST = ("def test_f():", "    assert f(1) == 2")
NOT_RUN = [  # a suite that plain Python or pytest passes whatever f(1) is, and why
    (("if False: assert f(1) == 2",), "under an `if` that may not hold"),
    (("if __name__ == 'x':", "    assert f(1) == 2"), "under an `if` that may not hold"),
    (("if x:", "    assert f(1) == 2"), "under an `if` that may not hold"),
    (("if True: pass", "else: assert f(1) == 2"), "under an `else` that may not run"),
    (("while False: assert f(1) == 2",), "in a loop that may not run"),
    (("for x in []: assert f(1) == 2",), "in a loop that may not run"),
    (("try: assert f(1) == 2", "except AssertionError: pass"), "in `try` with `except`"),
    (("with contextlib.suppress(AssertionError):", "    assert f(1) == 2"), "under `suppress`"),
    (("with self.assertRaisesRegex(AssertionError, ''):", "    assert f(1) == 2"), "under `assertRaisesRegex`"),
    (("@pytest.mark.skip", *TEST), "under `skip`"),
    (("@pytest.mark.slow", "", "# later", "@mark.skipif(True, reason='x')", *TEST), "under `skipif`"),
    (("@pytest.mark.xfail(strict=False)", *TEST), "under `xfail`"),
    (("class T:", "    @unittest.expectedFailure", "    def test(self): assert f(1) == 2"), "under `expectedFailure`"),
    (("@skip('x')", "class T:", "    def test(self): assert f(1) == 2"), "under `skip`"),
    (("pytestmark = [pytest.mark.skip]", *TEST), "under `skip`"),
    (("def test_f():", "    self.skipTest('x')", "    assert f(1) == 2"), "after `skipTest`"),
    (("def test_f():", "    return", "    assert f(1) == 2"), "after `return`"),
    (("sys.exit()", "", "assert f(1) == 2"), "after `exit`"),
    (("def test_f():", "    np = pytest.importorskip('np')", "    assert f(1) == 2"), "after `importorskip`"),
    (("def test_f():", "    self.fail('x')", "    assert f(1) == 2"), "after `fail`"),
    (("def test_f():", "    if x < 3: return", "    assert f(1) == 2"), "after `return`"),
    (("for i in range(3):", "    if i < 5:", "        continue", "    assert f(1) == 2"), "after `continue`"),
    (("if x: pytest.skip('x', allow_module_level=True)", "assert f(1) == 2"), "after `skip`"),
]


@pytest.mark.parametrize(("lines", "reason"), NOT_RUN, ids=[lines[0] for lines, _ in NOT_RUN])
def test_what_may_not_run_or_may_fail_is_no_test_and_says_why(lines, reason):
    assert [item.rejection for item in parse_suite(fenced(*lines), "f", all_forms=True).asserts] == [reason]


def test_what_ends_nothing_leaves_tests():
    suite = fenced("if False: exit()", "if True: pass", "else: exit()", "assert f(1) == 2")
    assert [item.rejection for item in parse_suite(suite, "f", all_forms=True).asserts] == [""]


@pytest.mark.parametrize("quotes", ["'''", '"""'])
def test_asserts_in_a_string_are_no_tests(quotes):
    suite = fenced(
        "def test():", f"    {quotes}Checks, say:", "", "    assert f(1) == 3", f"    {quotes}", "    assert f(1) == 2"
    )
    assert [item.source for item in parse_suite(suite, "f", all_forms=True).asserts] == ["assert f(1) == 2"]


def test_only_closed_blocks_are_fenced():
    closed, opened = "```py\nassert f(1) == 2\n```", "```python\nassert f(1) == 2"
    assert parse_suite(closed, "f", all_forms=True).fenced
    assert not parse_suite(f"{closed}\n{opened}", "f", all_forms=True).fenced
    assert not parse_suite("assert f(1) == 2", "f", all_forms=True).fenced


def test_the_papers_configs_have_the_papers_form():
    assert default_config().game.assert_forms == "all"
    for config in (code_a1.get_config(), tiny.get_config(), tiny.get_config("world=blind,recipe=aimed")):
        assert config.game.assert_forms == "equality"


LONG = {
    "names of names": "x = [1]\n" + "x = [x, x]\n" * 6_000,
    "one large name": fenced("x = [0] * 9000", *["assert f(x) == x"] * 3_000),
    "one large result": fenced("x = [0] * 9000", "r = f(x)", *["assert r == 1"] * 4_000),
    "a chain of names": fenced("x0 = [0] * 9000", *[f"x{i + 1} = x{i}" for i in range(6_000)]),
    "many scopes": fenced(*[f"x{i} = 1" for i in range(4_000)], *["def t(): pass"] * 1_500),
    "many branches": fenced(*["if x: pass", *["elif x: pass"] * 1_300] * 3),
    "fences": "```" * 21_000,
    "ticks": "`assert f(1) == `\n" * 3_500,
    "one line": fenced(";".join(["assert f(1) == 2"] * 3_500)),
    "decorators": fenced("@x\n" * 20_000),
    "conditions": fenced(*["if True: assert f(1) == 2"] * 2_500),
    "nested": fenced(*[" " * depth + "if x:" for depth in range(80)], *[" " * 80 + "assert f(1) == 2"] * 600),
    "powers": fenced(*["assert abs(f(1) - 9**9**9) < 9**9**9"] * 1_500),
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_long_suites_cost_little(text):
    started = time.process_time()
    parse_suite(text, "f", all_forms=True)
    assert time.process_time() - started < 3  # none takes 0.3 s


PIECES = [
    "assert ",
    "f(",
    ")",
    " == ",
    "1",
    "'",
    '"""',
    "\\",
    "\n",
    "```",
    "```py",
    "[",
    "#",
    "x = ",
    ";",
    "é",
    "`",
    "- ",
]
PIECES += [
    "with raises(E):",
    "\n    ",
    "def t():",
    "abs(",
    "-",
    "<",
    "self.assertEqual(",
    ",",
    "\r",
    "else:",
    "x",
    "set(",
]


@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_can_be_read_in_all_forms(text):
    for item in parse_suite(text, "f", all_forms=True).asserts:
        assert (item.test is None) == bool(item.rejection)
        assert item.test is None or parse_assert(item.test.text, "f") == item.test
