"""Rules that write tests for a world's questions: trivial adversaries, which no learning one should be shown without.

A rule returns different argument tuples for a task, those it would rather have first. All but `expert` know what a
person knows: the problem's text, the type of the argument and the values that questions speak of.
"""

import random
from collections.abc import Callable, Iterator

from codea1.game.asserts import Rejected, parse_assert
from codea1.game.calls import CallTest
from codea1.game.question import Question
from codea1.lab.worlds.compositions import ENTRY_POINT, RAISED, Task, assert_line, behaviour, outcome
from codea1.lab.worlds.worlds import LIST, World
from codea1.runtime.errors import BadInput
from codea1.runtime.extras import require

Rule = Callable[[Task, int, random.Random], list[tuple]]
_LENGTHS = range(5)  # of lists that are drawn with no aim


def _statement(task: Task, count: int, rng: random.Random) -> list[tuple]:
    """Returns boundary values, the constants in the problem's text and their neighbours, and random inputs behind."""
    aimed = task.aimed_inputs(task.problem, rng)
    return [*aimed, *(each for each in _uniform(task, count + len(aimed), rng) if each not in aimed)]


def _uniform(task: Task, count: int, rng: random.Random) -> list[tuple]:
    """Returns random integers, or lists of them, of all that questions speak of."""
    domain = task.composition.world.hidden_integers
    if task.composition.family != LIST:
        return [(x,) for x in rng.sample(domain, min(count, len(domain)))]
    lists = [tuple(rng.choices(domain, k=rng.choice(_LENGTHS))) for _ in range(4 * count)]
    return [(list(values),) for values in dict.fromkeys(lists)]


def _fuzzer(task: Task, count: int, rng: random.Random) -> list[tuple]:
    """Returns what Hypothesis draws first of such integers, or lists of them.

    Raises BadInput: Hypothesis is not installed.
    """
    require("hypothesis", "the rule fuzzer")
    from hypothesis import HealthCheck, Phase, given, seed, settings, strategies

    domain, drawn = task.composition.world.hidden_integers, []
    values = strategies.integers(domain[0], domain[-1])
    inputs = values if task.composition.family != LIST else strategies.lists(values).map(tuple)

    @seed(rng.getrandbits(32))
    @settings(max_examples=4 * count, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck))
    @given(inputs)
    def draw(value: int | tuple[int, ...]) -> None:
        drawn.append(value)

    draw()
    return [(list(value) if isinstance(value, tuple) else value,) for value in dict.fromkeys(drawn)]


def _expert(task: Task, count: int, rng: random.Random) -> list[tuple]:
    """Returns what exposes most of the mistakes that the generator plants in this question, chosen greedily.

    It knows the generator's templates, and not which constant of its own a program will have.
    """
    pool, truth = _every(task, count, rng), task.program()
    wrong = [task.program(choices) for choices in task.near_misses(1)]
    exposes = [{i for i, each in enumerate(wrong) if outcome(each, x) != outcome(truth, x)} for x in pool]
    chosen: list[tuple] = []
    left = set(range(len(wrong)))
    while len(chosen) < min(count, len(pool)):
        best = max(range(len(pool)), key=lambda i: len(exposes[i] & left))
        if not exposes[best] & left and left != set(range(len(wrong))):
            left = set(range(len(wrong)))  # all that can be is exposed: once more, by other inputs
            continue
        chosen.append(pool.pop(best))
        left -= exposes.pop(best)
    return chosen


def _every(task: Task, count: int, rng: random.Random) -> list[tuple]:
    """Returns all inputs of the hidden tests, and for functions of lists each value alone and twice."""
    values = task.composition.world.values if task.composition.family == LIST else ()
    edges = [[x] * repeated for x in values for repeated in (1, 2)]
    inputs = [*task.hidden_inputs, *((each,) for each in edges)]
    return [each for i, each in enumerate(inputs) if each not in inputs[:i]]


RULES: dict[str, Rule] = {
    "statement": _statement,
    "uniform": _uniform,
    "fuzzer": _fuzzer,
    "expert": _expert,
    "every": _every,  # no rule to compare with: what a script chooses from
}


def ruled_tests(world: World, rule: str, count: int) -> Iterator[tuple[Question, list[CallTest]]]:
    """Yields the training questions of a world with tests on a rule's inputs, at most `count` each; 0: all.

    Answers are the ground truth's; inputs on which it raises are left out.

    Raises BadInput: there is no such rule, or it needs what is not installed.
    """
    if rule not in RULES:
        raise BadInput(f"there is no rule {rule!r}; there are {', '.join(RULES)}.")
    from codea1.lab.worlds.procedural import tasks

    for task, row in tasks("train", world):
        rng = random.Random(f"rule/{rule}/{task.id}")
        inputs = RULES[rule](task, count, rng)
        answers = zip(inputs, behaviour(task.program(), inputs), strict=True)
        lines = [assert_line(arguments, value) for arguments, value in answers if value is not RAISED]
        tests = [parse_assert(line, ENTRY_POINT) for line in lines[: count or None]]
        question = Question(task.id, None, task.problem, task.description, row["GT_code"], ENTRY_POINT)
        yield question, [test for test in tests if not isinstance(test, Rejected)]
