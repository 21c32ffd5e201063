"""Programs and suites out of text that a policy wrote."""

import dataclasses
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codea1.game.answers import end_of_asserts, end_of_block, extract_program, extract_python_block, parse_suite
from codea1.game.asserts import parse_assert
from codea1.game.rewards import REWARDS
from codea1.values import encode_exact


def fenced(*lines: str) -> str:
    return "\n".join(["```python", *lines, "```"])


def read(*lines: str) -> list[tuple[str | None, str]]:
    """(test as text, rejection) of each assert in a code block."""
    suite = parse_suite(fenced(*lines), "f")
    return [(item.test and item.test.text, item.rejection) for item in suite.asserts]


def test_forms_that_people_write_count_where_a_config_says_so():
    lines = ["assert f(1)", "assert not f(2)", "r = f(3)", "assert r == 4", "assert 5 == f(4)", "assert f(0) is None"]
    lines += ["r = f([6])", "r.append(7)", "assert r == [7]"]  # what r is by then is not known
    strict, wide = (parse_suite(fenced(*lines), "f", all_forms=forms).asserts for forms in (False, True))
    assert [item.test for item in strict] == [None] * 6
    assert [item.test and item.test.text for item in wide] == [
        "assert f(1)",
        "assert not f(2)",
        "assert f(3) == 4",
        "assert f(4) == 5",
        "assert f(0) == None",
        None,
    ]
    assert [item.source for item in wide] == [line for line in lines if line.startswith("assert")]


@pytest.mark.parametrize(
    ("thought", "answered"),
    [
        ("<think>\n```python\ndef f(): return 1\nassert f(0) == 1\n```\n</think>\n\n", True),
        ("\n<think>assert f(0) == 1</think>", True),
        ("<think>\n\n</think>\n\n", True),
        ("<think>\nassert f(0) == 1\n", False),  # cut off
        ("# <think>\n", None),  # no thought: it does not stand at the beginning
    ],
)
def test_thoughts_are_no_part_of_an_answer(thought, answered):
    program, suite = fenced("def f(n):", "    return n"), fenced("assert f(1) == 1")
    if answered is None:
        assert extract_program(f"{thought}x = 1").source == f"{thought}x = 1"
        return
    for extract in (extract_program, extract_python_block):
        assert extract(thought + program).source == ("def f(n):\n    return n" if answered else "")
    assert [item.source for item in parse_suite(thought + suite, "f").asserts] == ["assert f(1) == 1"] * answered
    assert [item.source for item in parse_suite(f"{thought}assert f(1) == 1", "f").asserts] == [
        "assert f(1) == 1"
    ] * answered


@pytest.mark.parametrize(
    ("answer", "source", "is_fenced"),
    [
        ("```python\nx = 1\n```", "x = 1", True),
        ("so:\n```python\n\nx = 1\n\n```\nand ```python\ny = 2\n```", "x = 1", True),
        ("```\nx = 1\n```", "x = 1", True),
        ("```py\nx = 1\n```", "x = 1", True),
        ("```text\nhello\n```\n```python\nx = 1\n```", "x = 1", True),
        ("```\nx = 1\n```\n```python\ny = 2", "x = 1", True),
        ("x = 1\n", "x = 1", False),
        ("```python\nx = 1", "x = 1", False),
        ("", "", False),
    ],
)
def test_without_an_entry_point_the_program_is_the_first_closed_block(answer, source, is_fenced):
    program = extract_program(answer)
    assert (program.source, program.fenced) == (source, is_fenced)


REFERENCE_PROGRAMS = [  # answer, and what the reference, executed, makes of it: source, and whether it was fenced
    ("```python\nx = 1\n```", "x = 1", True),
    ("so:\n```python\n\nx = 1\n\n```\nand ```python\ny = 2\n```", "x = 1", True),
    ("```text\nhello\n```\n```python\nx = 1\n```", "x = 1", True),
    ("```\nx = 1\n```", "```\nx = 1\n```", False),
    ("\n```py\nx = 1\n```\n", "```py\nx = 1\n```", False),
    ("```\nx = 1\n```\n```python\ny = 2", "```\nx = 1\n```\n```python\ny = 2", False),
    ("```python\nx = 1\n```python\ny = 2\n```", "```python\nx = 1\n```python\ny = 2\n```", False),
    ("```python\nx = 1", "```python\nx = 1", False),
    ("x = 1\n", "x = 1", False),
    ("", "", False),
]


@pytest.mark.parametrize(("answer", "source", "is_fenced"), REFERENCE_PROGRAMS)
def test_the_reward_decides_how_a_program_is_read(answer, source, is_fenced):
    read = {name: policy(0.5, 8).read_program(answer, "x") for name, policy in REWARDS.items()}
    assert (read["official"].source, read["official"].fenced) == (source, is_fenced)
    for name in ("strict", "strict_tests", "simple"):
        assert read[name] == extract_program(answer, "x")


@pytest.mark.parametrize(
    ("answer", "ends"),
    [
        ("Here:\n```python\nx = 1\n```", True),
        ("```python\nx = 1\n", False),
        ("a ```quoted``` word\n  ```py\nx = 1\n  ```", True),
        ("<think>\n```\nno\n```\n</think>\n```\nx = 1\n```", True),
        ("<think>\n```\nno\n```\n", False),
        ('```python\ndef f():\n    """Says\n    ```\n    f()\n    ```\n    """\n```', True),
        ("", False),
    ],
)
def test_an_answer_may_end_with_its_first_closed_block(answer: str, ends: bool):
    assert end_of_block(answer) == end_of_block(f"{answer}\nIt is\n```\nmore\n```") * ends == len(answer) * ends


def test_a_suite_may_end_before_the_assert_that_no_longer_counts():
    suite = "<think>\nassert no\n</think>\n```python\nx = 1\nassert f(1) == [\n  2]\n  assert f(2) == 3  # assert\n"
    assert end_of_asserts(suite, 2) == 0
    assert end_of_asserts(f"{suite}asserted = 1\n\tassert f(", 2) == len(f"{suite}asserted = 1\n")


def test_all_python_blocks_of_a_suite_are_joined():
    suite = parse_suite(f"{fenced('assert f(1) == 2')} and {fenced('assert f(2) == 3')}", "f")
    assert [item.test.text for item in suite.asserts] == ["assert f(1) == 2", "assert f(2) == 3"]
    assert suite.fenced


def test_a_block_ends_at_the_next_fence_whatever_that_opens():
    """As in the reference: what follows the second fence is in no closed block."""
    suite = parse_suite("```python\nassert f(1) == 1\n```python\nassert f(2) == 2\n```", "f")
    assert [item.test.text for item in suite.asserts] == ["assert f(1) == 1"]
    suite = parse_suite("One:\n```python assert f(1) == 1```", "f")
    assert [item.test.text for item in suite.asserts] == ["assert f(1) == 1"]


def test_without_a_block_lines_that_start_with_assert_are_read():
    suite = parse_suite("Here:\n  assert f(1) == 2\nnot: assert f(2) == 3\nassert f(\nassert f(4)\n", "f")
    assert [(item.rejection, item.dropped) for item in suite.asserts] == [
        ("", False),
        ("does not parse", False),
        ("not a comparison", False),
    ]
    assert not suite.fenced


def test_asserts_may_span_lines_inside_brackets_and_strings():
    assert read("assert f(", "    [1,", "     2],", ") == (", "    3", ")") == [("assert f([1, 2]) == 3", "")]
    assert read('assert f("""a', '(b""") == 1') == [("assert f('a\\n(b') == 1", "")]
    assert read("assert f(')') == 1  # )", "assert f(2) == 2") == [
        ("assert f(')') == 1", ""),
        ("assert f(2) == 2", ""),
    ]
    assert read("assert f(1) == \\", "  2") == [("assert f(1) == 2", "")]


def test_a_broken_assert_costs_only_itself():
    assert read("assert f([1, == 2", "assert f(2) == 3", "assert f(3)) == 4", "assert f(5) == 6") == [
        (None, "does not parse"),
        ("assert f(2) == 3", ""),
        (None, "does not parse"),
        ("assert f(5) == 6", ""),
    ]
    assert read("def test_f():", "    assert f(1) == 2", "x = '''", "assert f(2) == 3") == [
        ("assert f(1) == 2", ""),
        ("assert f(2) == 3", ""),
    ]


def test_assigned_names_are_inlined_as_bare_arguments_only():
    assert read("x = [1, 2]", "assert f(x, key=x) == 3") == [("assert f([1, 2], key=[1, 2]) == 3", "")]
    assert read("x = 1", "assert f([x]) == 3") == [(None, "arguments are not plain data")]
    assert read("x = 1", "assert f(2) == x") == [(None, "answer is not plain data")]
    assert read("assert f(x) == 3", "x = 1") == [(None, "arguments are not plain data")]
    assert read("x = y = 1", "assert f(x) == 3") == [(None, "arguments are not plain data")]


@pytest.mark.parametrize(
    ("line", "rejection", "dropped"),
    [
        ("assert f(1)", "not a comparison", True),
        ("assert not f(1)", "not a comparison", True),
        ("assert f(1) == 2 or True", "not a comparison", True),
        ("assert 2 == f(1)", "no call on the left", True),
        ("assert f(1)[0] == 2", "no call on the left", True),
        ("assert f(1 == 2", "does not parse", True),
        ("assert len([1]) == 1", "not the entry point", False),
        ("assert abs(1) == 1", "not the entry point", False),
        ("assert o.f(1) == 1", "not the entry point", False),
        ("assert f(1) != 2", "operator !=", False),
        ("assert f(1) in [2]", "operator in", False),
        ("assert f(1) is None", "operator is", False),
        ("assert f(1) == 2 == 2", "a chained comparison", False),
        ("assert f(g(1)) == 2", "arguments are not plain data", False),
        ("assert f([0] * 20_000) == 0", "arguments are too large", False),
        ("assert f(1) == f(1)", "answer is not plain data", False),
        ("assert f(x) > g(x)", "operator >; arguments are not plain data; answer is not plain data", False),
    ],
)
def test_what_is_not_a_plain_test_is_rejected_with_the_reason(line, rejection, dropped):
    (item,) = parse_suite(fenced(line), "f").asserts
    assert (item.rejection, item.dropped, item.test) == (rejection, dropped, None)


def test_a_rejected_assert_still_tells_its_call_and_answer():
    (item,) = parse_suite(fenced("assert f(1) != 2"), "f").asserts
    (plain,) = parse_suite(fenced("assert f(1) == 2"), "f").asserts
    assert (item.call, item.answer) == (plain.call, plain.answer)


def test_a_chain_of_comparisons_tells_the_first():
    (item,) = parse_suite(fenced("assert f(1) == 2 < 3"), "f").asserts
    (plain,) = parse_suite(fenced("assert f(1) == 2"), "f").asserts
    assert (item.call, item.answer) == (plain.call, plain.answer)


def test_an_assert_is_shown_as_written_unless_others_share_its_line():
    suite = parse_suite(fenced("assert f( 1 )==2", "assert f( 1 )==3; assert f( 2 )==4"), "f")
    assert [item.source for item in suite.asserts] == ["assert f( 1 )==2", "assert f(1) == 3", "assert f(2) == 4"]
    deep = f"assert f({'-' * 1500}1) == 1; assert f(2) == 3"  # too deep to be written again
    assert [item.source for item in parse_suite(fenced(deep), "f").asserts] == [deep, "assert f(2) == 3"]


def test_the_entry_point_is_known_by_its_letters():
    (item,) = parse_suite("assert solve(1) == 2", "".join(["so", "lve"])).asserts
    assert item.test.text == "assert solve(1) == 2"


def test_what_an_answer_says_cannot_be_changed():
    suite = parse_suite("assert f(1) == 2", "f")
    for value in (suite, suite.asserts[0], extract_program(""), parse_assert("", "f")):
        for field in dataclasses.fields(value):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(value, field.name, None)


def test_what_fits_into_a_source_is_never_too_large():
    (item,) = parse_suite("assert f([" + "0," * 8000 + "]) == 1", "f").asserts
    assert not item.rejection


def test_nonprintable_ratio_is_of_the_whole_answer():
    assert parse_suite("é\x00ab", "f").nonprintable_ratio == 0.5
    assert parse_suite("é", "f").nonprintable_ratio == 1.0
    assert parse_suite("", "f").nonprintable_ratio == 0.0


def test_the_number_of_asserts_is_bounded():
    assert len(parse_suite("assert f(1) == 1\n" * 1000, "f").asserts) == 128
    assert len(parse_suite(fenced("assert f(1) == 1;" * 500), "f").asserts) == 128


def test_the_first_64000_characters_of_a_suite_are_read():
    text = "assert f(1) == 1"
    for blanks, rejection in ((64_000 - len(text), ""), (64_001 - len(text), "does not parse")):
        (item,) = parse_suite(" " * blanks + text, "f").asserts
        assert item.rejection == rejection


HOSTILE = [
    "(" * 20_000,
    "-" * 12_000 + "1",
    '"\\' * 20_000,
    "[" * 60 + "]" * 60,
    "{**" * 3_000,
    "9" * 6_000,
    "9**9**9",
    "'x' * 10**12",
    "a" + "()" * 5_000,
    "f'" + "{1}" * 3_000 + "'",
    "\x00",
    "\ud800",
]


@pytest.mark.parametrize("operand", HOSTILE)
@pytest.mark.parametrize("template", ["assert f({}) == 1", "assert f(1) == {}", "x = {}\nassert f(x) == 1", "{}"])
def test_hostile_operands_are_read_or_rejected(operand, template):
    text = template.replace("{}", operand)
    for answer in (text, fenced(text)):
        assert len(parse_suite(answer, "f").asserts) <= 1
        extract_program(answer)


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
    "```python",
    "[",
    "}",
    "#",
    "x = ",
    ";",
    "é",
]


@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join))
@example("```python\nassert f(1) == 1\n```")
def test_any_text_can_be_read(text):
    extract_program(text)
    extract_program(text, "f")
    extract_python_block(text)
    for item in parse_suite(text, "f").asserts:
        assert (item.test is None) == bool(item.rejection)


@pytest.mark.parametrize(
    "operand",
    [
        "[Decimal(1)] * 16000",
        "[Decimal('1e16000')] * 16000",
        "[range(3)] * 16000",
        "[deque()] * 16000",
        "[1.5, 1] * 60000",
    ],
)
def test_the_slowest_literals_cost_a_suite_little(operand):
    started = time.process_time()
    suite = parse_suite(fenced(*[f"assert f({operand}) == {operand}"] * 64), "f")
    assert time.process_time() - started < 4  # about 0.5 s; were each operand charged alone, 20 s to 50 s
    assert len(suite.asserts) == 64
    assert all(item.rejection for item in suite.asserts)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("[0] * 8000", ""),
        ("[0] * 9000", "answer is too large"),
        ("'x' * 70000", "answer is too large"),
        ("g(1)", "answer is not plain data"),
    ],
)
def test_an_answer_is_no_larger_than_the_book_keeps(answer, reason):
    (item,) = parse_suite(f"assert f(1) == {answer}", "f").asserts
    assert (item.rejection, item.answer is None) == (reason, bool(reason))


@pytest.mark.parametrize(
    ("answer", "source"),
    [
        ("```x = 1\ny = 2\n```", "x = 1\ny = 2"),  # a first line that is no language is part of the program
        ("```python3\nx = 1\n```", "x = 1"),
        ('```python title="a.py"\nx = 1\n```', "x = 1"),
    ],
)
def test_what_follows_a_fence_is_a_language_or_the_program(answer: str, source: str):
    assert extract_program(answer).source == source


def test_a_block_that_is_not_closed_is_no_block():
    suite = parse_suite("```python\nassert f(1) == 12", "f")
    assert not suite.fenced
    assert [item.test.text for item in suite.asserts] == ["assert f(1) == 12"]


def test_an_int_that_python_does_not_write_in_decimal_costs_nothing():
    digits = "f" * 4000
    first, second = parse_suite(f"```python\nassert f(0x{digits}) == 1; assert f(2) == 0x{digits}\n```", "f").asserts
    assert first.test.call.arguments == encode_exact(((int(digits, 16),), {}))
    assert second.test.expected == encode_exact(int(digits, 16))
