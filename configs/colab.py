"""The whole game on one TPU v5e chip, as Colab lends it: two players of Qwen2.5-Coder-1.5B-Instruct, as adapters on one
frozen base, on procedural questions.

  python -m codea1.compile_tpu --config=configs/colab.py
  python -m codea1.lab worlds classic    # the questions
  python -m codea1.train --config=configs/colab.py --workdir=/content/run

Arguments: models=FOLDER, which holds Qwen2.5-Coder-1.5B-Instruct as downloaded; seed; method.

The base takes 2.9 GiB of the chip's 15.75, once for both players and for their references, and generation reads it
where it lies. Adapters of rank 32, their moments and references take 1.1 GiB. So there is the paper's KL term; the
learning rate is ten times the paper's, a rule of thumb for adapters. Lengths and batch are an eighth of the paper's or
less, so that a step is short. It shows the system on real models; it is not the paper's run. The TPU's compiler counts
at most 33 % of the chip's memory while one learns and 53 % while one answers; the least time of a step is 23 s by
roofline, a lower bound (results/pods_compiled.md). Nothing of it ran on a TPU.
"""

from ml_collections import ConfigDict

from codea1.config_file import default_config, parse_arg, use_method

SLICES = ("",)


def get_config(arg: str | None = None) -> ConfigDict:
    arg = parse_arg(arg, models="models", seed=0, method="code_a1")
    c = default_config()
    c.seed = arg.seed
    use_method(c, arg.method)
    c.questions_per_step = 16
    c.data.train.limit = 512
    c.data.validation.limit = 64
    c.data.test.limit = 256
    c.game.num_solutions = 4
    c.game.num_suites = 4
    for player in (c.code, c.test):
        player.shape = "qwen2.5-coder-1.5b"
        player.model = f"{arg.models}/Qwen2.5-Coder-1.5B-Instruct"
        player.lora.rank = 32
        player.learning_rate *= 10  # what adapters want, as a rule of thumb; not tried on this model
        player.micro_batch_size = 1
    c.code.max_prompt_length = 512
    c.code.max_response_length = 512
    c.test.max_prompt_length = 1280
    c.test.max_response_length = 768
    c.test.prompt_lengths = (768,)
    c.test.row_lengths = (1024,)
    c.model.log_prob_chunk = 256
    c.rollout.slots = 128
    c.rollout.cache_gib = 4.0
    c.mesh.topology = "v5e-1"
    return c
