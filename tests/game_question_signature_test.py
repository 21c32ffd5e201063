"""Which calls of a ground truth are one input, against what Python itself binds."""

import inspect

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from codea1.game.asserts import parse_assert
from codea1.game.calls import Call, source_of
from codea1.game.question import AS_WRITTEN, UNKNOWN, Question, node_kinds, read_signature
from codea1.game.rewards import REWARDS, OfficialReward
from codea1.values import encode_exact, encode_input
from codea1.values.entry_points import STDOUT

ZERO = encode_exact(0)


def call(source: str) -> Call:
    return parse_assert(f"assert {source} == 0", "f").call


def same(program: str, *sources: str) -> bool:
    signature = read_signature(program, "f")
    return len({signature.key(call(source), ZERO) for source in sources}) == 1


@pytest.mark.parametrize(
    ("parameters", "sources"),
    [
        ("n", ["f(1)", "f(n=1)", "f(*[1])", "f(**{'n': 1})"]),
        ("n, k=2", ["f(1)", "f(n=1)", "f(1, 2)", "f(1, k=2)", "f(k=2, n=1)"]),
        ("n, k=-2 ** 3, /", ["f(1)", "f(1, -8)"]),
        ("n, *, k=(1, [2])", ["f(1)", "f(n=1, k=(1, [2]))"]),
        ("*n, k=Decimal('1.0')", ["f()", "f(k=Decimal('1.0'))"]),
        ("n=0, *rest, **more", ["f(a=1, b=2)", "f(0, b=2, a=1)", "f(n=0, a=1, b=2)"]),
        ("n: int, k: 'list | None' = None", ["f([])", "f([], None)"]),
        ("self, args, kwargs=3", ["f(1, 2)", "f(kwargs=3, args=2, self=1)"]),
    ],
)
def test_spellings_of_one_input(parameters, sources):
    assert same(f"def f({parameters}):\n    return 0", *sources)
    assert not same("", *sources)


@pytest.mark.parametrize(
    ("parameters", "one", "other"),
    [
        ("n, k=2", "f(1)", "f(1, 3)"),
        ("n, k=2", "f(1)", "f('1')"),
        ("n", "f([1, 2])", "f([2, 1])"),
        ("n", "f([1, 2])", "f({1, 2})"),
        ("n", "f('ab')", "f(['a', 'b'])"),
        ("n", "f([])", "f('')"),
        ("n", "f([[], 1])", "f([[1]])"),
        ("a, b", "f(1, 2)", "f(2, 1)"),
        ("*a", "f(1)", "f((1,))"),
        ("*a, **k", "f(1)", "f(a=1)"),
        ("a, /, **k", "f(1)", "f(1, a=1)"),
        ("n, k=SENTINEL", "f(1)", "f(1, None)"),  # a default that cannot be read is no literal's equal
        ("n", "f(1)", "f(1, 2)"),  # cannot be bound: each spelling is its own
        ("n", "f()", "f(1, n=1)"),
        ("n", "f(1, 2)", "f(1, m=2)"),
    ],
)
def test_other_inputs(parameters, one, other):
    assert not same(f"def f({parameters}):\n    return 0", one, other)


def test_a_default_that_cannot_be_read_is_still_one_input_when_left_out():
    assert same("def f(n, k=SENTINEL):\n    return 0", "f(1)", "f(n=1)")


@pytest.mark.parametrize(
    "program",
    [
        "def f(m):\n    pass\ndef f(n):\n    pass",
        "f = None\nfrom math import *\ndef f(n):\n    pass",
        "class Solution:\n    def f(self, m):\n        f = 3\ndef f(n):\n    return Solution().f(n)",
        "def f(n):\n    f.calls = 1\ndef g(f):\n    f = 2",
        "import functools\n@functools.lru_cache(maxsize=None)\ndef f(n):\n    pass",
        "from functools import cache\n@cache\ndef f(n):\n    pass",
    ],
)
def test_the_last_definition_is_the_one_that_counts(program):
    assert same(program, "f(1)", "f(n=1)")


@pytest.mark.parametrize(
    "program",
    [
        "f = lambda n: n",
        "class f:\n    def __new__(cls, n):\n        return n",
        "async def f(n):\n    pass",
        "@wraps(g)\ndef f(n):\n    pass",
        "if True:\n    def f(n):\n        pass",
        "def g(n):\n    pass\nf = g",
        "def f(n):\n    pass\nf = other(f)",
        "def f(n):\n    pass\nfor f in []:\n    pass",
        "def f(n):\n    pass\nfrom m import g as f",
        "def f(n):\n    pass\nfrom m import *",
        "def f(n):\n    pass\nimport f.g",
        "def f(n):\n    pass\ntry:\n    pass\nexcept E as f:\n    pass",
        "def f(n):\n    pass\ndef g():\n    global f\n    f = 3",
        "def f(n):\n    pass\nif (f := 3):\n    pass",
        "def f(n):\n    pass\ndel f",
        "def f(n, n):\n    pass",
        "def f(n) return",
        "def f(n):\n    pass\n" + "#" * 20_000,
        "def g(n):\n    pass",
        "x = " + "(" * 5_000,
    ],
)
def test_without_one_plain_definition_no_name_is_known(program):
    assert same(program, "f([1])", "f((1.0,))")
    assert not same(program, "f(1)", "f(n=1)")
    assert same(program, "f(1, k=2, j=3)", "f(1, j=3, k=2)")


METHODS = """
class Solution:
    cache = {}
    def f(self, m):
        return m
    def f(self, n, k=2):
        return self.g(n)
    @staticmethod
    def g(n):
        return n
"""


def test_calls_of_a_method_are_bound_without_self():
    signature = read_signature(METHODS, "Solution().f")
    calls = [
        parse_assert(f"assert Solution().f({given}) == 0", "Solution().f").call
        for given in ("1", "n=1", "1, 2", "k=2, n=1")
    ]
    assert len({signature.key(each, ZERO) for each in calls}) == 1
    assert read_signature(METHODS, "Solution().g") is UNKNOWN  # a static method has no self
    assert read_signature(METHODS.replace("self, n,", "self=None, n=1,"), "Solution().f").bind
    assert read_signature(METHODS + "Solution = wrapped(Solution)", "Solution().f") is UNKNOWN
    assert read_signature("@wrapped\n" + METHODS.lstrip(), "Solution().f") is UNKNOWN


@pytest.mark.parametrize(
    ("annotations", "kinds", "answer"),
    [
        ("n: int, head: Optional[ListNode]) -> ListNode", {"n": "", "head": "linked"}, "linked"),
        ("root: 'TreeNode', /, *, k) -> List[TreeNode]", {"root": "tree", "k": ""}, "tree, many"),
        ("lists: list[Optional[ListNode]]) -> None", {"lists": "linked, many"}, ""),
    ],
)
def test_annotations_tell_which_parameters_are_nodes(annotations, kinds, answer):
    program = f"class Solution:\n    def f(self, {annotations}:\n        pass\n"
    assert node_kinds(program, "Solution().f") == (kinds, answer)
    assert node_kinds("x =", "Solution().f") == ({}, "")


def test_a_large_default_is_no_literals_equal():
    assert not same("def f(n=[0] * 20_000):\n    pass", "f()", "f([0])")


def test_as_written_a_call_is_known_by_its_arguments():
    assert AS_WRITTEN.key(call("f(1)"), ZERO) == (call("f(1)").arguments, b"")


IN_EIGHT_TYPES = [
    "[2, 1]",
    "[2.0, 1]",
    "(2, 1)",
    "[2, True]",
    "(2, Fraction(1))",
    "deque([2, Decimal(1)])",
    "b'\\2\\1'",
    "range(2, 0, -1)",
]


@pytest.mark.parametrize("wrapped", ["{}", "[{}]", "{{'k': {}}}", "k={}"])
def test_one_input_in_other_types_is_one_where_the_ground_truth_answers_alike(wrapped):
    signature = read_signature("def f(n=0, k=([2, 1], 3)): ...", "f")
    calls = [call(f"f({wrapped.format(each)})") for each in IN_EIGHT_TYPES]
    answers = [encode_exact(each) for each in ([1, 2], (1, 2.0), [True, 2])]
    assert len({signature.key(each, answer) for each in calls for answer in answers}) == 1
    assert signature.key(calls[0], ZERO) != signature.key(calls[0], encode_exact("0"))  # it may be about types


def test_a_default_is_one_input_with_its_equals():
    assert same("def f(n, k=(2, 1.0)): ...", "f(1)", "f(1, [2, True])", "f(1.0, k=(2, 1))")


def test_a_standard_input_is_its_words():
    signature = read_signature("print(input())", STDOUT)
    spellings = ['"2 1"', '"2 1\\n"', 'text="2 1"', '" 2\\t1 \\n\\n"', '"2\\n1"']
    calls = [parse_assert(f'assert stdout({each}) == "1"', STDOUT).call for each in spellings]
    assert len({signature.key(each, ZERO) for each in calls}) == 1
    other = parse_assert('assert stdout("21") == "1"', STDOUT).call
    assert signature.key(other, ZERO) != signature.key(calls[0], ZERO)


def test_the_official_policy_alone_compares_calls_as_written():
    question = Question("q", None, "", "", "def f(n):\n    return n", "f")
    rules = {name: policy(alpha=0.5, num_tests=2) for name, policy in REWARDS.items()}
    as_written = {name for name, reward in rules.items() if reward.signature(question) is AS_WRITTEN}
    assert as_written == {name for name, reward in rules.items() if type(reward).signature is OfficialReward.signature}
    assert {"official"} == as_written & {"official", "strict", "strict_tests", "simple"}


NAMES = ["a", "b", "c", "args", "self"]
VALUES = st.sampled_from([0, 1, True, 1.0, None, "x", (), [], [1]])


@st.composite
def signatures(draw) -> str:
    """The parameters of a `def`, of every kind."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    first = draw(st.integers(0, len(names)))  # from which positional parameters have defaults
    slash, split = sorted([draw(st.integers(0, len(names))), draw(st.integers(0, len(names)))])
    parts = []
    for place, name in enumerate(names):
        optional = place >= first if place < split else draw(st.booleans())
        if place == split:
            parts.append(draw(st.sampled_from(["*", "*rest"])))
        parts.append(f"{name}={source_of(draw(VALUES))}" if optional else name)
        if place + 1 == slash:
            parts.append("/")
    return ", ".join(parts + draw(st.sampled_from([[], ["**more"]])))


CALLS = st.tuples(
    st.lists(VALUES, max_size=4), st.dictionaries(st.sampled_from([*NAMES, "rest", "z"]), VALUES, max_size=3)
)


@given(signatures(), CALLS, CALLS)
@settings(max_examples=1000)
def test_two_spellings_have_one_key_exactly_when_python_binds_them_alike(parameters, one, other):
    program = f"def f({parameters}):\n    return locals()"
    namespace: dict = {}
    exec(program, namespace)
    signature = read_signature(program, "f")

    def written(spelling: tuple[list, dict]) -> Call:
        return Call("f", encode_exact((tuple(spelling[0]), dict(sorted(spelling[1].items())))))

    def bound(spelling: tuple[list, dict]) -> bytes:
        try:
            arguments = namespace["f"](*spelling[0], **dict(sorted(spelling[1].items())))
        except TypeError:
            return encode_input((tuple(spelling[0]), dict(sorted(spelling[1].items()))))
        return encode_input(dict(sorted(arguments.items())))

    keys = signature.key(written(one), ZERO), signature.key(written(other), ZERO)
    assert (keys[0] == keys[1]) == (bound(one) == bound(other))


@given(signatures(), CALLS, st.data())
@settings(max_examples=500)
def test_an_input_has_one_key_however_it_is_spelled(parameters, spelling, data):
    namespace: dict = {}
    exec(f"def f({parameters}):\n    pass", namespace)
    signature = inspect.signature(namespace["f"])
    # With **more, inspect of Python 3.13.0 is wrong about a name that is also a positional-only parameter's.
    assume(
        not any(
            each.kind is each.POSITIONAL_ONLY and each.name in spelling[1] for each in signature.parameters.values()
        )
    )
    try:
        bound = signature.bind(*spelling[0], **spelling[1])
    except TypeError:
        return
    bound.apply_defaults()
    positional, named = list(bound.args), dict(bound.kwargs)
    movable = [name for name, each in signature.parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    if not bound.arguments.get("rest"):  # nothing after them: the last ones may be written by name
        for name in reversed(movable[data.draw(st.integers(0, len(movable))) :]):
            named[name] = positional.pop()
    key = read_signature(f"def f({parameters}):\n    pass", "f").key
    calls = [Call("f", encode_exact((tuple(p), dict(sorted(n.items()))))) for p, n in (spelling, (positional, named))]
    assert len({key(each, ZERO) for each in calls}) == 1
