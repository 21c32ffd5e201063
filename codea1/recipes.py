"""What `method=` of a shipped config can be: a method of `codea1.game.methods`, or a recipe that other fields make."""

from ml_collections import ConfigDict

from codea1.errors import BadInput
from codea1.game.methods import METHODS

SIMPLE, SFT = "simple", "sft"


def use_method(config: ConfigDict, name: str, static_tests: str = "") -> None:
    """Sets what a method or recipe is made of; `sft` is left to the config, which knows what it starts from.

    Raises BadInput: there is no such one.
    """
    if name not in (*METHODS, SIMPLE, SFT):
        raise BadInput(f"method={name} is unknown; known are {', '.join((*METHODS, SIMPLE, SFT))}.")
    config.data.static_tests = static_tests
    if name in METHODS:
        config.method = name
    if name == SIMPLE:
        _use_simple(config)


def _use_simple(config: ConfigDict) -> None:
    """A simpler variant in circulation, where it differs from Code-A1: who plays, sees and answers what stays.

    Rewards are those of `codea1.game.rewards.SimplePolicy` with weight 0.6. The Mistake Book has at most 2,000 tests in
    all: those that a program failed, of suites paid more than 0.5; they are replayed in proportion to what was paid.
    Plain policy gradient: one optimizer step on all samples of a training step, where the ratio is 1 and nothing is
    clipped, with rewards normalised over the batch of each role; no KL term; AdamW with a constant rate of 1e-5. The
    description says nothing of TOPVAR: the config's stays, and the Test LLM's batch is the suites that it selects.
    """
    config.game.reward = "simple"
    config.game.alpha = 0.6
    config.game.book_policy = "reward"
    config.game.book_total_cap = 2000
    for player in (config.code, config.test):
        player.advantage = "batch"
        player.mini_batches = 1
        player.kl_coefficient = 0.0
        player.learning_rate = 1e-5
        player.warmup_steps = 0
        player.decay = "constant"
