"""The whole game on one TPU v5e chip, as Colab lends it: two Qwen2.5-Coder-0.5B-Instruct on procedural questions.

  python -m codea1.compile_tpu --config=configs/colab.py
  python -m codea1.train --config=configs/colab.py --workdir=/content/run

Arguments: models=FOLDER, which holds Qwen2.5-Coder-0.5B-Instruct as downloaded; seed; method.

Two policies with float32 parameters, moments and references would take 14.7 GiB of the chip's 15.75, and gradients
twice 1.8 more. So the moments of whoever does not learn wait in the host's memory, there are no references and no KL
term (the paper's is 0.001), and lengths and batch are an eighth of the paper's or less. It shows the system on real
models; it is not the paper's run. The TPU's compiler counts at most 75 % of the chip's memory while one learns and 41 %
while one answers; the least time of a step is 11 s by roofline (docs/pods_compiled.md).
"""

from ml_collections import ConfigDict

from codea1.config import default_config, parse_arg

SLICES = ("",)


def get_config(arg: str | None = None) -> ConfigDict:
    arg = parse_arg(arg, models="models", seed=0, method="code_a1")
    c = default_config()
    c.seed = arg.seed
    c.method = arg.method
    c.questions_per_step = 16
    c.data.train.limit = 512
    c.data.validation.limit = 64
    c.data.test.limit = 256
    c.game.num_solutions = 4
    c.game.num_suites = 4
    for player in (c.code, c.test):
        player.shape = "qwen2.5-coder-0.5b"
        player.model = f"{arg.models}/Qwen2.5-Coder-0.5B-Instruct"
        player.kl_coefficient = 0.0
        player.micro_batch_size = 1
    c.code.max_prompt_length = 512
    c.code.max_response_length = 512
    c.test.max_prompt_length = 1280
    c.test.max_response_length = 768
    c.test.prompt_lengths = (768,)
    c.test.row_lengths = (1024,)
    c.model.log_prob_chunk = 256
    c.model.offload_moments = True
    c.rollout.slots = 32
    c.mesh.topology = "v5e-1"
    return c
