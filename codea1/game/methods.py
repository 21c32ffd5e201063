"""What is trained, and by which rewards: the methods of the paper as values of one type, not as forks of the loop.

Where the paper leaves a method's recipe open, ours is stated here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from codea1.game.prompts import TEMPLATES, PromptTemplates
from codea1.game.rewards import Reward
from codea1.game.round import SuiteGroup
from codea1.runtime.errors import BadInput, StorageOutage
from codea1.storage.objects import location, read


class CodeRewardSource(Enum):
    """Where the Code LLM's reward comes from."""

    GENERATED_TESTS = "generated tests"  # suites of the Test LLM and the Mistake Book
    GOLDEN_TESTS = "golden tests"  # the dataset's fixed tests
    STATIC_TESTS = "static tests"  # fixed tests too, which a Test LLM wrote before: see `codea1.lab dump_tests`


@dataclass(frozen=True)
class Method:
    """The rules of one method."""

    roles: Mapping[str, str]  # "code" and "test", those that are played: the policy that plays each
    code_reward: CodeRewardSource
    sees_solution: bool = False  # the Test LLM is shown the solution that its suite is for
    mistake_book: bool = False  # old failures of a question are replayed

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that there are, each a section of the config."""
        return tuple(dict.fromkeys(self.roles.values()))

    @property
    def fixed_tests(self) -> bool:
        """Whether fixed tests pay the Code LLM, run instead of replayed ones, and there is no Test LLM."""
        return self.code_reward is not CodeRewardSource.GENERATED_TESTS

    def roles_of(self, policy: str) -> tuple[str, ...]:
        """Returns what a policy plays."""
        return tuple(role for role, plays in self.roles.items() if plays == policy)


_GENERATED = CodeRewardSource.GENERATED_TESTS
_TWO = {"code": "code", "test": "test"}
_ONE = {"code": "code", "test": "code"}

METHODS = {
    "code_a1": Method(_TWO, _GENERATED, sees_solution=True, mistake_book=True),
    # Golden-test RL: the share of the dataset's own tests that a solution passes.
    "golden": Method({"code": "code"}, CodeRewardSource.GOLDEN_TESTS),
    # The same on tests that a Test LLM wrote for the training questions.
    "static_tests": Method({"code": "code"}, CodeRewardSource.STATIC_TESTS),
    # Code-A1 whose Test LLM is not shown the solution. The reference's "nocode" trainer was not released; by its name
    # it is the same loop with another prompt, and so it is here: N suites for each of the M solutions, each judged on
    # its solution alone, with Code-A1's rewards, groups, TOPVAR, book and cost. What a suite is paid for stays a matter
    # of its solution, so the M * N answers to one prompt are compared in M groups.
    "black_box": Method(_TWO, _GENERATED, mistake_book=True),
    # One policy, with the config's section "code", plays both roles of `black_box`: same M and N, prompts, rewards,
    # groups, TOPVAR and book. A step's solutions and selected suites, each with the advantages of its own group and
    # role, are dealt at random into the same mini-batches: one loss, the mean over the response tokens of both roles,
    # one KL term to one reference, one optimizer. So the policy makes as many optimizer steps as either player of
    # Code-A1, on the samples of both. The paper leaves its mixing, reward, N and book open.
    "self_play": Method(_ONE, _GENERATED, mistake_book=True),
    # The same policy is shown its own solution when it writes suites for it. It can be paid in both roles by tests that
    # it passes: the paper says that it comes to write such tests, which is why its Self-Play is a black box.
    "self_play_white_box": Method(_ONE, _GENERATED, sees_solution=True, mistake_book=True),
}


@dataclass(frozen=True)
class Rules:
    """How the game is played."""

    method: Method
    reward: Reward
    templates: PromptTemplates
    num_solutions: int  # M
    num_suites: int  # N
    num_tests: int  # K: asserts asked for in a suite
    all_forms: bool  # of asserts that state a value count, not `f(x) == v` alone
    history_size: int  # tests of the Mistake Book replayed per question; 0 without a book
    trained_solutions: int  # solutions per question whose suites train the Test LLM
    selection: Callable[[SuiteGroup], float]  # that score highest
    seed: int  # of what the game draws itself
    questions_per_step: int
    max_rounds: int  # most batches in a step, until the rewards of questions_per_step questions differ
    hidden_reward: bool  # check scripts and hidden mutants run, which no reward reads


def own_files(reward: str, prompts: str) -> dict[str, tuple[str, bytes]]:
    """Returns path and content of the files that these settings of a game name, by setting: a reward's, templates.

    Raises BadInput: one cannot be read.
    """
    named = {"reward": reward.rpartition(":")[0], "prompts": "" if prompts in TEMPLATES else prompts}
    return {setting: (path, own_file(path, setting)) for setting, path in named.items() if path}


def own_file(path: str, setting: str) -> bytes:
    """Returns the content of the file that a setting of a game names. Raises BadInput: it cannot be read."""
    try:
        return read(location(path, f"config.game.{setting}"))
    except StorageOutage:
        raise
    except FileNotFoundError:
        raise BadInput(f"config.game.{setting}: there is no file {path}.") from None
    except OSError as error:
        raise BadInput(f"config.game.{setting} {path} cannot be read: {error}.") from None


def prompt_templates(name: str) -> PromptTemplates:
    """Returns the templates of that name, or in that file. Raises BadInput: it cannot be used."""
    if name in TEMPLATES:
        return TEMPLATES[name]
    try:
        return PromptTemplates.from_json(own_file(name, "prompts").decode(), name)
    except UnicodeDecodeError as error:
        raise BadInput(f"config.game.prompts {name} is no text: {error}.") from None
