"""What is trained and on whose word: the methods of the paper as values of one type, not as forks of the loop."""

from dataclasses import dataclass
from enum import Enum


class CodeRewardSource(Enum):
    """Where the Code LLM's reward comes from."""

    GENERATED_TESTS = "generated tests"  # suites of the Test LLM and the Mistake Book
    GOLDEN_TESTS = "golden tests"  # the dataset's fixed tests


@dataclass(frozen=True)
class Method:
    """The rules of one method."""

    players: tuple[str, ...]  # who plays and learns, of "code" and "test"
    code_reward: CodeRewardSource
    mistake_book: bool  # old failures of a question are replayed


METHODS = {
    "code_a1": Method(
        players=("code", "test"),
        code_reward=CodeRewardSource.GENERATED_TESTS,
        mistake_book=True,
    ),
    "golden": Method(
        players=("code",),
        code_reward=CodeRewardSource.GOLDEN_TESTS,
        mistake_book=False,
    ),
}
