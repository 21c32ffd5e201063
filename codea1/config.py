"""The config of a run: every field with its unit and default, and the rules that it must keep.

Defaults are the paper's where it has a value: the steps and their questions, `game`, how the players `code` and `test`
sample and learn, how often a run is validated and saved. Ours are `data`, `sandbox`, `model`, `rollout`, `mesh`,
`watchdog`, `profile`, `sft`, a player's `critic` and what it compiles for, and the rest of `validation` and
`checkpoint`. docs/differences.md has what differs from the paper all the same.

A config file returns `default_config()` changed. `get_config(arg)` takes the text after the colon of
`--config=configs/tiny.py:seed=1,method=golden`, read by `parse_arg`; `--config.game.alpha=0.25` overrides one field.
"""

import math
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from codea1.data.sources import world_of
from codea1.game.methods import METHODS, CodeRewardSource, own_file
from codea1.game.mistake_book import EVICTION_RULES
from codea1.game.prompts import TEMPLATES
from codea1.game.reward_files import FunctionReward, reward_class
from codea1.game.rewards import REWARDS
from codea1.game.round import SELECTIONS
from codea1.runs.folder import RunFolder
from codea1.runtime import removed
from codea1.runtime.errors import BadInput
from codea1.runtime.extras import is_installed, needs
from codea1.runtime.fields import leaves, nearest
from codea1.sandbox.isolation import ISOLATIONS

SIMPLE, SFT = "simple", "sft"  # what `method=` of a shipped config can be besides a method


class Where(NamedTuple):
    """Where some fields are read; elsewhere another value than their default would decide nothing and is refused.

    Whole sections that a method, a frozen player or a command leaves alone have none: one config serves them all.
    """

    said: str
    holds: Callable[[ConfigDict, ConfigDict], bool]  # of the config and of the field's section


@dataclass(frozen=True)
class Field:
    """What a section has instead of a default until `default_config` takes it out: the field has a rule."""

    default: Any
    rule: str = ""  # what a value must do
    holds: Callable[[Any], bool] = lambda _: True
    where: tuple[Where, ...] = ()


def positive(default: float, *where: Where) -> Field:
    """Returns a field of numbers above 0."""
    return Field(default, "be greater than 0", lambda value: value > 0, where)


def not_negative(default: float, *where: Where) -> Field:
    """Returns a field of numbers from 0 on."""
    return Field(default, "be 0 or greater", lambda value: value >= 0, where)


def share(default: float, *where: Where) -> Field:
    """Returns a field of numbers from 0 to 1."""
    return Field(default, "lie between 0 and 1", lambda value: 0 <= value <= 1, where)


def decay(default: float) -> Field:
    """Returns a field of the decay of a moment of Adam: with 1 the moment would stay what it is, 0."""
    return Field(default, "be 0 or greater and less than 1", lambda value: 0 <= value < 1)


def lengths() -> Field:
    """Returns a field of lengths in tokens, by default none."""
    return Field((), "hold numbers greater than 0", lambda value: all(length > 0 for length in value))


def one_of(default: Any, choices: Collection[Any], *where: Where) -> Field:
    """Returns a field of what is chosen by name.

    The names of learn/ and models/ are written out because those import JAX, which takes seconds, and a wrong flag is
    reported before; tests/program_test.py compares them with the tables there.
    """
    return Field(default, f"be one of {', '.join(map(str, sorted(choices)))}", lambda value: value in choices, where)


WEIGHS_VALIDITY = Where(
    "the reward weighs validity",
    lambda _, game: REWARDS[game.reward](0.0, 1).weights != REWARDS[game.reward](1.0, 1).weights,
)
HAS_TEST_LLM = Where("there is a Test LLM", lambda config, _: "test" in METHODS[config.method].roles)
HAS_BOOK = Where("game.mistake_book is True", lambda _, game: game.mistake_book)
IS_GRPO = Where("advantage is grpo", lambda _, player: player.advantage == "grpo")
IS_GAE = Where("advantage is gae", lambda _, player: player.advantage == "gae")
IS_PPO = Where("surrogate is ppo", lambda _, player: player.surrogate == "ppo")
HAS_KL = Where("kl_coefficient is not 0", lambda _, player: player.kl_coefficient > 0)
FROM_TRAINER = Where("old_log_probs is trainer", lambda _, player: player.old_log_probs == "trainer")
HAS_ADAPTERS = Where("lora.rank is not 0", lambda _, player: player.lora.rank > 0)


def question_source(split: str) -> ConfigDict:
    """Returns where a set of questions comes from."""
    c = ConfigDict()
    # "procedural"; or the path or gs:// URL of a .parquet or .jsonl file with the official fields, or of the folder of
    # a dataset with them that tensorflow-datasets prepared as array_record files.
    c.source = "procedural"
    c.split = split  # split of a dataset; files have one split and ignore it
    c.limit = not_negative(0)  # questions: only the first so many; 0 for all
    return c


def player(max_prompt_length: int) -> ConfigDict:
    """Returns one policy: the model it starts from, how it samples and how it learns."""
    c = ConfigDict()
    # Folder with config.json, model.safetensors and the tokenizer's files; or with adapter_config.json and
    # adapter_model.safetensors, as PEFT has them: the base is the folder that they name.
    c.model = ""
    # Of codea1.models.config.PUBLISHED; the folder must agree, and `compile_tpu` needs no folder then.
    of_qwen2 = [f"qwen2.5-coder-{size}" for size in ("0.5b", "1.5b", "3b", "7b", "14b", "32b")]
    c.shape = one_of("", ("", *of_qwen2, "qwen3-coder-30b-a3b"))
    c.max_prompt_length = positive(max_prompt_length)  # tokens
    c.prompt_lengths = lengths()  # tokens: further lengths that shorter prompts are padded to; each is compiled for
    c.max_response_length = positive(4096)  # tokens
    c.stop_at_block = False  # an answer ends with its first code block: nothing follows the program or the tests
    c.thinking = one_of("", ("", "off", "on"))  # the chat template's enable_thinking; "": its own. No part of answers
    c.temperature = positive(1.0)  # of training samples; log-probs are those of the same tempered softmax

    c.lora = ConfigDict()  # adapters on the kernels of all layers, on a base that is frozen; the paper has none
    c.lora.rank = not_negative(0)  # of the adapters; 0: there are none, and all weights train
    c.lora.alpha = positive(32.0, HAS_ADAPTERS)  # what an adapter adds counts alpha / rank times, as PEFT has it

    c.learning_rate = positive(1e-6)  # peak
    c.warmup_steps = not_negative(10)  # training steps; the first has learning rate 0
    c.decay = one_of("cosine", ("cosine", "linear", "constant"))  # after warm-up, towards 0 one step after the last
    c.adam_b1 = decay(0.9)
    c.adam_b2 = decay(0.999)
    c.adam_eps = positive(1e-8)
    c.weight_decay = not_negative(0.1)  # decoupled, on all parameters
    c.max_grad_norm = positive(1.0)  # global norm

    c.mini_batches = positive(2)  # optimizer steps per training step
    c.micro_batch_size = positive(8)  # longest sequences whose activations are alive at once; the result is the same
    c.row_lengths = lengths()  # tokens: further row lengths of micro-batches; each is compiled for
    # A row of a micro-batch holds prompts once, each with all its responses, and may be longer than a sequence;
    # mini-batches then hold whole groups.
    c.share_prompts = False
    # The ratio's denominator: "trainer" scores the samples again, "sampler" does not.
    c.old_log_probs = one_of("trainer", ("trainer", "sampler"))
    # Of codea1.learn.advantages; "gae": PPO with a critic.
    c.advantage = one_of("grpo", ("grpo", "gdpo", "rloo", "reinforce++-baseline", "batch", "raft", "gae"))
    c.normalize_by_std = Field(True, where=(IS_GRPO,))  # False subtracts the group's mean alone
    c.surrogate = one_of("ppo", ("ppo", "gspo", "cispo"))  # of codea1.learn.surrogates
    c.clip_low = not_negative(0.20)  # the ratio is clipped below at 1 - clip_low
    c.clip_high = not_negative(0.28)  # it is clipped above at 1 + clip_high
    # Bounds the loss of negative advantages at dual_clip * |advantage|.
    c.dual_clip = Field(10.0, "be greater than 1", lambda value: value > 1, (IS_PPO,))
    # Of the KL divergence from the reference policy; k3 is bounded.
    c.kl_estimator = one_of("k3", ("k1", "k2", "k3"), HAS_KL)
    c.kl_coefficient = not_negative(1e-3)
    c.entropy_coefficient = not_negative(0.0)
    # Bound of the weight pi_old / pi_sampler on each token's loss; 0: no weight.
    c.importance_cap = not_negative(0.0, FROM_TRAINER)
    c.replay_routes = True  # a mixture of experts learns with the experts that answered; other models have none
    c.balance_coefficient = not_negative(0.0)  # of the loss that evens out how many rows experts get; 0: none
    c.critic = ConfigDict()  # gae: a value model that starts from the policy's weights; the paper has none
    c.critic.learning_rate = positive(1e-5, IS_GAE)  # peak; warm-up and decay are the policy's
    # Training steps in which the critic learns and the policy does not, whose own warm-up passes meanwhile.
    c.critic.warmup_steps = not_negative(0, IS_GAE)
    c.critic.gae_lambda = share(1.0, IS_GAE)
    # Over the mini-batch; see codea1.learn.losses.token_weights.
    c.aggregation = one_of("token-mean", ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "dr-grpo"))
    # Tokens: over the last so many of max_response_length advantages see ever less reward, at last less by 1 (DAPO).
    c.overlong_buffer = not_negative(0)  # 0: none
    c.learn_truncated = True  # False: responses cut off at max_response_length are compared but do not train
    return c


def _data() -> ConfigDict:
    """Returns the three sets of questions."""
    c = ConfigDict()
    c.folder = "data"  # local; where prepared datasets, and copies of what is in buckets, are kept
    c.train = question_source("train")
    c.validation = question_source("validation")  # chooses the best step and the recipe
    c.test = question_source("test")  # reported, never chosen on
    # Share of a set's questions whose prompt may be too long; those to train on are left out.
    c.max_dropped = share(0.1)
    # Method static_tests: file of tests that reward the Code LLM, of `codea1.lab dump_tests` or `worlds`.
    c.static_tests = ""
    return c


def _game() -> ConfigDict:
    """Returns the settings of the game and its rewards."""
    c = ConfigDict()
    # M: solutions per question.
    c.num_solutions = Field(8, "be at least 2: an advantage compares a group", lambda value: value > 1)
    c.num_suites = positive(8)  # N: suites per solution
    c.num_tests = positive(8)  # K: tests asked for in a suite
    c.assert_forms = one_of("all", ("equality", "all"))  # of codea1.game.forms, or the paper's: `f(x) == v` alone
    # A key of codea1.game.rewards.REWARDS, or FILE.py:CLASS; also decides which tests run, and so enter the book.
    c.reward = "official"
    # Weight of validity in the Test LLM's reward (`rewards.Reward`, by `methods.game_rules`).
    c.alpha = share(0.5, WEIGHS_VALIDITY, HAS_TEST_LLM)
    # Of the question's mutants killed in the adversarial part, against the program shown.
    c.mutant_weight = share(0.0, HAS_TEST_LLM)
    c.hidden_reward = False  # also measure solutions by check scripts, and suites by mutants that no reward reads
    c.mistake_book = True  # replay each question's old failures
    c.history_size = not_negative(8, HAS_BOOK)  # tests replayed per question
    c.book_cap = not_negative(0, HAS_BOOK)  # tests kept per question; 0: all, as in the paper
    c.book_total_cap = not_negative(0, HAS_BOOK)  # tests kept of all questions together; 0: all
    c.book_policy = one_of("frequency", EVICTION_RULES, HAS_BOOK)  # of codea1.game.mistake_book: which leave
    c.trained_solutions = positive(1, HAS_TEST_LLM)  # solutions per question whose suites train the Test LLM
    c.selection = one_of("variance", SELECTIONS, HAS_TEST_LLM)  # of codea1.game.round; variance is TOPVAR
    c.max_rounds = positive(1)  # more: further questions are played until enough teach the Code LLM something (DAPO)
    c.prompts = "default"  # "default", "tiny" or the path of a JSON file with templates
    return c


def _sandbox() -> ConfigDict:
    """Returns what untrusted programs may use.

    The values are ours: the reference gives a program 10 s for all of its tests.
    """
    c = ConfigDict()
    c.isolation = one_of("full", ISOLATIONS)  # of codea1.sandbox.isolation; "auto": the strongest level there is
    c.slots = not_negative(0)  # gradings at once; 0: one per CPU core
    c.cpu_seconds_per_test = positive(2.0)
    c.cpu_seconds_per_suite = positive(12.0)  # all suites of one solution; its replayed tests have as much again
    c.memory_mb = positive(1024)  # MiB of address space
    c.memo_mb = positive(512)  # MiB of the trainer's memory for verdicts and answers that are not computed twice
    return c


def _sft() -> ConfigDict:
    """Returns the warm start, and the SFT Test LLM, whose recipe the paper does not give: the values are ours."""
    c = ConfigDict()
    # Model folder: its policy is trained on as a Test LLM, on suites for the training questions; see `codea1.sft`.
    c.start = ""  # empty: a tokenizer and a model for both players are made
    c.steps = positive(360)
    c.batch_size = positive(64)  # documents
    c.length = positive(160)  # tokens per document
    c.micro_batch_size = positive(64)  # longest documents whose activations are alive at once
    c.row_lengths = lengths()  # tokens: further row lengths, for shorter documents
    c.learning_rate = positive(2.5e-3)  # peak
    c.warmup_steps = not_negative(30)
    c.adam_b2 = decay(0.98)
    c.weight_decay = not_negative(0.05)
    c.expert_suites = share(0.35)  # share of suites whose inputs expose the program's mistake, where they can
    c.expert_span = Field(
        (0.5, 1.0), "be two shares of the steps, the first no greater", lambda span: 0 <= span[0] <= span[1] <= 1
    )  # they have that share from this share of the steps to that,
    c.expert_suites_else = share(0.0)  # that share in all other steps
    return c


def _config() -> ConfigDict:
    """Returns all fields: the paper's run, except for what docs/differences.md lists."""
    c = ConfigDict()
    # Of everything random: data order, initial weights, sampled tokens.
    c.seed = Field(0, "be 0 or greater and have at most 64 bits", lambda value: 0 <= value < 2**64)
    c.method = one_of("code_a1", METHODS)  # who plays and what pays the Code LLM; see codea1.game.methods
    c.frozen = ""  # "code" or "test": that one plays and does not learn
    c.steps = positive(111)  # training steps
    c.questions_per_step = positive(256)
    # Nats per token between the policy that samples and the one that learns, while both have the same weights: more in
    # three steps in a row, and the run stops. 0: never; may differ when a run is continued.
    c.max_sampler_kl = not_negative(0.1)

    c.data = _data()

    c.game = _game()

    c.code = player(max_prompt_length=4096)
    c.test = player(max_prompt_length=8192)

    c.model = ConfigDict()
    # Of products and of published weights; activations too, but for CPUs. "auto": what the machine multiplies fastest.
    c.model.dtype = one_of("bfloat16", ("float32", "bfloat16", "auto"))
    # What the backward pass recomputes; see codea1.models.config.REMAT_POLICIES.
    c.model.remat = one_of("full", ("none", "dots", "full"))
    c.model.log_prob_chunk = positive(1024)  # tokens of each device whose logits are alive at once

    c.rollout = ConfigDict()
    c.rollout.slots = positive(256)  # sequences that decode at once, as far as there are pages for them
    # Of each chip for pages of keys and values; 0: slots of the longest sequences.
    c.rollout.cache_gib = not_negative(0.0)

    c.mesh = ConfigDict()
    c.mesh.replica = positive(1)  # data parallel; several TPU slices have whole replicas each, so that they divide it
    # Data parallel with sharded weights; -1: all devices that are left.
    c.mesh.fsdp = Field(-1, "be greater than 0, or -1 for the devices left", lambda value: value == -1 or value > 0)
    c.mesh.tensor = positive(1)  # tensor parallel; must divide the number of KV heads
    c.mesh.topology = ""  # TPU slice, "v5e-16", or slices, "2xv5e-16", that the config is made for: see `compile_tpu`

    c.sandbox = _sandbox()

    c.validation = ConfigDict()  # ours but for the first: the paper draws 32 at temperature 0.7, of its benchmarks
    c.validation.every = positive(10)  # training steps; also before the first and after the last
    c.validation.samples = positive(4)  # solutions per question at temperature 1
    c.validation.test_samples = positive(8)  # the same, for the test split before and after the run
    c.validation.shown_mutants = positive(2)  # programs per question that the Test LLM is asked to break

    c.checkpoint = ConfigDict()
    c.checkpoint.every = positive(50)  # training steps; also after the last
    c.checkpoint.keep_last = positive(2)  # ours
    c.checkpoint.keep_best = not_negative(1)  # ours; by pass@1 of the Code LLM plus Mul of the Test LLM

    c.watchdog = ConfigDict()  # a host without progress ends and is restarted; may differ when a run is continued
    # Seconds after it told what hangs, see `codea1.runtime.phases`; 0: never.
    c.watchdog.restart_after = not_negative(600.0)

    c.profile = ConfigDict()  # a trace of JAX's profiler, of two steps; may differ when a run is continued
    c.profile.first_step = not_negative(0)  # training step that it begins with; 0: none is made

    c.log = ConfigDict()  # what a run keeps and shows; may differ when it is continued
    c.log.keep_samples = not_negative(0)  # training steps whose samples are kept, the newest; 0: all
    c.log.wandb = ConfigDict()
    c.log.wandb.project = ""  # in W&B; empty: it is not used
    c.log.wandb.offline = False  # write files for `wandb sync` instead of sending

    c.sft = _sft()
    return c


FIELDS = {name: field for name, field in leaves(_config().to_dict()) if isinstance(field, Field)}  # that have a rule
OF_TEST_LLM = tuple(name for name, field in FIELDS.items() if HAS_TEST_LLM in field.where)


def default_config() -> ConfigDict:
    """Returns the config that files change."""
    config = _config()
    with config.ignore_type():
        config.update_from_flattened_dict({name: field.default for name, field in FIELDS.items()})
    return config


def parse_arg(arg: str | None, **defaults: Any) -> ConfigDict:
    """Reads `name=value,name=value` against typed defaults.

    Raises:
      BadInput: an unknown name, or a value that is not of its default's type.
    """
    parsed = ConfigDict(defaults)
    for part in filter(None, (arg or "").split(",")):
        name, _, text = part.partition("=")
        if name not in defaults:
            raise BadInput(f"config argument {name!r} is unknown; known are {', '.join(sorted(defaults))}.")
        kind = type(defaults[name])
        try:
            parsed[name] = {"True": True, "False": False}[text] if kind is bool else kind(text)
        except (KeyError, ValueError):
            raise BadInput(f"config argument {name}={text!r} is not of type {kind.__name__}.") from None
    return parsed


def use_method(config: ConfigDict, name: str, static_tests: str = "", own: Collection[str] = ()) -> None:
    """Sets the fields of a method, or of `simple`, by its name. The config file sets those of its `own` recipes.

    Raises BadInput: there is no such method or recipe.
    """
    known = (*METHODS, SIMPLE, *own)
    if gone := removed.removed_name("the method", name, removed.METHODS):
        raise BadInput(gone)
    if name not in known:
        raise BadInput(f"method={name} is unknown; known are {', '.join(known)}.")
    config.data.static_tests = static_tests
    if name in METHODS:
        config.method = name
    if "test" not in METHODS[config.method].roles:  # what a shipped config sets for all methods
        config.update_from_flattened_dict({key: FIELDS[key].default for key in OF_TEST_LLM})
    if name == SIMPLE:
        _use_simple(config)


def _use_simple(config: ConfigDict) -> None:
    """Sets what a simpler variant in circulation changes of Code-A1: its rewards, book and update.

    Rewards are those of `codea1.game.rewards.SimpleReward` with weight 0.6. The Mistake Book has at most 2,000 tests in
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


# Tokens of the longest rows that share prompts, and of responses in them, that models.attention's kernel can tell.
SHARED_ROW, SHARED_RESPONSE = 16384, 8191


def validate(config: ConfigDict, file: ConfigDict | None = None) -> None:
    """Checks all that can be checked without loading anything.

    Args:
      file: the config before --config.FIELD changed it: what it sets may have lost what reads it by that.

    Raises:
      BadInput: names the first field that cannot be or would decide nothing, its value and what it may be.
    """
    _check_fields(config)
    if file is not None and config.method != file.method and config.method in METHODS:
        raise BadInput(
            f"config.method is {config.method!r}; it must be {file.method!r}, as in its file: "
            f"--config=FILE:method={config.method} sets all that a method changes."
        )
    for name in {each.game.reward: None for each in (config, file or config)}:
        if ".py:" in name:  # the file is run; nothing else that reads a run runs it
            path, _, wanted = name.rpartition(":")
            REWARDS[name] = reward_class(path, wanted, own_file(path, "reward"))
        elif gone := removed.removed_name("the reward", name, removed.REWARDS):
            raise BadInput(gone)
        elif name not in REWARDS:
            known = ", ".join(sorted(each for each in REWARDS if ":" not in each))
            raise BadInput(f"config.game.reward is {name!r}; it must be one of {known}, or FILE.py:CLASS.")
    _check_values(config)
    paying: Any = REWARDS[config.game.reward] if ".py:" in config.game.reward else FunctionReward
    if METHODS[config.method].fixed_tests and not issubclass(paying, FunctionReward):
        named = f"config.game.reward is {config.game.reward!r}"
        raise BadInput(f"{named}; of rewards in a file, method {config.method} reads functions alone.")
    _check_warm_ups(config)
    for key, field in FIELDS.items():
        value, section = attrgetter(key)(config), key.partition(".")[0]
        for where in field.where:
            is_files = file is not None and value == attrgetter(key)(file) and where.holds(file, file[section])
            if value != field.default and not is_files and not where.holds(config, config[section]):
                said = f"it must be {field.default!r}: it is read only where {where.said}"
                raise BadInput(f"config.{key} is {value!r}; {said}.")


def _check_warm_ups(config: ConfigDict) -> None:
    """Raises BadInput for a warm-up that outlasts its run; the usual one may, in a trial of fewer steps."""
    learners = [name for name in METHODS[config.method].policies if name != config.frozen]
    most = {f"{name}.warmup_steps": config.steps for name in learners} | {"sft.warmup_steps": config.sft.steps}
    most |= {f"{name}.critic.warmup_steps": config.steps - 1 for name in learners}
    for key, steps in most.items():
        if (value := attrgetter(key)(config)) > max(steps, FIELDS[key].default):
            raise BadInput(f"config.{key} is {value}; it must not exceed {steps}: what it warms up would hardly train.")


_MAY_BE_INFINITE = ("norm", "clip", "low", "high", "cap", "max_sampler_kl", "restart_after")  # bounds


def _check_values(config: ConfigDict) -> None:
    """Raises BadInput for a field that cannot be, of a config whose reward need not be known."""

    def check(key: str, holds: bool, rule: str) -> None:
        if not holds:
            raise BadInput(f"config.{key} is {attrgetter(key)(config)!r}; it must {rule}.")

    if gone := removed.removed_name("the method", config.method, removed.METHODS):
        raise BadInput(gone)
    for key, field in FIELDS.items():
        check(key, field.holds(attrgetter(key)(config)), field.rule)
        check(key, attrgetter(key)(config) != math.inf or key.endswith(_MAY_BE_INFINITE), "be finite")
    for name in ("code", "test"):
        c = config[name]
        longest, has_critic = c.max_prompt_length + c.max_response_length, c.advantage == "gae"
        are_shorter = all(length < c.max_prompt_length for length in c.prompt_lengths)
        check(f"{name}.prompt_lengths", are_shorter, f"hold numbers less than {c.max_prompt_length}")
        are_shorter = c.share_prompts or all(length < longest for length in c.row_lengths)
        rule = f"hold numbers less than {longest}, unless config.{name}.share_prompts is True"
        check(f"{name}.row_lengths", are_shorter, rule)
        rule = f"be False: config.{name}.advantage is gae, whose rows hold one sequence"
        check(f"{name}.share_prompts", not (has_critic and c.share_prompts), rule)
        rule = f"be 0: config.{name}.advantage is gae, whose critic would be a second model, all of whose weights train"
        check(f"{name}.lora.rank", not (has_critic and c.lora.rank), rule)
        row, response = max(longest, *c.row_lengths, 0), c.max_response_length
        can_share = row <= SHARED_ROW and response <= SHARED_RESPONSE
        rule = f"be False: rows of {row} and responses of {response} tokens exceed {SHARED_ROW} or {SHARED_RESPONSE}"
        check(f"{name}.share_prompts", can_share or not c.share_prompts, rule)
        check(f"{name}.overlong_buffer", c.overlong_buffer <= response, f"not exceed {response}, the longest")
    check(
        "game.trained_solutions",
        config.game.trained_solutions <= config.game.num_solutions,
        f"not exceed config.game.num_solutions, which is {config.game.num_solutions}",
    )
    can_log = is_installed("wandb") or not config.log.wandb.project
    check("log.wandb.project", can_log, f"be empty: it {needs('wandb')}")
    check("profile.first_step", config.profile.first_step <= config.steps, f"not exceed the {config.steps} steps")
    method = METHODS[config.method]
    learners = [name for name in method.policies if name != config.frozen]
    rule = f"be empty, or one of two players, and {config.method} has {' and '.join(method.policies)}"
    check("frozen", not config.frozen or 0 < len(learners) < len(method.policies), rule)
    needs_tests = method.code_reward is CodeRewardSource.STATIC_TESTS
    rule = "name a file with the method static_tests, and be empty with others"
    check("data.static_tests", bool(config.data.static_tests) == needs_tests, rule)
    for name in method.policies:
        count, cut = trained_sequences(config, name), config[name].mini_batches
        check(f"{name}.mini_batches", count % cut == 0, f"divide the {count} sequences of a training step")
        if config[name].share_prompts:
            of_question = {"code": 1, "test": config.game.trained_solutions}
            count = config.questions_per_step * sum(of_question[role] for role in method.roles_of(name))
            check(f"{name}.mini_batches", count % cut == 0, f"divide the {count} prompts of a training step")


def _check_fields(config: ConfigDict) -> None:
    """Raises BadInput for a field that `default_config` lacks or has and `config` lacks, or one of another type."""
    here, known = (dict(leaves(each.to_dict())) for each in (config, default_config()))
    for name in sorted(here.keys() - known.keys()):
        if any(each.startswith(f"{name}.") for each in known):
            raise BadInput(f"config.{name} is {here[name]!r}; it must be a section of fields.")
        if gone := removed.removed_field(name):
            raise BadInput(gone)
        near = nearest(name, known)
        raise BadInput(f"the config has no field {name}{f': do you mean {near}?' if near else '.'}")
    for name in sorted(known.keys() - here.keys()):
        raise BadInput(f"the config lacks the field {name}: begin with default_config().")
    for name, default in known.items():
        if not _is_like(here[name], default):
            kind = f"{'numbers' if default == () else len(default)}" if isinstance(default, tuple) else ""
            rule = f"a tuple of {kind}" if kind else f"of type {type(default).__name__}"
            raise BadInput(f"config.{name} is {here[name]!r}; it must be {rule}.")


def _is_like(value: Any, default: Any) -> bool:
    """Returns whether a value has the type of a default; JSON has lists for tuples, and 1 for 1.0."""
    if isinstance(default, tuple):
        like = default or (0,) * len(value) if isinstance(value, tuple | list) else ()
        return isinstance(value, tuple | list) and len(like) == len(value) and all(map(_is_like, value, like))
    kinds = (int, float) if isinstance(default, float) else type(default)
    return isinstance(value, kinds) and isinstance(value, bool) == isinstance(default, bool)


def trained_sequences(config: ConfigDict, policy: str) -> int:
    """Returns the most sequences that can train a policy in a step, in all roles it plays; 0 if it is frozen."""
    if policy == config.frozen:
        return 0
    of_role = trained_per_question(config)
    return config.questions_per_step * sum(of_role[role] for role in METHODS[config.method].roles_of(policy))


def trained_per_question(config: ConfigDict) -> dict[str, int]:
    """Returns, by role, the most samples of a question that can train the policy that plays it."""
    return {"code": config.game.num_solutions, "test": config.game.trained_solutions * config.game.num_suites}


_SOURCES = tuple(f"data.{name}.source" for name in ("train", "validation", "test"))
_PATHS = ("code.model", "test.model", "data.folder", "data.static_tests", *_SOURCES)


def paths_of(config: ConfigDict) -> dict[str, str]:
    """Returns where the files and folders are that a config names by relative paths, by field."""
    named = {name: attrgetter(name)(config) for name in _PATHS}
    is_world = {name: name in _SOURCES and world_of(path) is not None for name, path in named.items()}
    relative = {name: path for name, path in named.items() if path and not (os.path.isabs(path) or is_world[name])}
    return {name: os.path.abspath(path) for name, path in relative.items() if os.path.exists(path)}


def use_paths(config: ConfigDict, paths: Mapping[str, str], is_resumed: bool = False) -> None:
    """Sets relative paths to where a run found them, by `paths_of`; in a resumed run those alone that are not there."""
    for name in (name for name in _PATHS if name in paths):
        given = attrgetter(name)(config)
        is_relative = not (os.path.isabs(given) or "://" in given)
        if is_relative and (not os.path.exists(given) or (os.path.exists(paths[name]) and not is_resumed)):
            config.update_from_flattened_dict({name: paths[name]})


def config_of(folder: RunFolder) -> ConfigDict:
    """Returns the config of a training run. Raises BadInput for another kind of run, or one of another version."""
    config = ConfigDict(folder.config)
    if "game" in config and config.game.get("prompts") not in (None, *TEMPLATES):
        config.game.prompts = folder.kept(config.game.prompts)
    there, here = (set(dict(leaves(each.to_dict()))) for each in (config, default_config()))
    if there != here:
        others = ", ".join(sorted(there ^ here)[:3])
        raise BadInput(f"{folder.path} is not a training run of this version: its config.json differs in {others}.")
    _check_fields(config)
    _check_values(config)  # and not the reward, which few need
    use_paths(config, folder.paths)
    return config
