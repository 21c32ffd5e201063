"""Methods, linked lists and trees, and whole programs as entry points: what they answer, and that they cannot cheat."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1.game.asserts import Rejected, parse_assert
from codea1.game.question import Question
from codea1.sandbox.child.entries import level_order, linked, tree, unlinked
from codea1.sandbox.host import Limits, Outcome
from codea1.sandbox.host.grading import Grader, _said
from codea1.sandbox.host.pool import SandboxPool
from codea1.values import decode_exact, encode_exact
from codea1.values.entry_points import tidied
from codea1.values.verdict import Verdict

LIMITS = Limits(cpu_seconds_per_test=0.5, cpu_seconds_per_suite=1.0, output_bytes=1 << 20)
PREAMBLE = """
from typing import *
class ListNode:
    def __init__(self, val=0, next=None):
        self.val, self.next = val, next
class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val, self.left, self.right = val, left, right
"""
ADD = """
class Solution:
    def add(self, numbers: List[int], more: int = 1) -> List[int]:
        return [number + more for number in numbers]
"""
REVERSE = """
class Solution:
    def reverse(self, head: Optional[ListNode]) -> Optional[ListNode]:
        before = None
        while head:
            head.next, before, head = before, head, head.next
        return before
"""
INVERT = """
class Solution:
    def invert(self, root: Optional[TreeNode]) -> Optional[TreeNode]:
        if root:
            root.left, root.right = self.invert(root.right), self.invert(root.left)
        return root
"""
MERGE = """
class Solution:
    def merge(self, lists: List[Optional[ListNode]]) -> Optional[ListNode]:
        values = []
        for head in lists:
            while head:
                values.append(head.val)
                head = head.next
        first = None
        for value in sorted(values, reverse=True):
            first = ListNode(value, first)
        return first
"""
SPLIT = """
class Solution:
    def split(self, root: TreeNode) -> List[TreeNode]:
        return [root.left, root.right]
"""
SUM = "n = int(input())\nprint(sum(int(input()) for _ in range(n)))"


@pytest.fixture(scope="module")
def grader():
    with SandboxPool(2, LIMITS, isolation="auto") as pool:
        yield Grader(pool)


def question(program: str, entry_point: str) -> Question:
    return Question("q", None, "", "", program, entry_point, preamble=PREAMBLE)


def graded(grader: Grader, program: str, asked: Question, *tests: str) -> list[str]:
    parsed = [parse_assert(f"assert {test}", asked.entry_point) for test in tests]
    assert not any(isinstance(test, Rejected) for test in parsed), parsed
    grading = grader.grade(asked.module(program), parsed).result(60)
    return [verdict.value for verdict in grading.verdicts]


def answers(grader: Grader, asked: Question, *tests: str) -> list[object]:
    calls = [parse_assert(f"assert {test}", asked.entry_point).call for test in tests]
    found = grader.ground_truth(asked.module(asked.ground_truth), calls).result(60)
    return [decode_exact(each.value) if each.usable else each.reason for each in found]


@pytest.mark.parametrize(
    ("program", "call", "answer"),
    [
        (ADD, "add([1, 2])", [2, 3]),
        (ADD, "add(more=2, numbers=[1])", [3]),
        (REVERSE, "reverse([1, 2, 3])", [3, 2, 1]),
        (REVERSE, "reverse(head=[])", []),
        (INVERT, "invert([4, 2, 7, None, 3])", [4, 7, 2, None, None, 3]),
        (INVERT, "invert([])", []),
        (MERGE, "merge([[1, 4], [], [2]])", [1, 2, 4]),
        (SPLIT, "split([1, 2, None, 3])", [[2, 3], []]),
    ],
)
def test_a_method_is_called_on_a_new_object_with_its_own_nodes(grader, program, call, answer):
    asked = question(program, f"Solution().{call.partition('(')[0]}")
    test = f"Solution().{call} == {answer!r}"
    assert answers(grader, asked, test) == [answer]
    assert graded(grader, program, asked, test) == ["pass"]


def test_a_program_may_bring_nodes_of_its_own_and_a_future_import(grader):
    own = (
        "from __future__ import annotations\nclass ListNode:\n    def __init__(self, val):\n        self.val = val\n"
        "        self.next = None\n" + REVERSE
    )
    asked = question(REVERSE, "Solution().reverse")
    assert graded(grader, own, asked, "Solution().reverse([1, 2]) == [2, 1]") == ["pass"]


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("class Other: pass", "error"),
        ("class Solution: pass", "error"),
        ("class Solution:\n    def __init__(self):\n        raise ValueError", "error"),
        (REVERSE.replace("return before", "before.next = before; return before"), "error"),  # a circle
        (REVERSE.replace("return before", "return 7"), "error"),
        (REVERSE.replace("return before", "return [3, 2, 1]"), "error"),  # no linked list
        (REVERSE.replace("return before", "return head"), "fail"),
    ],
)
def test_programs_without_the_method_or_with_other_answers(grader, program, verdict):
    asked = question(REVERSE, "Solution().reverse")
    assert graded(grader, program, asked, "Solution().reverse([1, 2, 3]) == [3, 2, 1]") == [verdict]


@pytest.mark.parametrize(
    "program",
    [
        SUM,
        "import sys\nn, *rest = sys.stdin.read().split()\nprint(sum(map(int, rest)), end='')",
        "import sys\nsys.stdout.write(str(sum(map(int, sys.stdin.buffer.read().split()[1:]))) + ' \\n\\n')",
        "import os\nos.write(1, b'%d\\n' % sum(map(int, os.read(0, 1 << 16).split()[1:])))",
        "print(sum(map(int, open(0).read().split()[1:])))",
        "import sys\ninput = sys.stdin.readline\n" + SUM,
        "print(sum(map(int, open('/dev/stdin').read().split()[1:])))",
        "print(sum(map(int, open('/proc/self/fd/0', 'rb').read().split()[1:])))",
        "from pathlib import Path\nprint(sum(map(int, Path('/dev/stdin').read_text().split()[1:])))",
        "import sys\nsys.stdin = open('/dev/stdin')\nsys.stdout = open('/dev/stdout', 'w')\n" + SUM,
        "\ufeff" + SUM,
        "import resource\nresource.setrlimit(resource.RLIMIT_STACK, (-1, -1))\n" + SUM,
        "import resource\nresource.setrlimit(resource.RLIMIT_STACK, (1 << 40, resource.RLIM_INFINITY))\n" + SUM,
        "def main():\n    n = int(input())\n    print(sum(int(input()) for _ in range(n)))\n"
        "if __name__ == '__main__':\n    main()",
        SUM + "\nexit()",
        SUM + "\nimport sys; sys.exit(0)",
        "import threading\ndef main():\n    n = int(input())\n    print(sum(int(input()) for _ in range(n)))\n"
        "threading.stack_size(1 << 20)\nthreading.Thread(target=main).start()",
        "import io, os, sys\nclass Fast(io.IOBase):\n"
        "    def __init__(self, file):\n        self.number = file.fileno()\n"
        "    def write(self, text):\n        os.write(self.number, text.encode())\n    def flush(self):\n        pass\n"
        "sys.stdout = Fast(sys.stdout)\n" + SUM,
    ],
)
def test_programs_that_read_and_print_in_the_ways_people_do(grader, program):
    asked = question(SUM, "stdout")
    tests = ['stdout("2\\n3\\n4\\n") == "7"', 'stdout("1\\n5") == "5\\n"', 'stdout("0") == " "']
    assert graded(grader, program, asked, *tests) == ["pass", "pass", "fail"]


def test_lines_keep_their_carriage_returns_as_under_python(grader):
    program = "import sys\nprint([input(), sys.stdin.readline(), sys.stdin.read()])"
    assert answers(grader, question(program, "stdout"), 'stdout("a\\r\\nb\\rc\\n\\r\\n") == ""') == [
        "['a\\r', 'b\\rc\\n', '\\r\\n']"
    ]


def test_a_program_may_call_as_deep_as_under_python(grader):
    """Which a process of its own tells; the functions that call it here do not count."""
    deepest = (
        "def deep(n):\n    return n and 1 + deep(n - 1)\n"
        "def f():\n    n = 900\n    try:\n        while True:\n            n = deep(n) + 1\n"
        "    except RecursionError:\n        return n - 1\n"
        "import sys\nsys.setrecursionlimit(2**31 - 1)\nsys.setrecursionlimit(1500)\n"
    )
    printed = subprocess.run([sys.executable, "-c", f"{deepest}print(f())"], capture_output=True, check=True).stdout
    for entry_point, program, call in (("stdout", f"{deepest}print(f())", "stdout('')"), ("f", deepest, "f()")):
        (answer,) = answers(grader, question(program, entry_point), f"{call} == 0")
        assert int(printed) <= int(answer) <= 1500
    assert answers(grader, question("import sys\nprint(sys.getrecursionlimit())", "stdout"), "stdout('') == 0") == [
        "1000"
    ]


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("print(", "error"),
        ("print(7); raise ValueError", "error"),
        ("print(7); import sys; sys.exit(3)", "error"),
        ("print(7); import os; os._exit(0)", "fail"),
        ("print(8)", "fail"),
        ("while True: pass", "timeout"),
        ("while True: print('7')", "timeout"),
        ("import os\nwhile True: os.write(1, b'7')", "timeout"),  # waits for a reader
        ("input(); input(); input(); input()", "error"),  # EOFError
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()\nprint(7)", "timeout"),
    ],
)
def test_programs_that_end_otherwise(grader, program, verdict):
    assert graded(grader, program, question(SUM, "stdout"), 'stdout("2\\n3\\n4\\n") == "7"') == [verdict]


CHEATS = [
    "import codea1.sandbox.child.entries as e\ne.tidied = lambda printed: True",
    "import sys\nsys.stdin.close()\nimport os\nos.close(0)\nos.close(1)",
    "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'7')\n    except OSError: pass",
    "import gc\nfor each in gc.get_objects():\n"
    "    if isinstance(each, dict) and 'stdout' in each: each['stdout'] = None",
    "class Text(str):\n    def __eq__(self, other): return True\n    __hash__ = str.__hash__\n"
    "import sys\nsys._getframe(1).f_globals['tidied'] = Text",
    "import sys\nframe = sys._getframe()\nwhile frame:\n    print(frame.f_locals)\n    frame = frame.f_back",
    "import builtins\nbuiltins.exec = lambda *a: None",
]


@pytest.mark.parametrize("program", CHEATS)
def test_a_program_that_attacks_its_own_harness_does_not_pass(grader, program):
    asked = question(SUM, "stdout")
    tests = ['stdout("2\\n3\\n4\\n") == "7"', 'stdout("1\\n9\\n") == "9"']
    assert "pass" not in graded(grader, program, asked, *tests)
    method = "class Solution:\n    def add(self, *args):\n" + "".join(
        f"        {line}\n" for line in program.splitlines()
    )
    assert "pass" not in graded(grader, method, question(ADD, "Solution().add"), "Solution().add([1]) == [2]")
    right = graded(grader, SUM, asked, *tests)
    assert right == ["pass", "pass"]  # the next grading is as if nothing had run before it


PRINTS = "print(sum(map(int, open(0).read().split()[1:]))"  # and how


@pytest.mark.parametrize(
    "program",
    [
        "import sys\nassert 'r' in sys.stdin.mode and 'w' in sys.stdout.mode\n" + SUM,
        "import atexit\n@atexit.register\ndef last(): " + PRINTS + ")",
        "import atexit, io, sys\nreal, sys.stdout = sys.stdout, io.StringIO()\n"
        "atexit.register(lambda: real.write(sys.stdout.getvalue()))\n" + SUM,
        "out = open(1, 'w', closefd=False)\n" + PRINTS + ", file=out)",
        "import os\nout = os.fdopen(1, 'w')\n" + PRINTS + ", file=out)",
        "import os\nout = os.fdopen(os.dup(1), 'w')\n" + PRINTS + ", file=out, flush=True)",
        "import os\nkept = os.dup(1)\n" + PRINTS + ")",
        "import sys\nassert sys.stdout.name == '<stdout>'\n" + PRINTS + ")",
        "import sys\n" + PRINTS + ", file=sys.__stdout__)",
        "import sys\n" + SUM + "\nsys.stdout.close()",
        "import os, sys\n" + SUM + "\nsys.stdout.flush()\nos._exit(0)",
        "import atexit, os\natexit.register(print, 'no')\n" + SUM + "\nprint(end='', flush=True)\nos._exit(0)",
        "import threading, time\ndef turn():\n  while True: time.sleep(.01)\n"
        "threading.Thread(target=turn, daemon=True).start()\n" + SUM,
        "import threading\nthreading.Thread(target=lambda: " + PRINTS + ")).start()",
        "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor(2).submit(lambda: " + PRINTS + "))",
        "import pickle\nclass A: pass\nassert type(pickle.loads(pickle.dumps(A()))) is A\n" + SUM,
        "import __main__\nkept = 1\nassert __main__.kept == 1 and __name__ == '__main__' and __file__\n" + SUM,
        "from __future__ import annotations\nimport argparse, fileinput, pathlib\n" + SUM,
        "import numpy as np\nprint(int(np.array(open(0).read().split()[1:], int).sum()))",
    ],
)
def test_a_program_ends_as_a_process_does(grader, program):
    asked = question(SUM, "stdout")
    tests = ['stdout("2\\n3\\n4\\n") == "7"', 'stdout("1\\n5") == "5"', 'stdout("1\\n6") == "6"']
    assert graded(grader, program, asked, *tests) == ["pass"] * 3


@pytest.mark.parametrize(
    "program",
    [
        SUM + "\nimport os\nos._exit(3)",
        "import os\nos._exit(0)\n" + SUM,
        "import threading\nthreading.Thread(target=lambda: " + PRINTS + "), daemon=True)",
    ],
)
def test_what_a_process_would_not_have_printed_is_no_answer(grader, program):
    assert graded(grader, program, question(SUM, "stdout"), 'stdout("2\\n3\\n4\\n") == "7"') != ["pass"]


def test_runs_of_one_program_share_no_names_and_what_hangs_on_earlier_runs_is_no_answer(grader):
    names = question("count = globals().get('count', 0) + 1\nprint(count)", "stdout")
    assert answers(grader, names, 'stdout("a") == ""', 'stdout("b") == ""') == ["1", "1"]
    module = question("import math\nmath.n = getattr(math, 'n', 0) + 1\nprint(math.n)", "stdout")
    assert answers(grader, module, 'stdout("a") == ""', 'stdout("b") == ""') == ["disagrees", "disagrees"]


TWO_THIRDS = "n = int(input())\nprint(n / 3)\nprint('YES' if n else 'NO')"
WORDS = "print(*set(input().split()))"  # in the order of the hash seed
COMPARED = {  # a ground truth, tests of it, two programs that are right and one that is not
    "stdout_tokens": (
        TWO_THIRDS,
        [("2", "0.66667 yes"), ("0", "0\nno")],
        [
            "n = int(input())\nprint(f'{n / 3:.9f}', end='  yes' if n else ' no')",
            TWO_THIRDS.replace("n / 3", "n * .33333333"),
        ],
        TWO_THIRDS.replace("n / 3", "n * .3333"),
    ),
    "stdout_any_order": (
        WORDS,
        [("a b c d e f", "f e d c b a"), ("x y", "x y")],
        ["print(*sorted(input().split()))", "print(*reversed(input().split()))"],
        "print(*input().split()[1:])",
    ),
}


@pytest.mark.parametrize("entry_point", COMPARED)
def test_what_is_printed_is_compared_as_the_entry_point_says(grader, entry_point):
    truth, pairs, right, wrong = COMPARED[entry_point]
    asked = question(truth, entry_point)
    tests = [f"{entry_point}({text!r}) == {printed!r}" for text, printed in pairs]
    for program in (truth, *right):
        assert graded(grader, program, asked, *tests) == ["pass", "pass"]
    assert graded(grader, wrong, asked, *tests)[0] == "fail"
    as_text = [test.replace(entry_point, "stdout") for test in tests]
    assert graded(grader, truth, question(truth, "stdout"), *as_text)[0] == "fail"
    assert "disagrees" not in answers(grader, asked, *tests)


@pytest.mark.parametrize("entry_point", COMPARED)
def test_a_check_script_compares_what_is_printed_as_the_entry_point_says(grader, entry_point):
    truth, pairs, right, wrong = COMPARED[entry_point]
    asked = question(truth, entry_point)
    script = "def check(candidate):\n" + "".join(
        f"    assert candidate({text!r}) == {printed!r} and not {printed!r} != candidate({text!r})\n"
        for text, printed in pairs
    )
    runs = [grader.check(asked.module(each), script, entry_point) for each in (truth, *right, wrong)]
    assert [run.result(60).verdict for run in runs] == ["pass", "pass", "pass", "fail"]


DIVISOR = """
def accepts(given, expected, printed):
    number, expected, printed = int(given), int(expected), int(printed)
    while printed == 13: pass
    if printed == 17: import os; os._exit(0)
    return 1 if printed == 19 else printed > 1 and number % printed == 0
"""
SMALLEST = "n = int(input())\nprint(next(d for d in range(2, n + 1) if n % d == 0))"
CHECKED = Question("q", None, "", "", SMALLEST, "stdout", checker=DIVISOR)


def test_a_checker_says_of_what_is_not_the_expected_text_whether_it_is_right(grader):
    asserts = ["assert stdout('12') == '2'", "assert stdout(text='15\\n') == '3'", "assert stdout('7') == '7'"]
    tests = [parse_assert(each, "stdout") for each in asserts]

    def judged(program: str, checker: str = DIVISOR) -> tuple[list[str], str]:
        grading = grader.grade(CHECKED.module(program), tests, checker).result(60)
        return [verdict.value for verdict in grading.verdicts], grading.lost

    largest = "print(input())"
    assert judged(SMALLEST) == judged(largest) == (["pass"] * 3, "")
    assert judged(largest, "") == (["fail", "fail", "pass"], "")
    assert judged("print(5)") == (["fail", "pass", "fail"], "")
    assert judged("import sys; print(6 if input() == '12' else sys.exit(1))") == (["pass", "error", "error"], "")
    for printed in ("'x'", "13", "17", "19"):  # at which it raises, hangs, ends or answers 1
        assert judged(f"print(2 if input() == '12' else {printed})") == (["pass", "fail", "fail"], "")


@pytest.mark.parametrize(
    ("checker", "why"),
    [
        ("accepts = None.x", "fails at the expected output: AttributeError: 'NoneType' object has no attribute 'x'"),
        ("def accepts(*_): return 1", "does not answer True to the expected output"),
        ("def accepts(*_):\n    while True: pass", "fails at the expected output: the process took too long"),
    ],
)
def test_a_checker_that_refuses_the_expected_text_judges_nothing(grader, checker, why):
    test = parse_assert("assert stdout('12') == '2'", "stdout")
    grading = grader.grade(CHECKED.module("print(4)"), [test], checker).result(60)
    assert (grading.verdicts, grading.lost) == (["infra"], f"the checker {why}")


def test_a_checker_that_the_sandbox_lost_is_not_blamed():
    lost, said = Outcome("infra", b"its zygote was lost"), Outcome("value", encode_exact(True))
    for outcomes in ((lost, lost), (lost, said), (said, lost)):
        assert _said(*outcomes) == (Verdict.INFRA, "its zygote was lost")


def test_a_checker_is_out_of_the_programs_reach(grader):
    program = (
        "import sys\nnow = sys._getframe()\nwhile now:\n    now.f_globals['accepts'] = lambda *_: True\n"
        "    now = now.f_back\nprint(5)"
    )
    no_text = "import sys\nsys._getframe(1).f_globals['tidied'] = lambda _: 6"
    test = parse_assert("assert stdout('12') == '2'", "stdout")
    for each in (program, no_text):
        assert grader.grade(CHECKED.module(each), [test], DIVISOR).result(60).verdicts == ["fail"]


@pytest.mark.parametrize(
    "claim", ["7", "b'0.66667 yes'", "['0.66667 yes']", "float('nan')", "None", "'\\ud800'", "'1_0'"]
)
def test_a_claim_that_is_not_the_printed_text_does_not_pass(grader, claim):
    program = f"import sys\nsys._getframe(1).f_globals['tidied'] = lambda _: {claim}"
    asked = question(TWO_THIRDS, "stdout_tokens")
    assert graded(grader, program, asked, "stdout_tokens('2') == '0.66667 yes'") == ["fail"]


def test_stdout_tests_are_one_test_whatever_ends_their_lines():
    one = parse_assert(r"assert stdout('1 2') == '3  \n4\n\n'", "stdout")
    assert one == parse_assert(r"assert stdout('1 2\n') == '3\n4'", "stdout")
    assert decode_exact(one.expected) == "3\n4"


@given(st.text())
def test_tidying_is_idempotent_and_keeps_what_stands_before_spaces(text):
    assert tidied(tidied(text)) == tidied(text)
    assert tidied(text).split() == text.split()


class Node:
    def __init__(self, val):
        self.val, self.next, self.left, self.right = val, None, None, None


@given(st.lists(st.integers()))
def test_linked_lists_survive(values):
    assert unlinked(linked(values, Node)) == values


@given(st.lists(st.none() | st.integers()))
def test_trees_survive(values):
    written = level_order(tree(values, Node))
    assert written == level_order(tree(written, Node))
    assert not written or (written[0] is not None and written[-1] is not None)
