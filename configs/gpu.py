"""The game on one GPU with 80 GB: two Qwen2.5-Coder-Instruct of 0.5B (about 32 GiB) or 1.5B (about 67 GiB).

  pip install -c requirements.lock 'jax[cuda12]'
  python -m codea1.lab worlds classic    # the questions
  python -m codea1.train --config=configs/gpu.py:size=0.5b --workdir=runs/gpu

Arguments: size, seed, method; models=FOLDER, which holds Qwen2.5-Coder-0.5B-Instruct and its like as downloaded.

The memory is counted from parameters, moments, gradients, pages and one sequence's activations, and was not measured;
neither was a step's time, and this config did not run. configs/laptop.py did, on an H200 (docs/real.md). There XLA
compiled in seconds, and not in minutes, with XLA_FLAGS="--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false".
Attention over whole sequences is cuDNN's, which needs Ampere or later. The batch is an eighth of the paper's; lengths
and everything else are its, on procedural questions.
"""

from ml_collections import ConfigDict

from codea1.config_file import default_config, parse_arg, use_method


def get_config(arg: str | None = None) -> ConfigDict:
    arg = parse_arg(arg, size="0.5b", models="models", seed=0, method="code_a1")
    c = default_config()
    c.seed = arg.seed
    use_method(c, arg.method)
    c.questions_per_step = 32
    c.data.train.limit = 2048
    c.data.validation.limit = 64
    c.data.test.limit = 256
    for player in (c.code, c.test):
        player.shape = f"qwen2.5-coder-{arg.size}"
        player.model = f"{arg.models}/Qwen2.5-Coder-{arg.size.upper()}-Instruct"
        player.micro_batch_size = 1
    c.code.prompt_lengths = (512, 1024)
    c.code.row_lengths = (640, 1024, 2048)
    c.test.prompt_lengths = (1024, 2048)
    c.test.row_lengths = (1024, 1280, 1536, 3072)
    c.model.log_prob_chunk = 1024
    c.rollout.slots = 128
    c.rollout.cache_gib = 6.0
    return c
