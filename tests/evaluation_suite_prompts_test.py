"""How suites are asked for, with players whose answers are known."""

from collections.abc import Iterator, Sequence

import numpy as np

from codea1.game.prompts import DEFAULT
from codea1.lab.benchmarks.benchmarks import TESTEVAL, ULT, SuiteTask
from codea1.lab.benchmarks.best_of_n import ask_for_asserts
from codea1.lab.benchmarks.suites import NEXT, ask_in_rounds, round_messages, suite_of_asserts
from codea1.rollout.engine import Request, Sample

TASK = SuiteTask("1", "f", "def f(x):\n    return {'{x}': x}", "Braces {call}.")
LONG = SuiteTask("2", "f", "#" * 5_000, "Too long.")


class _Player:
    """Says "test N of TASK", or what it is told to say; a token is a whole text."""

    def __init__(self, longest: int = 4_000, says: str = ""):
        self.tokenizer, self.longest, self.says = self, longest, says
        self.texts: list[str] = []
        self.chats: dict[tuple[int, ...], Sequence[dict[str, str]]] = {}
        self.asked: list[tuple[str, int, Sequence[dict[str, str]]]] = []

    def decode(self, ids: Sequence[int]) -> str:
        return self.texts[ids[0]]

    def prompt_ids(self, messages: Sequence[dict[str, str]]) -> tuple[int, ...]:
        ids = tuple("".join(message["content"] for message in messages).encode())
        self.chats[ids] = messages
        return ids

    def fits(self, prompt_ids: Sequence[int]) -> bool:
        return len(prompt_ids) <= self.longest

    def generate(self, requests: Sequence[Request], **_: object) -> Iterator[Sample]:
        for request in reversed(requests):
            self.asked.append((request.question_id, request.first_sample, self.chats[request.prompt_ids]))
            self.texts.append(self.says or f"test {request.first_sample} of {request.question_id}")
            token = len(self.texts) - 1
            yield Sample(request.question_id, request.first_sample, (), (token,), np.zeros(1), "stop")


def test_a_round_shows_the_tests_before_it():
    messages = round_messages(ULT, TASK, ["one", "two"])
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    first = messages[1]["content"]
    assert TASK.program in first
    assert "Braces {call}." in first
    assert first.endswith("def test_f():")
    assert [message["content"] for message in messages[2:]] == ["one", NEXT, "two", NEXT]
    assert "solution = Solution()" in round_messages(TESTEVAL, TASK, [])[1]["content"]


def test_suites_grow_by_a_test_a_round():
    player = _Player()
    answers = dict(ask_in_rounds(ULT, [TASK, LONG], player, player.generate, {}))
    assert answers == {("1", number): f"test {number} of 1" for number in range(5)}
    assert [len(messages) for _, _, messages in player.asked] == [2, 4, 6, 8, 10]


def test_answers_there_are_not_asked_for_again():
    player, done = _Player(), {("1", 0): "first", ("1", 2): "third"}
    answers = dict(ask_in_rounds(ULT, [TASK], player, player.generate, done))
    assert sorted(answers) == [("1", 1), ("1", 3), ("1", 4)]
    last = [message["content"] for message in player.asked[-1][2] if message["role"] == "assistant"]
    assert last == ["first", "test 1 of 1", "third", "test 3 of 1"]


def test_the_oldest_tests_go_when_the_chat_is_too_long():
    room = len("".join(message["content"] for message in round_messages(ULT, TASK, ["test 0 of 1", "test 1 of 1"])))
    player = _Player(longest=room)
    assert len(dict(ask_in_rounds(ULT, [TASK], player, player.generate, {}))) == 5
    last = player.asked[-1][2]
    assert [message["content"] for message in last if message["role"] == "assistant"] == ["test 2 of 1", "test 3 of 1"]
    assert TASK.program in last[1]["content"]


def test_asserts_come_in_one_answer():
    player = _Player(says="```python\nx = 3\nassert f(x) == 4\nassert f([1,\n 2]) == g()\n```")
    wanted = [((task.id, 0), task.id, task.question, task.program) for task in (TASK, LONG)]
    answers = dict(ask_for_asserts(wanted, player, player.generate, DEFAULT, 8, {}))
    assert [*answers] == [("1", 0)]
    assert suite_of_asserts(answers["1", 0], "f") == ["assert f(3) == 4", "assert f([1,\n 2]) == g()"]
    assert "Write 8 test cases" in player.asked[0][2][1]["content"]
    assert TASK.program in player.asked[0][2][1]["content"]
    assert dict(ask_for_asserts(wanted[:1], player, player.generate, DEFAULT, 8, answers)) == {}


def test_who_learned_without_solutions_is_shown_none():
    player = _Player(says="assert f(3) == 4")
    wanted = [((TASK.id, 0), TASK.id, TASK.question, None)]
    assert dict(ask_for_asserts(wanted, player, player.generate, DEFAULT, 8, {}))
    ((_, _, messages),) = player.asked
    assert "".join(message["content"] for message in messages).count(TASK.program) == 0
    assert TASK.description in messages[1]["content"]
