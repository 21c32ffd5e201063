"""The config of a run: every field with its default, meaning and range, as frozen dataclasses, one for each section.

Defaults are the paper's where it has a value: the steps and their questions, `game`, how the players `code` and `test`
sample and learn, how often a run is validated and saved. Ours are `data`, `sandbox`, `model`, `rollout`, `mesh`,
`watchdog`, `profile`, `sft`, a player's `critic` and what it compiles for, and the rest of `validation` and
`checkpoint`. docs/differences.md has what differs from the paper all the same.

`codea1.config_file` reads a config file and flags such as `--config.game.alpha=0.25` into a `Config`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codea1.game.methods import METHODS, CodeRewardSource
from codea1.game.mistake_book import EVICTION_RULES
from codea1.game.rewards import REWARDS
from codea1.game.round import SELECTIONS
from codea1.learn.advantages import ADVANTAGES, GDPO
from codea1.runtime import removed
from codea1.runtime.errors import BadInput
from codea1.runtime.extras import is_installed, needs
from codea1.runtime.settings import ANY, NOT_NEGATIVE, POSITIVE, SHARE, Range, Section, Where, field, one_of, read
from codea1.sandbox.isolation import ISOLATIONS

# The names of learn/ and models/ are written out below: those import JAX, which takes seconds, and a wrong flag is
# reported before. tests/program_test.py compares them with the tables there.
_AGGREGATIONS = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "dr-grpo")
_OF_QWEN2 = [f"qwen2.5-coder-{size}" for size in ("0.5b", "1.5b", "3b", "7b", "14b", "32b")]
# Tokens of the longest rows that share prompts, and of responses in them, that models.attention's kernel can tell.
SHARED_ROW, SHARED_RESPONSE = 16384, 8191

WEIGHS_VALIDITY = Where(
    "the reward weighs validity",
    lambda _, game: REWARDS[game.reward](0.0, 1).weights != REWARDS[game.reward](1.0, 1).weights,
)
HAS_TEST_LLM = Where("there is a Test LLM", lambda config, _: "test" in METHODS[config.method].roles)
HAS_BOOK = Where("game.mistake_book is True", lambda _, game: game.mistake_book)
IS_GRPO = Where("advantage is grpo", lambda _, policy: policy.advantage == "grpo")
IS_GAE = Where("advantage is gae", lambda _, policy: policy.advantage == "gae")
IS_PPO = Where("surrogate is ppo", lambda _, policy: policy.surrogate == "ppo")
HAS_KL = Where("kl_coefficient is not 0", lambda _, policy: policy.kl_coefficient > 0)
FROM_TRAINER = Where("old_log_probs is trainer", lambda _, policy: policy.old_log_probs == "trainer")
HAS_ADAPTERS = Where("lora.rank is not 0", lambda _, policy: policy.lora.rank > 0)

LENGTHS = Range("hold numbers greater than 0", lambda value: all(length > 0 for length in value))
GROUP = Range("be at least 2: an advantage compares a group", lambda value: value > 1)
DECAY = Range("be 0 or greater and less than 1", lambda value: 0 <= value < 1)
BOUND = NOT_NEGATIVE._replace(may_be_infinite=True)
ABOVE_1 = Range("be greater than 1", lambda value: value > 1, may_be_infinite=True)
ANY_LEFT = Range("be greater than 0, or -1 for the devices left", lambda value: value == -1 or value > 0)
BITS_64 = Range("be 0 or greater and have at most 64 bits", lambda value: 0 <= value < 2**64)
SPAN = Range("be two shares, the first no greater", lambda span: 0 <= span[0] <= span[1] <= 1)


@dataclass(frozen=True)
class QuestionsConfig(Section):
    """Where a set of questions comes from."""

    # With the official fields; a dataset is one that tensorflow-datasets prepared as array_record files.
    source: str = field("procedural", ANY, "path or gs:// URL of a .parquet or .jsonl file or a dataset; or a world")
    split: str = field("train", ANY, "split of a dataset; files have one split and ignore it")
    limit: int = field(0, NOT_NEGATIVE, "questions: only the first so many; 0 for all")


@dataclass(frozen=True)
class DataConfig(Section):
    """The three sets of questions."""

    folder: str = field("data", ANY, "local; where prepared datasets, and copies of what is in buckets, are kept")
    train: QuestionsConfig = QuestionsConfig()
    validation: QuestionsConfig = QuestionsConfig(split="validation")  # chooses the best step and the recipe
    test: QuestionsConfig = QuestionsConfig(split="test")  # reported, never chosen on
    max_dropped: float = field(0.1, SHARE, "share of questions whose prompt may be too long; they do not train")
    static_tests: str = field("", ANY, "method static_tests: tests of `codea1.lab dump_tests` that pay the Code LLM")


@dataclass(frozen=True)
class GameConfig(Section):
    """The game and its rewards."""

    num_solutions: int = field(8, GROUP, "M: solutions per question")
    num_suites: int = field(8, POSITIVE, "N: suites per solution")
    num_tests: int = field(8, POSITIVE, "K: tests asked for in a suite")
    assert_forms: str = field("all", one_of(("equality", "all")), "of codea1.game.forms; equality: the paper's")
    # It also decides which tests run, and so enter the book.
    reward: str = field("official", ANY, "of codea1.game.rewards.REWARDS, or FILE.py:NAME")
    alpha: float = field(0.5, SHARE, "weight of validity in the Test LLM's reward", WEIGHS_VALIDITY, HAS_TEST_LLM)
    mutant_weight: float = field(0.0, SHARE, "of killed mutants in the adversarial part", HAS_TEST_LLM)
    hidden_reward: bool = field(False, ANY, "also run check scripts and hidden mutants, which no reward reads")
    mistake_book: bool = field(True, ANY, "replay each question's old failures")
    history_size: int = field(8, NOT_NEGATIVE, "tests replayed per question", HAS_BOOK)
    book_cap: int = field(0, NOT_NEGATIVE, "tests kept per question; 0: all, as in the paper", HAS_BOOK)
    book_total_cap: int = field(0, NOT_NEGATIVE, "tests kept of all questions together; 0: all", HAS_BOOK)
    book_policy: str = field("frequency", one_of(EVICTION_RULES), "which leave; codea1.game.mistake_book", HAS_BOOK)
    trained_solutions: int = field(1, POSITIVE, "solutions per question whose suites train", HAS_TEST_LLM)
    selection: str = field("variance", one_of(SELECTIONS), "of codea1.game.round; variance is TOPVAR", HAS_TEST_LLM)
    max_rounds: int = field(1, POSITIVE, "batches in a step, until enough questions teach the Code LLM (DAPO)")
    prompts: str = field("default", ANY, '"default", "tiny" or the path of a JSON file with templates')

    def __post_init__(self) -> None:
        super().__post_init__()
        most = self.num_solutions
        self.require("trained_solutions", self.trained_solutions <= most, f"not exceed num_solutions, which is {most}")


@dataclass(frozen=True)
class LoraConfig(Section):
    """Adapters on the kernels of all layers, on a base that is frozen; the paper has none."""

    rank: int = field(0, NOT_NEGATIVE, "of the adapters; 0: there are none, and all weights train")
    alpha: float = field(32.0, POSITIVE, "what an adapter adds counts alpha / rank times", HAS_ADAPTERS)


@dataclass(frozen=True)
class CriticConfig(Section):
    """PPO's value model, which starts from the policy's weights; the paper has none."""

    learning_rate: float = field(1e-5, POSITIVE, "peak; warm-up and decay are the policy's", IS_GAE)
    warmup_steps: int = field(0, NOT_NEGATIVE, "training steps in which the critic alone learns", IS_GAE)
    gae_lambda: float = field(1.0, SHARE, "of generalised advantage estimation", IS_GAE)


@dataclass(frozen=True)
class PolicyConfig(Section):
    """One policy: the model it starts from, how it samples and how it learns."""

    # Adapters name the folder of their base. With a shape, which the folder must have, `compile_tpu` needs no folder.
    model: str = field("", ANY, "folder of a model and its tokenizer, or of adapters as PEFT writes them")
    shape: str = field("", one_of(("", *_OF_QWEN2, "qwen3-coder-30b-a3b")), "of codea1.models.config.PUBLISHED")
    max_prompt_length: int = field(4096, POSITIVE, "tokens")
    prompt_lengths: tuple[int, ...] = field((), LENGTHS, "tokens that prompts are padded to; each is compiled for")
    max_response_length: int = field(4096, POSITIVE, "tokens")
    stop_at_block: bool = field(
        False, ANY, "an answer ends with its first code block, a suite with the last assert that counts"
    )
    thinking: str = field("", one_of(("", "off", "on")), 'enable_thinking of the chat template; "": its own default')
    temperature: float = field(1.0, POSITIVE, "of training samples; log-probs are those of the same tempered softmax")

    lora: LoraConfig = LoraConfig()

    learning_rate: float = field(1e-6, POSITIVE, "peak")
    warmup_steps: int = field(10, NOT_NEGATIVE, "training steps; the first has learning rate 0")
    decay: str = field("cosine", one_of(("cosine", "linear", "constant")), "to 0 one step after the last")
    adam_b1: float = field(0.9, DECAY, "decay of the mean; with 1 it would stay 0")
    adam_b2: float = field(0.999, DECAY, "decay of the mean of squares")
    adam_eps: float = field(1e-8, POSITIVE, "added to the root")
    weight_decay: float = field(0.1, NOT_NEGATIVE, "decoupled, on all parameters")
    max_grad_norm: float = field(1.0, POSITIVE._replace(may_be_infinite=True), "global norm")

    mini_batches: int = field(2, POSITIVE, "optimizer steps per training step")
    micro_batch_size: int = field(8, POSITIVE, "longest sequences alive at once; changes no result")
    row_lengths: tuple[int, ...] = field((), LENGTHS, "tokens of further rows of micro-batches; each is compiled for")
    # Rows may then be longer than a sequence, and mini-batches hold whole groups.
    share_prompts: bool = field(False, ANY, "a row of a micro-batch holds a prompt once, with all its responses")
    old_log_probs: str = field("trainer", one_of(("trainer", "sampler")), "who computes the denominator of the ratio")
    advantage: str = field("grpo", one_of((*ADVANTAGES, GDPO, "gae")), "codea1.learn.advantages; gae: PPO, a critic")
    normalize_by_std: bool = field(True, ANY, "False subtracts the group's mean alone", IS_GRPO)
    surrogate: str = field("ppo", one_of(("ppo", "gspo", "cispo")), "of codea1.learn.surrogates")
    clip_low: float = field(0.20, BOUND, "the ratio is clipped below at 1 - clip_low")
    clip_high: float = field(0.28, BOUND, "it is clipped above at 1 + clip_high")
    dual_clip: float = field(10.0, ABOVE_1, "the loss of an advantage A < 0 is at most dual_clip * |A|", IS_PPO)
    kl_estimator: str = field("k3", one_of(("k1", "k2", "k3")), "of the KL from the reference; k3 is bounded", HAS_KL)
    kl_coefficient: float = field(1e-3, NOT_NEGATIVE, "of that KL divergence in the loss")
    entropy_coefficient: float = field(0.0, NOT_NEGATIVE, "of the entropy in the loss")
    # Each token's loss has the weight pi_old / pi_sampler, up to this bound.
    importance_cap: float = field(0.0, BOUND, "bound; 0: no weight", FROM_TRAINER)
    replay_routes: bool = field(True, ANY, "a mixture of experts learns with the experts that answered")
    balance_coefficient: float = field(0.0, NOT_NEGATIVE, "of the loss that evens out how many rows experts get")
    critic: CriticConfig = CriticConfig()
    aggregation: str = field("token-mean", one_of(_AGGREGATIONS), "of tokens; codea1.learn.losses.token_weights")
    # In them the reward that advantages see falls, at last by 1 (DAPO).
    overlong_buffer: int = field(0, NOT_NEGATIVE, "the last tokens of max_response_length; 0: none")
    learn_truncated: bool = field(True, ANY, "responses cut off at max_response_length train; else they are compared")

    def __post_init__(self) -> None:
        super().__post_init__()
        prompt, response = self.max_prompt_length, self.max_response_length
        longest, has_critic = prompt + response, self.advantage == "gae"
        is_shorter = all(length < prompt for length in self.prompt_lengths)
        self.require("prompt_lengths", is_shorter, f"hold numbers less than {prompt}")
        is_shorter = self.share_prompts or all(length < longest for length in self.row_lengths)
        self.require("row_lengths", is_shorter, f"hold numbers less than {longest}, unless share_prompts is True")
        must = "be False: advantage is gae, whose rows hold one sequence"
        self.require("share_prompts", not (has_critic and self.share_prompts), must)
        must = "be 0: advantage is gae, whose critic would be a second model, all of whose weights train"
        self.require("lora.rank", not (has_critic and self.lora.rank), must)
        row = max(longest, *self.row_lengths, 0)
        can_share = row <= SHARED_ROW and response <= SHARED_RESPONSE
        exceeded = f"rows of {row} and responses of {response} tokens exceed {SHARED_ROW} or {SHARED_RESPONSE}"
        self.require("share_prompts", can_share or not self.share_prompts, f"be False: {exceeded}")
        self.require("overlong_buffer", self.overlong_buffer <= response, f"not exceed {response}, the longest")


@dataclass(frozen=True)
class ModelConfig(Section):
    """How models compute."""

    # Of products and of published weights, and but for CPUs of activations.
    dtype: str = field("bfloat16", one_of(("float32", "bfloat16", "auto")), "auto: the faster one here")
    remat: str = field("full", one_of(("none", "dots", "full")), "what the backward pass recomputes")
    log_prob_chunk: int = field(1024, POSITIVE, "tokens of each device whose logits are alive at once")


@dataclass(frozen=True)
class RolloutConfig(Section):
    """How answers are sampled."""

    slots: int = field(256, POSITIVE, "sequences that decode at once, as far as there are pages for them")
    cache_gib: float = field(0.0, NOT_NEGATIVE, "of a chip for keys and values; 0: what all slots need")


@dataclass(frozen=True)
class MeshConfig(Section):
    """How devices share the work."""

    replica: int = field(1, POSITIVE, "data parallel; a multiple of the number of TPU slices")
    fsdp: int = field(-1, ANY_LEFT, "data parallel with sharded weights; -1: all devices that are left")
    tensor: int = field(1, POSITIVE, "tensor parallel; must divide the number of KV heads")
    topology: str = field("", ANY, "TPU slice that the config is made for, v5e-16, or slices, 2xv5e-16")


@dataclass(frozen=True)
class SandboxConfig(Section):
    """What untrusted programs may use. The values are ours: the reference gives a program 10 s for all of its tests."""

    isolation: str = field("full", one_of(ISOLATIONS), "codea1.sandbox.isolation; auto: the strongest there is")
    slots: int = field(0, NOT_NEGATIVE, "gradings at once; 0: one per CPU core")
    cpu_seconds_per_test: float = field(2.0, POSITIVE, "of a test")
    cpu_seconds_per_suite: float = field(12.0, POSITIVE, "of all suites of a solution; replayed tests have as much")
    memory_mb: int = field(1024, POSITIVE, "MiB of address space")
    memo_mb: int = field(512, POSITIVE, "MiB of memory for verdicts and answers that recur")


@dataclass(frozen=True)
class ValidationConfig(Section):
    """Ours but for the first: the paper draws 32 at temperature 0.7, of its benchmarks."""

    every: int = field(10, POSITIVE, "training steps; also before the first and after the last")
    samples: int = field(4, POSITIVE, "solutions per question at temperature 1")
    test_samples: int = field(8, POSITIVE, "the same, for the test split before and after the run")
    shown_mutants: int = field(2, POSITIVE, "programs per question that the Test LLM is asked to break")


@dataclass(frozen=True)
class CheckpointConfig(Section):
    """Which steps are saved."""

    every: int = field(50, POSITIVE, "training steps; also after the last")
    keep_last: int = field(2, POSITIVE, "ours")
    keep_best: int = field(1, NOT_NEGATIVE, "ours; by pass@1 of the Code LLM plus Mul of the Test LLM")


@dataclass(frozen=True)
class WatchdogConfig(Section):
    """A host without progress ends and is restarted; may differ when a run is continued."""

    restart_after: float = field(600.0, BOUND, "seconds after it said what hangs; 0: never")


@dataclass(frozen=True)
class ProfileConfig(Section):
    """A trace of JAX's profiler, of two steps; may differ when a run is continued."""

    first_step: int = field(0, NOT_NEGATIVE, "training step that it begins with; 0: none is made")


@dataclass(frozen=True)
class WandbConfig(Section):
    """Weights & Biases."""

    project: str = field("", ANY, "in W&B; empty: it is not used")
    offline: bool = field(False, ANY, "write files for `wandb sync` instead of sending")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("project", is_installed("wandb") or not self.project, f"be empty: it {needs('wandb')}")


@dataclass(frozen=True)
class LogConfig(Section):
    """What a run keeps and shows; may differ when it is continued."""

    keep_samples: int = field(0, NOT_NEGATIVE, "training steps whose samples are kept, the newest; 0: all")
    wandb: WandbConfig = WandbConfig()


@dataclass(frozen=True)
class SftConfig(Section):
    """The warm start, and the SFT Test LLM, whose recipe the paper does not give: the values are ours."""

    # Its policy becomes a Test LLM, on suites for the training questions. Without, models for both players are made.
    start: str = field("", ANY, "model folder; see `codea1.sft`")
    steps: int = field(360, POSITIVE, "optimizer steps")
    batch_size: int = field(64, POSITIVE, "documents")
    length: int = field(160, POSITIVE, "tokens per document")
    micro_batch_size: int = field(64, POSITIVE, "longest documents whose activations are alive at once")
    row_lengths: tuple[int, ...] = field((), LENGTHS, "tokens: further row lengths, for shorter documents")
    learning_rate: float = field(2.5e-3, POSITIVE, "peak")
    warmup_steps: int = field(30, NOT_NEGATIVE, "optimizer steps")
    adam_b2: float = field(0.98, DECAY, "decay of the mean of squares")
    weight_decay: float = field(0.05, NOT_NEGATIVE, "decoupled, on all parameters")
    expert_suites: float = field(0.35, SHARE, "of suites whose inputs expose the program's mistake, where they can")
    expert_span: tuple[float, float] = field((0.5, 1.0), SPAN, "from this share of the steps to that")
    expert_suites_else: float = field(0.0, SHARE, "the same in all other steps")


@dataclass(frozen=True)
class Config(Section):
    """All settings: the paper's run, except for what docs/differences.md lists."""

    seed: int = field(0, BITS_64, "of everything random: data order, initial weights, sampled tokens")
    method: str = field("code_a1", one_of(METHODS), "who plays and what pays the Code LLM; see codea1.game.methods")
    frozen: str = field("", ANY, '"code" or "test": that one plays and does not learn')
    steps: int = field(111, POSITIVE, "training steps")
    questions_per_step: int = field(256, POSITIVE, "questions")
    # Between the policy that samples and the one that learns, while both have the same weights: more in three steps in
    # a row, and the run stops. May differ when a run is continued.
    max_sampler_kl: float = field(0.1, BOUND, "nats per token; 0: never")
    data: DataConfig = DataConfig()
    game: GameConfig = GameConfig()
    code: PolicyConfig = PolicyConfig(max_prompt_length=4096)
    test: PolicyConfig = PolicyConfig(max_prompt_length=8192)
    model: ModelConfig = ModelConfig()
    rollout: RolloutConfig = RolloutConfig()
    mesh: MeshConfig = MeshConfig()
    sandbox: SandboxConfig = SandboxConfig()
    validation: ValidationConfig = ValidationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    watchdog: WatchdogConfig = WatchdogConfig()
    profile: ProfileConfig = ProfileConfig()
    log: LogConfig = LogConfig()
    sft: SftConfig = SftConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        first = self.profile.first_step
        self.require("profile.first_step", first <= self.steps, f"not exceed the {self.steps} steps")
        method = METHODS[self.method]
        must = f"be empty, or one of two players, and {self.method} has {' and '.join(method.policies)}"
        self.require("frozen", not self.frozen or 0 < len(self.learners) < len(method.policies), must)
        needs_tests = method.code_reward is CodeRewardSource.STATIC_TESTS
        must = "name a file with the method static_tests, and be empty with others"
        self.require("data.static_tests", bool(self.data.static_tests) == needs_tests, must)
        for name in method.policies:
            counts = {"sequences": self.trained_sequences(name)}
            if self.policy(name).share_prompts:
                of_question = {"code": 1, "test": self.game.trained_solutions}
                counts["prompts"] = self.questions_per_step * sum(of_question[role] for role in method.roles_of(name))
            for parts, count in counts.items():
                must = f"divide the {count} {parts} of a training step"
                self.require(f"{name}.mini_batches", count % self.policy(name).mini_batches == 0, must)

    def policy(self, name: str) -> PolicyConfig:
        """Returns the section of a policy, "code" or "test"."""
        return {"code": self.code, "test": self.test}[name]

    def trained_sequences(self, policy: str) -> int:
        """Returns the most sequences that can train a policy in a step, in all roles it plays; 0 if it is frozen."""
        if policy == self.frozen:
            return 0
        of_role = self.trained_per_question()
        return self.questions_per_step * sum(of_role[role] for role in METHODS[self.method].roles_of(policy))

    def trained_per_question(self) -> dict[str, int]:
        """Returns, by role, the most samples of a question that can train the policy that plays it."""
        return {"code": self.game.num_solutions, "test": self.game.trained_solutions * self.game.num_suites}

    @property
    def learners(self) -> tuple[str, ...]:
        """The policies that learn."""
        return tuple(name for name in METHODS[self.method].policies if name != self.frozen)


DEFAULT = Config()
RULES = dict(DEFAULT.rules())  # by dotted name
OF_TEST_LLM = tuple(name for name, rule in RULES.items() if HAS_TEST_LLM in rule.where)


def settings(values: Mapping[str, Any]) -> Config:
    """Returns the config with these values, whose reward need not be known. Raises BadInput: see `read`."""
    if gone := removed.removed_name("the method", str(values.get("method")), removed.METHODS):
        raise BadInput(gone)
    return read(DEFAULT, values)
