"""The demo: two 0.9M-parameter policies on procedural questions, on a laptop's CPU.

  make train
  # or, step by step
  python -m codea1.sft --config=configs/tiny.py:recipe=official --workdir=runs/tiny/sft
  python -m codea1.train --config=configs/tiny.py:recipe=official,steps=60 --workdir=runs/tiny/code_a1

docs/demo.md has its results and times. Without arguments it is the world and the recipe of docs/tables.md.

Arguments: --config=configs/tiny.py:seed=1,method=golden,sft=runs/tiny/sft,steps=100,static_tests=FILE

world= is one of codea1/lab/worlds/worlds.py. recipe= is paper, of docs/tables.md; official, with the paper's reward and
alpha, and batches for eight minutes; or aimed, with which the Test LLM learns to aim.

method= is one of codea1/game/methods.py, or

  simple  the variant of codea1/config_file.py, with the rates of this config: 1e-5 would not move policies this small
  sft     for codea1.sft: the SFT Test LLM. It goes on from the warm start for 150 steps on 64 expert suites each, about
          planted misconceptions in programs for the training questions: 9,600 suites, as many as train Code-A1's

The warm start teaches both prompts of the Test LLM, with the solution in sight and without. With self_play, or
self_play_white_box, one policy has the code player's settings and room for both roles' answers.
docs/methods.md has the commands.
"""

from ml_collections import ConfigDict

from codea1.config_file import SFT, SIMPLE, default_config, parse_arg, use_method
from codea1.data.sources import CLASSIC, source_of
from codea1.runtime.errors import BadInput

PAPER, OFFICIAL, AIMED = RECIPES = ("paper", "official", "aimed")


def get_config(arg: str | None = None) -> ConfigDict:
    arg = parse_arg(
        arg, seed=0, method="code_a1", sft="runs/tiny/sft", steps=100, static_tests="", world=CLASSIC, recipe=PAPER
    )
    if arg.recipe not in RECIPES:
        raise BadInput(f"recipe={arg.recipe} is unknown; known are {', '.join(RECIPES)}.")
    c = default_config()
    c.seed = arg.seed
    c.steps = arg.steps
    c.questions_per_step = 12

    for questions in (c.data.train, c.data.validation, c.data.test):
        questions.source = source_of(arg.world)
    c.data.train.limit = 96  # few enough that each question returns every eight steps and meets its Mistake Book
    c.data.validation.limit = 96
    c.data.test.limit = 256

    c.game.num_solutions = 6
    c.game.num_suites = 4
    c.game.num_tests = 4
    c.game.reward = "strict_tests"
    c.game.alpha = 0.3
    c.game.trained_solutions = 2
    c.game.prompts = "tiny"
    c.game.assert_forms = "equality"  # as in the runs of docs/tables.md and docs/adversary.md

    for player in (c.code, c.test):
        player.model = f"{arg.sft}/model"
        player.warmup_steps = 5
        player.adam_b2 = 0.99
        player.weight_decay = 0.01
        player.micro_batch_size = 8
        player.old_log_probs = "sampler"  # in float32 they are the trainer's to 1e-5
    c.code.max_prompt_length = 20
    c.code.max_response_length = 28
    c.code.row_lengths = (32,)
    c.code.learning_rate = 3e-4
    c.test.max_prompt_length = 48
    c.test.max_response_length = 68
    c.test.row_lengths = (64, 84)
    c.test.learning_rate = 2e-4
    c.test.decay = "constant"
    c.test.kl_coefficient = 0.08  # without it the Test LLM learns its 96 questions and drifts to short inputs

    c.model.dtype = "float32"
    c.model.remat = "none"
    c.rollout.slots = 96

    c.sft.length = 112
    c.sft.micro_batch_size = 8
    c.sft.row_lengths = (64, 80, 96)
    if arg.world != CLASSIC:
        c.data.train.limit = 240  # more, for fewer visits: what a suite misses once, the next visit's need not find
        c.game.hidden_reward = True
        c.code.kl_coefficient = 0.03  # without it programs that leave a condition out pass bland tests, and stay
        # The warm start's Test LLM knows how to aim and hardly does: experts write early suites, and few of the last.
        c.sft.steps = 1080
        c.sft.expert_suites = 0.4
        c.sft.expert_span = (0.0, 0.75)
        c.sft.expert_suites_else = 0.02
    if arg.recipe == OFFICIAL:
        c.game.reward = "official"
        c.game.alpha = 0.5
        c.questions_per_step = 8
        c.code.learning_rate = 6e-4
        # Small batches: the loss of 300 steps of 64 documents, after half as many documents.
        c.sft.steps = 640
        c.sft.batch_size = 16
        c.sft.micro_batch_size = 16
        c.sft.row_lengths = ()
        c.sft.learning_rate = 4e-3
    if arg.recipe == AIMED:
        c.game.mutant_weight = 0.5
        c.test.advantage = "gdpo"
        c.test.kl_coefficient = 0.01
        c.test.learning_rate = 4e-4
        c.game.trained_solutions = 4

    c.validation.every = 30 if arg.recipe == OFFICIAL else 20
    c.checkpoint.every = 10
    c.sandbox.memory_mb = 512
    c.sandbox.isolation = "auto"  # the demo runs in any container; the run says how far its programs are isolated
    use_method(c, arg.method, arg.static_tests, own=[SFT])
    if arg.method == SIMPLE:
        c.code.learning_rate, c.test.learning_rate = 3e-4, 2e-4
    if arg.method == SFT:
        c.sft.start = f"{arg.sft}/model"
        c.sft.steps = 150
        c.sft.learning_rate = 5e-4
        c.sft.warmup_steps = 5
        c.sft.expert_suites = 1.0
    if arg.method in ("self_play", "self_play_white_box"):
        c.code.max_prompt_length, c.code.max_response_length = c.test.max_prompt_length, c.test.max_response_length
        c.code.row_lengths = (32, *c.test.row_lengths)
    return c
