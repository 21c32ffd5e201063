"""The config of a run: every field with its unit and default, and the rules that it must keep.

Defaults are the paper's where it has a value: the steps and their questions, `game`, how the players `code` and `test`
sample and learn, how often a run is validated and saved. Ours are `data`, `noise`, `opponents`, `sandbox`, `model`,
`rollout`, `mesh`, `watchdog`, `profile`, `sft`, a player's `critic` and what it compiles for, and the rest of
`validation` and `checkpoint`. docs/differences.md has what differs from the paper all the same.

A config file returns `default_config()` changed. `get_config(arg)` takes the text after the colon of
`--config=configs/tiny.py:seed=1,method=golden`, read by `parse_arg`; `--config.game.alpha=0.25` overrides one field.
"""

import importlib.util
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from codea1.game.methods import METHODS, CodeRewardSource
from codea1.game.mistake_book import EVICTION_RULES
from codea1.game.opponents import PRIORITISED, SIDES, UNIFORM
from codea1.game.rewards import REWARDS, Others
from codea1.game.selection import SELECTIONS
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from codea1.runtime.fields import leaves, nearest
from codea1.sandbox.isolation import ISOLATIONS

SIMPLE, SFT = "simple", "sft"  # what `method=` of a shipped config can be besides a method


def question_source() -> ConfigDict:
    """Returns where a set of questions comes from."""
    c = ConfigDict()
    # "procedural"; or the path or gs:// URL of a .parquet or .jsonl file with the official fields, or of the folder of
    # a dataset with them that tensorflow-datasets prepared as array_record files.
    c.source = "procedural"
    c.split = "train"  # split of a dataset; files have one split and ignore it
    c.limit = 0  # questions: only the first so many; 0 for all
    return c


def player(max_prompt_length: int) -> ConfigDict:
    """Returns one policy: the model it starts from, how it samples and how it learns."""
    c = ConfigDict()
    # Folder with config.json, model.safetensors and the tokenizer's files; or with adapter_config.json and
    # adapter_model.safetensors, as PEFT has them: the base is the folder that they name.
    c.model = ""
    c.shape = ""  # of codea1.models.config.PUBLISHED; the folder must agree, and `compile_tpu` needs no folder then
    c.max_prompt_length = max_prompt_length  # tokens
    c.prompt_lengths = ()  # tokens: further lengths that shorter prompts are padded to; each is compiled for
    c.max_response_length = 4096  # tokens
    c.thinking = ""  # "on" or "off": the chat template's enable_thinking; "": its own. No thought is part of an answer
    c.temperature = 1.0  # of training samples; log-probs are those of the same tempered softmax

    c.lora = ConfigDict()  # adapters beside the kernels of all layers, on a base that is frozen; the paper has none
    c.lora.rank = 0  # of the adapters; 0: there are none, and all weights train
    c.lora.alpha = 32.0  # what an adapter adds counts alpha / rank times, as PEFT has it

    c.learning_rate = 1e-6  # peak
    c.warmup_steps = 10  # training steps; the first has learning rate 0
    c.decay = "cosine"  # after warm-up, towards 0 one step after the last: "cosine", "linear" or "constant"
    c.adam_b1 = 0.9
    c.adam_b2 = 0.999
    c.adam_eps = 1e-8
    c.weight_decay = 0.1  # decoupled, on all parameters
    c.max_grad_norm = 1.0  # global norm

    c.mini_batches = 2  # optimizer steps per training step
    c.micro_batch_size = 8  # longest sequences whose activations are alive at once; does not change the result
    c.row_lengths = ()  # tokens: further row lengths of micro-batches; each is compiled for
    # A row of a micro-batch holds prompts once, each with all its responses, and may be longer than a sequence;
    # mini-batches then hold whole groups.
    c.share_prompts = False
    c.old_log_probs = "trainer"  # the ratio's denominator: "trainer" scores the samples again, "sampler" does not
    # "grpo", "gdpo", "rloo", "reinforce++-baseline" or "batch" of codea1.learn.advantages; "gae": PPO with a critic.
    c.advantage = "grpo"
    c.advantage_ddof = 1  # grpo, gdpo: 1 is the unbiased standard deviation of the group
    c.advantage_eps = 1e-6  # grpo, gdpo: added to the group's standard deviation
    c.normalize_by_std = True  # grpo: False subtracts the group's mean alone
    c.surrogate = "ppo"  # of codea1.learn.surrogates: "ppo", "gspo" or "cispo"
    c.clip_low = 0.20  # the ratio is clipped below at 1 - clip_low
    c.clip_high = 0.28  # and above at 1 + clip_high
    c.dual_clip = 10.0  # ppo: bounds the loss of negative advantages at dual_clip * |advantage|
    c.kl_estimator = "k3"  # of the KL divergence from the reference policy: "k1", "k2", or "k3", which is bounded
    c.kl_coefficient = 1e-3
    c.kl_in_reward = False  # gae: the penalty is taken from each token's reward and is not in the loss
    c.entropy_coefficient = 0.0
    c.importance_cap = 0.0  # bound of the weight pi_old / pi_sampler on each token's loss; 0: no weight
    c.critic = ConfigDict()  # gae: a value model that starts from the policy's weights; the paper has none
    c.critic.learning_rate = 1e-5  # peak; warm-up and decay are the policy's
    c.critic.warmup_steps = 0  # training steps in which the critic learns and the policy does not
    c.critic.value_clip = 0.5  # values may move so far from the old ones before the loss ignores it; 0: any distance
    c.critic.gamma = 1.0  # discount per token
    c.critic.gae_lambda = 1.0
    c.aggregation = "token-mean"  # over the mini-batch; see codea1.learn.losses.token_weights
    c.overlong_buffer = (
        0  # tokens: over the last so many of max_response_length advantages see less reward (DAPO); 0: none
    )
    c.overlong_penalty = 1.0  # what a response of max_response_length has lost by then
    c.learn_truncated = True  # False: responses cut off at max_response_length are compared but do not train
    return c


def _data() -> ConfigDict:
    """Returns the three sets of questions."""
    c = ConfigDict()
    c.folder = "data"  # local; where prepared datasets, and copies of what is in buckets, are kept
    c.train = question_source()
    c.validation = question_source()  # chooses the best step and the recipe
    c.validation.split = "validation"
    c.test = question_source()  # reported, never chosen on
    c.test.split = "test"
    c.max_dropped = 0.1  # share of a set's questions whose prompt may be too long; those to train on are left out
    c.static_tests = ""  # method static_tests: file of `codea1.lab dump_tests`, whose tests reward the Code LLM
    return c


def _game() -> ConfigDict:
    """Returns the settings of the game and its rewards."""
    c = ConfigDict()
    c.num_solutions = 8  # M: solutions per question
    c.num_suites = 8  # N: suites per solution
    c.num_tests = 8  # K: tests asked for in a suite
    c.assert_forms = "all"  # that are tests: of codea1.game.forms; or "equality", the paper's: `f(x) == v` alone
    c.reward = "official"  # a key of codea1.game.rewards.REWARDS; also decides which tests run, and so enter the book
    c.alpha = 0.5  # weight of validity in the Test LLM's reward, against the adversarial part; none in utrl and cure
    c.mutant_weight = 0.0  # of the question's mutants killed in the adversarial part, against the program shown
    c.made_mutants = 0  # made of the ground truth for a training question that has none; may be equivalent to it
    c.hidden_reward = False  # also measure solutions by check scripts, and suites by mutants that no reward reads
    c.mistake_book = True  # replay each question's old failures
    c.history_size = 8  # tests replayed per question
    c.book_cap = 0  # tests kept per question; 0: all, as in the paper
    c.book_total_cap = 0  # tests kept of all questions together; 0: all
    c.book_policy = "frequency"  # of codea1.game.mistake_book: which: "frequency", "recency", "reservoir", "reward"
    c.trained_solutions = 1  # solutions per question whose suites train the Test LLM
    c.selection = "variance"  # of codea1.game.selection: which: those of most "variance" (TOPVAR), "learnability", ...
    c.max_rounds = 1  # more: further questions are played until enough teach the Code LLM something (DAPO)
    c.prompts = "default"  # "default", "tiny" or the path of a JSON file with templates
    return c


def _noise() -> ConfigDict:
    """Returns which labels of the training questions are wrong on purpose; their check scripts stay true.

    A question without mutants keeps its ground truth, and one whose golden tests state no other answer its answers.
    """
    c = ConfigDict()
    c.wrong_truths = 0.0  # share of the questions whose ground truth is one of their paid mutants
    c.wrong_answers = 0.0  # share of a question's calls that are answered with the answer of a golden test
    return c


def _opponents() -> ConfigDict:
    """Returns which players of the run's own checkpoints play besides; see `codea1.game.opponents`."""
    c = ConfigDict()
    c.side = ""  # past checkpoints of "code", "test" or "both" play; empty: of neither
    c.share = 0.5  # of a step's questions, on each side, and with "both" each side has others
    c.every = 50  # training steps between the checkpoints that may play, all of which are kept
    c.draw = UNIFORM  # which of them plays in a step; "prioritised": rather one that the learner loses against
    return c


def _sandbox() -> ConfigDict:
    """Returns what untrusted programs may use.

    The values are ours: the reference gives a program 10 s for all of its tests.
    """
    c = ConfigDict()
    c.isolation = "full"  # or a weaker level of codea1.sandbox.isolation; "auto": the strongest there is
    c.slots = 0  # gradings at once; 0: one per CPU core
    c.cpu_seconds_per_test = 2.0
    c.cpu_seconds_per_suite = 12.0  # all suites of one solution; its replayed tests have as much again
    c.cpu_seconds_per_script = 60.0  # a whole benchmark script; the slowest honest ones take half of it
    c.memory_mb = 1024  # MiB of address space
    c.memo_mb = 512  # MiB of the trainer's memory for verdicts and answers that are not computed twice
    return c


def _watchdog() -> ConfigDict:
    """Returns the seconds without progress after which a host dumps what it is doing; 0: never.

    A run may be continued with others.
    """
    c = ConfigDict()
    c.compile = 3600.0  # one player's functions of generation, or of learning
    c.rollout = 1800.0  # a chunk of decoding
    c.sandbox = 1800.0  # the next of the gradings
    c.update = 3600.0  # one player's optimizer steps of a training step
    c.collective = 1800.0  # the other hosts
    c.storage = 1800.0  # a checkpoint, what the run starts from, a step's metrics and samples
    c.restart_after = 600.0  # then the process ends, with the code that the launcher restarts on; 0: never
    return c


def _sft() -> ConfigDict:
    """Returns the warm start, and the SFT Test LLM, whose recipe the paper does not give: the values are ours."""
    c = ConfigDict()
    # Model folder: its policy is trained on as a Test LLM, on suites for the training questions; see `codea1.sft`.
    c.start = ""  # empty: a tokenizer and a model for both players are made
    c.shape = "tiny"  # of the model that is made: a named shape of codea1.models.config
    c.vocab_size = 512  # of the tokenizer that is made
    c.steps = 360
    c.batch_size = 64  # documents
    c.length = 160  # tokens per document
    c.micro_batch_size = 64  # longest documents whose activations are alive at once
    c.row_lengths = ()  # tokens: further row lengths, for shorter documents
    c.learning_rate = 2.5e-3  # peak
    c.warmup_steps = 30
    c.adam_b2 = 0.98
    c.weight_decay = 0.05
    c.misconceptions = 1.0  # scale of the planted misconception rates
    c.expert_suites = 0.35  # share of suites whose inputs expose the program's mistake, where they can,
    c.expert_span = (0.5, 1.0)  # from this share of the steps to that;
    c.expert_suites_else = 0.0  # the same, in all other steps
    c.black_box = 0.25  # share of suites that are written without a program in sight, for methods that ask so
    return c


def default_config() -> ConfigDict:
    """Returns the paper's run, except for what docs/differences.md lists."""
    c = ConfigDict()
    c.seed = 0  # of everything random: data order, initial weights, sampled tokens
    c.method = "code_a1"  # who plays and where the Code LLM's reward comes from; see codea1.game.methods
    c.frozen = ""  # "code" or "test": that one plays and does not learn
    c.steps = 111  # training steps
    c.questions_per_step = 256
    # Training steps in a row in which a policy or critic skips all its optimizer steps, because gradients or what they
    # make of the parameters are not finite: the run stops. At least 1; may differ when a run is continued.
    c.skipped_steps = 3
    # Nats per token between the policy that samples and the one that learns, while both have the same weights: more in
    # as many steps in a row, and the run stops. 0: never; may differ when a run is continued.
    c.max_sampler_kl = 0.1

    c.data = _data()

    c.game = _game()

    c.noise = _noise()

    c.opponents = _opponents()

    c.code = player(max_prompt_length=4096)
    c.test = player(max_prompt_length=8192)

    c.model = ConfigDict()
    c.model.dtype = "bfloat16"  # of activations and of published rollout weights
    c.model.param_dtype = "float32"  # of parameters and optimizer state
    c.model.offload_moments = False  # a policy's moments wait in the host's memory while it does not learn
    c.model.remat = "full"  # what the backward pass recomputes; see codea1.models.config.REMAT_POLICIES
    c.model.log_prob_chunk = 1024  # tokens of each device whose logits are alive at once

    c.rollout = ConfigDict()
    c.rollout.slots = 256  # sequences that decode at once, as far as there are pages for them
    c.rollout.guesses = 0  # tokens that a step of the last samples guesses from their prompt and what they repeat
    # Kernels of published weights in int8, a scale per output channel. Samples then follow another policy than the one
    # that learns, which wants importance_cap.
    c.rollout.int8_weights = False
    c.rollout.cache_gib = 0.0  # of each chip for pages of keys and values; 0: slots of the longest sequences

    c.mesh = ConfigDict()
    c.mesh.replica = 1  # data parallel; several TPU slices have whole replicas each, so that they divide it
    c.mesh.fsdp = -1  # data parallel with sharded weights; -1: all devices that are left
    c.mesh.tensor = 1  # tensor parallel; must divide the number of KV heads
    c.mesh.topology = ""  # TPU slice that the config is made for, "v5e-16"; `compile_tpu` compiles for it

    c.sandbox = _sandbox()

    c.validation = ConfigDict()  # ours but for the first: the paper draws 32 at temperature 0.7, of its benchmarks
    c.validation.every = 10  # training steps; also before the first and after the last
    c.validation.samples = 4  # solutions per question at temperature 1
    c.validation.test_samples = 8  # the same, for the test split before and after the run
    c.validation.shown_mutants = 2  # programs per question that the Test LLM is asked to break

    c.checkpoint = ConfigDict()
    c.checkpoint.every = 50  # training steps; also after the last
    c.checkpoint.keep_last = 2  # ours
    c.checkpoint.keep_best = 1  # ours; by validation score: pass@1 of the Code LLM plus Mul of the Test LLM

    c.watchdog = _watchdog()

    c.profile = ConfigDict()  # a trace of JAX's profiler, of a few steps; may differ when a run is continued
    c.profile.first_step = 0  # training step that it begins with; 0: none is made
    c.profile.steps = 2  # training steps

    c.log = ConfigDict()  # what a run keeps and shows; may differ when it is continued
    c.log.keep_samples = 0  # training steps whose samples are kept, the newest; 0: all
    c.log.wandb = ConfigDict()
    c.log.wandb.project = ""  # in W&B; empty: it is not used
    c.log.wandb.offline = False  # write files for `wandb sync` instead of sending

    c.sft = _sft()
    return c


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


def use_method(config: ConfigDict, name: str, static_tests: str = "") -> None:
    """Sets the fields of a method or recipe by its name; those of `sft` are set by the config file.

    Raises BadInput: there is no such method or recipe.
    """
    if name not in (*METHODS, SIMPLE, SFT):
        raise BadInput(f"method={name} is unknown; known are {', '.join((*METHODS, SIMPLE, SFT))}.")
    config.data.static_tests = static_tests
    if name in METHODS:
        config.method = name
    if not _has_test_llm(config):  # what a shipped config sets for all methods
        default = default_config()
        config.update_from_flattened_dict({key: _value(default, key) for key in OF_TEST_LLM})
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


POSITIVE = (
    "steps questions_per_step game.num_solutions game.num_suites game.num_tests game.trained_solutions game.max_rounds "
    "skipped_steps rollout.slots validation.every validation.samples validation.test_samples validation.shown_mutants "
    "checkpoint.every checkpoint.keep_last opponents.every profile.steps "
    "sft.steps sft.batch_size sft.micro_batch_size sft.length sft.learning_rate sft.vocab_size "
    "sandbox.cpu_seconds_per_test sandbox.cpu_seconds_per_suite sandbox.cpu_seconds_per_script sandbox.memory_mb "
    "sandbox.memo_mb "
    "model.log_prob_chunk mesh.replica mesh.tensor "
    "{player}.max_prompt_length {player}.max_response_length {player}.temperature {player}.learning_rate "
    "{player}.max_grad_norm {player}.adam_eps {player}.mini_batches {player}.micro_batch_size "
    "{player}.critic.learning_rate {player}.lora.alpha"
)
NOT_NEGATIVE = (
    "seed max_sampler_kl rollout.cache_gib rollout.guesses "
    "game.made_mutants game.history_size game.book_cap game.book_total_cap "
    "data.train.limit data.validation.limit data.test.limit "
    "sandbox.slots checkpoint.keep_best profile.first_step watchdog.compile watchdog.rollout watchdog.sandbox "
    "watchdog.update watchdog.collective watchdog.storage watchdog.restart_after log.keep_samples "
    "sft.warmup_steps sft.weight_decay sft.misconceptions "
    "{player}.warmup_steps {player}.weight_decay {player}.clip_low {player}.clip_high {player}.kl_coefficient "
    "{player}.entropy_coefficient {player}.advantage_eps {player}.importance_cap "
    "{player}.critic.warmup_steps {player}.critic.value_clip {player}.overlong_buffer {player}.overlong_penalty "
    "{player}.lora.rank"
)
FRACTIONS = (
    "data.max_dropped game.alpha game.mutant_weight noise.wrong_truths noise.wrong_answers opponents.share "
    "sft.expert_suites sft.expert_suites_else sft.black_box {player}.adam_b1 {player}.adam_b2 sft.adam_b2 "
    "{player}.critic.gamma {player}.critic.gae_lambda"
)
# Tokens of the longest rows that share prompts, and of responses in them, that models.attention's kernel can tell.
SHARED_ROW, SHARED_RESPONSE = 16384, 8191
# What is chosen by name. The names of learn/ and models/ are written out because those import JAX, which takes seconds,
# and a wrong flag is reported before; tests/program_test.py compares them with the tables there.
CHOICES: dict[str, Collection[Any]] = {
    "method": METHODS,
    "game.book_policy": EVICTION_RULES,
    "game.selection": SELECTIONS,
    "opponents.side": SIDES,
    "opponents.draw": (UNIFORM, PRIORITISED),
    "sandbox.isolation": ISOLATIONS,
    "model.remat": ("none", "dots", "full"),
    "model.dtype": ("float32", "bfloat16"),
    "model.param_dtype": ("float32", "bfloat16"),
    "{player}.advantage": ("grpo", "gdpo", "rloo", "reinforce++-baseline", "batch", "gae"),
    "{player}.advantage_ddof": (0, 1),
    "{player}.decay": ("cosine", "linear", "constant"),
    "{player}.kl_estimator": ("k1", "k2", "k3"),
    "{player}.old_log_probs": ("trainer", "sampler"),
    "{player}.aggregation": ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "dr-grpo"),
    "{player}.shape": ("", *(f"qwen2.5-coder-{size}" for size in ("0.5b", "1.5b", "3b", "7b", "14b", "32b"))),
    "{player}.surrogate": ("ppo", "gspo", "cispo"),
    "{player}.thinking": ("", "off", "on"),
    "game.assert_forms": ("equality", "all"),
}


Decides = Callable[[ConfigDict, ConfigDict], bool]  # of the config and of the field's section
OF_TEST_LLM = ("game.alpha", "game.mutant_weight", "game.selection", "game.trained_solutions")
# Fields that are read only where something else is so: elsewhere, another value than their default is refused.
# Whole sections that a method, a frozen player or a command leaves alone are not here: one config serves them all.
READ_WHERE: Mapping[str, tuple[str, Decides]] = {
    "game.alpha": (
        "the reward weighs validity",
        lambda _, game: REWARDS[game.reward](0.0, 1).weights != REWARDS[game.reward](1.0, 1).weights,
    ),
    " ".join(OF_TEST_LLM): ("there is a Test LLM", lambda c, _: _has_test_llm(c)),
    "game.history_size game.book_cap game.book_policy game.book_total_cap": (
        "game.mistake_book is True",
        lambda _, game: game.mistake_book,
    ),
    "opponents.share opponents.every opponents.draw": ("opponents.side is set", lambda _, own: bool(own.side)),
    "{player}.advantage_ddof {player}.advantage_eps": (
        "advantage is grpo or gdpo",
        lambda _, player: player.advantage in ("grpo", "gdpo"),
    ),
    "{player}.normalize_by_std": ("advantage is grpo", lambda _, player: player.advantage == "grpo"),
    "{player}.critic.learning_rate {player}.critic.warmup_steps {player}.critic.value_clip {player}.critic.gamma "
    "{player}.critic.gae_lambda": ("advantage is gae", lambda _, player: player.advantage == "gae"),
    "{player}.kl_in_reward": (
        "advantage is gae and kl_coefficient is not 0",
        lambda _, player: player.advantage == "gae" and player.kl_coefficient > 0,
    ),
    "{player}.kl_estimator": ("kl_coefficient is not 0", lambda _, player: player.kl_coefficient > 0),
    "{player}.dual_clip": ("surrogate is ppo", lambda _, player: player.surrogate == "ppo"),
    "{player}.lora.alpha": ("lora.rank is not 0", lambda _, player: player.lora.rank > 0),
    "{player}.overlong_penalty": ("overlong_buffer is not 0", lambda _, player: player.overlong_buffer > 0),
}


def _has_test_llm(config: ConfigDict) -> bool:
    return "test" in METHODS[config.method].roles


def _keys(names: str) -> Iterator[str]:
    for name in names.split():
        yield from [name.format(player=player) for player in ("code", "test")] if "{player}" in name else [name]


def _value(config: ConfigDict, key: str) -> Any:
    for part in key.split("."):
        config = config[part]
    return config


def validate(config: ConfigDict, file: ConfigDict | None = None) -> None:
    """Checks all that can be checked without loading anything.

    Args:
      file: the config before --config.FIELD changed it: what it sets may have lost what reads it by that.

    Raises:
      BadInput: names the first field that cannot be or would decide nothing, its value and what it may be.
    """
    _check_fields(config)
    if config.game.reward not in REWARDS:
        known = ", ".join(sorted(REWARDS))
        raise BadInput(f"config.game.reward is {config.game.reward!r}; it must be one of {known}, or registered there.")
    _check_values(config)
    default = default_config()
    for names, (where, decides) in READ_WHERE.items():
        for key in _keys(names):
            value, section = _value(config, key), key.partition(".")[0]
            is_files = file is not None and value == _value(file, key) and decides(file, file[section])
            if value != (usual := _value(default, key)) and not is_files and not decides(config, config[section]):
                raise BadInput(f"config.{key} is {value!r}; it must be {usual!r}: it is read only where {where}.")


def _check_values(config: ConfigDict) -> None:
    """Raises BadInput for a field that cannot be, of a config whose reward need not be known."""

    def check(key: str, holds: bool, rule: str) -> None:
        if not holds:
            raise BadInput(f"config.{key} is {_value(config, key)!r}; it must {rule}.")

    for key in _keys(POSITIVE):
        check(key, _value(config, key) > 0, "be greater than 0")
    for key in _keys("{player}.row_lengths {player}.prompt_lengths sft.row_lengths"):
        check(key, all(length > 0 for length in _value(config, key)), "hold numbers greater than 0")
    for key in _keys("{player}.prompt_lengths"):
        longest = _value(config, key.replace("prompt_lengths", "max_prompt_length"))
        check(key, all(length < longest for length in _value(config, key)), f"hold numbers less than {longest}")
    for key in _keys(NOT_NEGATIVE):
        check(key, _value(config, key) >= 0, "be 0 or greater")
    for key in _keys(FRACTIONS):
        check(key, 0 <= _value(config, key) <= 1, "lie between 0 and 1")
    for pattern, choices in CHOICES.items():
        for key in _keys(pattern):
            check(key, _value(config, key) in choices, f"be one of {', '.join(map(str, sorted(choices)))}")
    first, last = config.sft.expert_span
    check("sft.expert_span", 0 <= first <= last <= 1, "be two shares of the steps, the first no greater")
    check("mesh.fsdp", config.mesh.fsdp == -1 or config.mesh.fsdp > 0, "be greater than 0, or -1 for the devices left")
    for key in _keys("{player}.dual_clip"):
        check(key, _value(config, key) > 1, "be greater than 1")
    check(
        "game.trained_solutions",
        config.game.trained_solutions <= config.game.num_solutions,
        f"not exceed config.game.num_solutions, which is {config.game.num_solutions}",
    )
    if config.game.mutant_weight and (reward := REWARDS.get(config.game.reward)):
        pays_mutants = reward(0.5, 1, config.game.mutant_weight).others is Others.MUTANTS
        check("game.mutant_weight", pays_mutants, f"be 0: the reward {config.game.reward} reads no mutants")
    has_wandb = importlib.util.find_spec("wandb") is not None
    check(
        "log.wandb.project", has_wandb or not config.log.wandb.project, "be empty: pip install -e '.[wandb]' is missing"
    )
    check("profile.first_step", config.profile.first_step <= config.steps, f"not exceed the {config.steps} steps")
    check("game.num_solutions", config.game.num_solutions > 1, "be at least 2: an advantage compares a group")
    method = METHODS[config.method]
    learners = [name for name in method.policies if name != config.frozen]
    rule = f"be empty, or one of two players, and {config.method} has {' and '.join(method.policies)}"
    check("frozen", not config.frozen or 0 < len(learners) < len(method.policies), rule)
    if config.opponents.side:
        saved, most = config.checkpoint.every, 1 / len(SIDES[config.opponents.side])
        check("opponents.side", len(learners) == 2, "be empty: past players need two players that learn")
        check("opponents.every", config.opponents.every % saved == 0, f"be a multiple of checkpoint.every, {saved}")
        check("opponents.share", config.opponents.share <= most, f"not exceed {most} on each side")
    needs_tests = method.code_reward is CodeRewardSource.STATIC_TESTS
    rule = "name a file with method static_tests, and be empty with others"
    check("data.static_tests", bool(config.data.static_tests) == needs_tests, rule)
    for name in ("code", "test"):
        has_critic = config[name].advantage == "gae"
        rule = f"be False: config.{name}.advantage is gae, whose rows hold one sequence"
        check(f"{name}.share_prompts", not (has_critic and config[name].share_prompts), rule)
        rule = f"be 0: config.{name}.advantage is gae, whose critic would be a second model, all of whose weights train"
        check(f"{name}.lora.rank", not (has_critic and config[name].lora.rank), rule)
        longest = config[name].max_response_length
        row = max(config[name].max_prompt_length + longest, *config[name].row_lengths, 0)
        can_share = row <= SHARED_ROW and longest <= SHARED_RESPONSE
        rule = f"be False: rows of {row} and responses of {longest} tokens exceed {SHARED_ROW} or {SHARED_RESPONSE}"
        check(f"{name}.share_prompts", can_share or not config[name].share_prompts, rule)
        check(f"{name}.overlong_buffer", config[name].overlong_buffer <= longest, f"not exceed {longest}, the longest")
    for name in learners:
        is_corrected = config[name].importance_cap > 0 or config[name].old_log_probs == "sampler"
        rule = "be greater than 0 (2 is usual) with rollout.int8_weights, whose samples are of another policy"
        check(f"{name}.importance_cap", is_corrected or not config.rollout.int8_weights, rule)
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


# Fields and sections that older runs lack, whose defaults change nothing of what is learned.
_ADDED = (
    *("sandbox.memo_mb", "sft.black_box", "sft.expert_span", "sft.expert_suites_else", "noise", "opponents"),
    *("game.mutant_weight", "game.hidden_reward", "game.selection", "game.made_mutants"),
    *("code.thinking", "test.thinking", "rollout.cache_gib", "rollout.guesses"),
    *("rollout.int8_weights", "code.share_prompts", "test.share_prompts", "log.keep_samples", "skipped_steps"),
    "max_sampler_kl",
    *("code.lora", "test.lora"),
)


def config_of(folder: RunFolder) -> ConfigDict:
    """Returns the config of a training run. Raises BadInput for another kind of run, or one of another version.

    Fields that older runs lack, and that do not change what is learned, get their defaults.
    """
    default = default_config()
    config = ConfigDict(folder.config)
    if "data" in config and "max_dropped" not in config.data:
        config.data.max_dropped = 1.0  # what was left out then is left out now
    if "game" in config and "assert_forms" not in config.game:
        config.game.assert_forms = "equality"  # what was no test then is none now
    for name in _ADDED:
        section, _, field = name.rpartition(".")
        if section in config and field not in config[section]:
            config[section][field] = default[section][field]
        elif name not in config and not section:
            config[name] = default[name]
    there, here = (set(dict(leaves(each.to_dict()))) for each in (config, default))
    if there != here:
        others = ", ".join(sorted(there ^ here)[:3])
        raise BadInput(f"{folder.path} is not a training run of this version: its config.json differs in {others}.")
    _check_fields(config)
    _check_values(config)  # and not what decides nothing, which earlier versions took; nor the reward: few need it
    return config
