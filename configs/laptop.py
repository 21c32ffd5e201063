"""A real model on two CPU cores: both players are adapters on one Qwen2.5-Coder-0.5B-Instruct.

  python -m codea1.train --config=configs/laptop.py:model=FOLDER,data=FOLDER --workdir=runs/laptop

`model` is Qwen2.5-Coder-0.5B-Instruct as downloaded. `data` holds train.parquet and validation.parquet, as
bench/real_questions.py makes them of MBPP without MBPP+'s tasks and of LeetCodeDataset, test.parquet of HumanEval+ and
MBPP+, and, for method=static_tests, random.jsonl of bench/real_random_asserts.py. docs/real.md has the commands, and
results, times and memory of earlier runs.

Arguments: steps, seed, method. A step has 4 questions with 8 programs each, and 2 suites for each program.

The base lies in memory once for both players, in the dtype that the CPU multiplies faster: bfloat16 where it has AMX or
AVX512_BF16; else the run times a product. The rate is 200 times the paper's, as adapters and few steps want; there is
no KL term, which would cost a forward pass. An answer ends with its first code block: what models write behind it is
not read.
"""

from ml_collections import ConfigDict

from codea1.config_file import default_config, parse_arg, use_method


def get_config(arg: str | None = None) -> ConfigDict:
    arg = parse_arg(
        arg, model="data/Qwen2.5-Coder-0.5B-Instruct", data="data/laptop", steps=20, seed=0, method="code_a1"
    )
    c = default_config()
    c.seed = arg.seed
    c.steps = arg.steps
    c.questions_per_step = 4
    c.data.train.source = f"{arg.data}/train.parquet"
    c.data.validation.source = f"{arg.data}/validation.parquet"
    c.data.test.source = f"{arg.data}/test.parquet"
    c.data.validation.limit = 24
    c.data.test.limit = 0
    c.game.num_solutions = 8
    c.game.num_suites = 2
    c.game.num_tests = 4
    c.game.trained_solutions = 2
    c.game.hidden_reward = True
    for player in (c.code, c.test):
        player.model = arg.model
        player.lora.rank = 16
        player.learning_rate = 2e-4
        player.warmup_steps = 2
        player.kl_coefficient = 0.0
        player.mini_batches = 1
        player.micro_batch_size = 1
        player.share_prompts = True
        player.stop_at_block = True
        player.old_log_probs = "trainer"
    c.code.max_prompt_length = 640
    c.code.prompt_lengths = (128, 256, 384)
    c.code.max_response_length = 512
    c.code.row_lengths = (1280, 1792)
    c.test.max_prompt_length = 1024
    c.test.prompt_lengths = (384, 512, 640)
    c.test.max_response_length = 256
    c.test.row_lengths = (640, 960, 1280)
    c.model.dtype = "auto"
    c.model.remat = "dots"
    c.model.log_prob_chunk = 256
    c.rollout.slots = 64
    c.sandbox.isolation = "auto"
    c.validation.every = 10
    c.validation.samples = 1
    c.validation.test_samples = 1
    c.validation.shown_mutants = 1
    c.checkpoint.every = 2
    use_method(c, arg.method, f"{arg.data}/random.jsonl" if arg.method == "static_tests" else "")
    return c
