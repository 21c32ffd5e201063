"""Rules that write tests for a world's questions: trivial adversaries, which no learning one should be shown without.

A rule returns different argument tuples for a task, those it would rather have first. It knows what a person knows: the
problem's text, the type of the argument and the values that questions speak of.
"""

import random
from collections.abc import Callable, Iterator

from codea1.game.asserts import Rejected, parse_assert
from codea1.game.calls import CallTest
from codea1.game.question import Question
from codea1.lab.worlds.compositions import ENTRY_POINT, RAISED, Task, assert_line, behaviour
from codea1.lab.worlds.procedural import tasks
from codea1.lab.worlds.worlds import LIST, World
from codea1.runtime.errors import BadInput

Rule = Callable[[Task, int, random.Random], list[tuple]]
_LENGTHS = range(5)  # of lists that are drawn with no aim


def _statement(task: Task, count: int, rng: random.Random) -> list[tuple]:
    """Returns boundary values, the constants in the problem's text and their neighbours, and random inputs behind."""
    aimed = task.aimed_inputs(task.problem, rng)
    return [*aimed, *(value for value in _uniform(task, count + len(aimed), rng) if value not in aimed)]


def _uniform(task: Task, count: int, rng: random.Random) -> list[tuple]:
    """Returns random integers, or lists of them, of all that questions speak of."""
    domain = task.composition.world.hidden_integers
    if task.composition.family != LIST:
        return [(x,) for x in rng.sample(domain, min(count, len(domain)))]
    lists = [tuple(rng.choices(domain, k=rng.choice(_LENGTHS))) for _ in range(4 * count)]
    return [(list(values),) for values in dict.fromkeys(lists)]


RULES: dict[str, Rule] = {
    "statement": _statement,
    "uniform": _uniform,
}


def ruled_tests(world: World, rule: str, count: int) -> Iterator[tuple[Question, list[CallTest]]]:
    """Yields the training questions of a world with tests on a rule's inputs, at most `count` each.

    Answers are the ground truth's; inputs on which it raises are left out. Raises BadInput: there is no such rule.
    """
    if rule not in RULES:
        raise BadInput(f"there is no rule {rule!r}; there are {', '.join(RULES)}.")
    for task, row in tasks("train", world):
        rng = random.Random(f"rule/{rule}/{task.id}")
        inputs = RULES[rule](task, count, rng)
        answers = zip(inputs, behaviour(task.program(), inputs), strict=True)
        lines = [assert_line(arguments, value) for arguments, value in answers if value is not RAISED]
        tests = [parse_assert(line, ENTRY_POINT) for line in lines[:count]]
        question = Question(task.id, None, task.problem, task.description, row["GT_code"], ENTRY_POINT)
        yield question, [test for test in tests if not isinstance(test, Rejected)]
