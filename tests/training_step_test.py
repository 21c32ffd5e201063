"""A round: how programs are read; what hosts, here threads, replay and learn from the Mistake Book."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from bench.micro_run import content
from codea1.game.answers import extract_program, parse_suite
from codea1.game.mistake_book import Bound, MistakeBook, shards_of_host
from codea1.game.prompts import DEFAULT
from codea1.game.question import Question
from codea1.game.rewards import REWARDS
from codea1.game.round import GradedTest, QuestionRecord, Round, SolutionRecord, SuiteRecord
from codea1.game.signature import AS_WRITTEN
from codea1.rollout.engine import Sample
from codea1.runtime.hosts import Hosts
from codea1.training.step import Step
from codea1.values.verdict import Verdict
from tests.game_round_test import STRICT, Truth, sample
from tests.mistake_books import joined, make
from tests.shares_test import on_hosts

NAMES = [f"q{number}" for number in range(9)]


def played(step: int, history: dict[str, list]) -> Round:
    """A round in which two programs pass every second replayed test, and fail new ones."""
    records = []
    for place, name in enumerate(NAMES):
        question = Question(name, None, "", "", "def f(n):\n    return n + 1", "f")
        suite = failed_suite(*range(step, step + place % 4 + 1))
        verdicts = [Verdict.PASS if number % 2 else Verdict.FAIL for number in range(len(history[name]))]
        graded = [GradedTest(test, verdict) for test, verdict in zip(history[name], verdicts, strict=True)]
        solutions = [SolutionRecord(m, sample(""), extract_program(""), True, [suite], graded) for m in range(2)]
        records.append(QuestionRecord(question, solutions))
    return Round(step, records)


def failed_suite(*numbers: int) -> SuiteRecord:
    text = "\n".join(["```python", *(f"assert f({n}) == {n + 1}" for n in numbers), "```"])
    parsed = parse_suite(text, "f")
    answers = {make(n).call: Truth(make(0, n + 1).expected) for n in numbers}
    marked = STRICT.mark(parsed, answers, AS_WRITTEN)
    return SuiteRecord(0, sample(text), parsed, marked, [Verdict.FAIL for item in marked if item.runs])


@pytest.mark.parametrize("most", [0, 7])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_rounds_teach_the_same_book_whatever_the_hosts(count, most):
    rules = SimpleNamespace(history_size=2, max_rounds=1)

    def program(hosts: Hosts) -> tuple[MistakeBook, list]:
        book, seen = MistakeBook(shards_of_host(hosts.index, hosts.count), Bound(max_total=most)), []
        for number in range(1, 6):
            step = Step(number, {}, rules, None, None, book, hosts)
            step._batch = played(number, step.retrieve([SimpleNamespace(id=name) for name in NAMES]))
            step.update_book()
            replayed = [[run.test.text for run in solution.history] for solution in step.round.solutions]
            seen.append((replayed, step.round.book_change, step.round.book_size))
        return book, seen

    (alone, expected), *_ = on_hosts(1, program)
    assert any(tests for replayed, _, _ in expected for tests in replayed)
    assert all(change.added and size for _, change, size in expected)
    books, seen = zip(*on_hosts(count, program), strict=True)
    assert list(seen) == [expected] * count
    assert content(joined(books)) == content(alone.pages())
    assert expected[-1][2] == alone.size > 0
    assert most == 0 or all(size <= most and change.evicted for _, change, size in expected)
    assert all(book.holds(name) or not book.retrieve(name, 1) for book in books for name in NAMES)


def test_without_a_book_nothing_is_told():
    class Nobody(Hosts):
        def exchange(self, value):
            raise AssertionError("there is nothing to tell")

    rules = SimpleNamespace(history_size=0, max_rounds=1)
    step = Step(1, {}, rules, None, None, MistakeBook(), Nobody())
    assert step.retrieve([SimpleNamespace(id=name) for name in NAMES]) == {name: [] for name in NAMES}


@pytest.mark.parametrize(
    ("reward", "program"),
    [("official", "```\nx = 1\n```"), ("strict", "x = 1"), ("strict_tests", "x = 1"), ("simple", "x = 1")],
)
def test_a_program_is_read_as_the_reward_reads_it(reward, program):
    player = SimpleNamespace(
        prompt_ids=lambda messages: (1,),
        fits=lambda ids: True,
        generate=lambda requests, **_: [Sample("q0", 0, (1,), (2,), (0.0,), "stop")],
        tokenizer=SimpleNamespace(transcript=str, decode=lambda ids: "```\nx = 1\n```"),
    )
    rules = SimpleNamespace(
        reward=REWARDS[reward](0.5, 8),
        templates=DEFAULT,
        num_solutions=1,
        golden=False,
        max_rounds=1,
        hidden_reward=False,
    )
    grader = SimpleNamespace(grade=lambda *_: Future())
    step = Step(1, {"code": player}, rules, None, grader, None, Hosts())
    question = Question("q0", None, "", "", "", "f")
    ((_, solution),) = step.sample_solutions([question], {"q0": []})
    assert solution.program.source == program
