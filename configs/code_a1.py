"""The paper's runs on TPU slices: Qwen2.5-Coder-Instruct of 0.5B to 7B as both players; or adapters, to 32B.

  # on any machine: does it fit?
  python -m codea1.compile_tpu --config=configs/code_a1.py:size=1.5b,topology=v5e-16
  # on each host of the slice
  python -m codea1.train --config=configs/code_a1.py:size=1.5b,topology=v5e-16 --workdir=gs://BUCKET/RUN
  # adapters of rank 32
  python -m codea1.train --config=configs/code_a1.py:size=7b,lora=32,topology=v5e-8 --workdir=gs://BUCKET/RUN

Arguments: size, topology, seed, method; lora=RANK, see below; models=FOLDER, which holds Qwen2.5-Coder-1.5B-Instruct
and its like as downloaded; data=FOLDER, which holds train.parquet, validation.parquet and test.parquet with the
official fields; static_tests=FILE, of `codea1.lab dump_tests`. method= is one of codea1/game/methods.py, or

  simple  the variant of codea1/config_file.py
  sft     for codea1.sft: the SFT Test LLM, whose recipe the paper does not tell. It goes on from the Instruct model for
          111 steps on 256 suites each, of golden tests of the training questions, so that each comes three times as in
          the runs; AdamW 1e-5, 10 steps of warm-up, cosine to 0

Batch, lengths, M, N, K, forms of asserts, learning rate, KL and alpha are the paper's (codea1/config.py says each): 256
questions, 8 solutions each, 8 suites each, prompts of at most 4096 and 8192 tokens, responses of 4096, 111 steps. The
paper ran on eight GPUs. What differs, and what takes it back: docs/differences.md.

Memory of a chip that learning and rollout take at most, as the TPU's compiler counts it, and the least time of a step,
a roofline for mean lengths of 250 and 350 tokens: a lower bound, of which a measured step will take a multiple
(results/pods_compiled.md):

  size  slice    learn  rollout  step, s
  0.5b  v5e-8      34%      59%       27
  1.5b  v5e-16     54%      81%       35
  1.5b  2xv5e-16   48%      81%       19
  1.5b  4xv5e-16   47%      81%       11
  1.5b  v5e-64     37%      67%       11
  1.5b  v5p-32      9%      32%       11
  1.5b  v5p-64      7%      31%        7
  1.5b  v6e-16     29%      60%       13
  1.5b  v6e-64     20%      53%        3
  3b    v5e-16     78%      86%       64
  3b    v5e-64     39%      71%       19
  3b    v5p-32     16%      39%       20
  3b    v5p-64     12%      36%       12
  3b    v6e-16     40%      70%       20
  3b    v6e-64     21%      56%        6
  7b    v5e-64     65%      77%       35
  7b    v5p-32     28%      49%       38
  7b    v5p-64     18%      41%       21
  7b    v6e-16     80%      80%       42
  7b    v6e-64     41%      66%       12

With lora=RANK both players are adapters on one frozen base in bfloat16. The base lies cut over all chips, once, and a
copy of a chip's part of it is gathered while one answers; references are adapters too. The learning rate is ten times
the one of all weights, a rule of thumb that was not tried on these models; all else is as above. Slices that are not
here take the layout above, and were not compiled with adapters. With rank 32:

  size  lora  slice   learn  rollout  step, s
  7b    32    v5e-8     56%      88%      250
  14b   32    v5e-16    89%      86%      318
  32b   32    v6e-16    61%      81%      207
  30b-a3b  32  v6e-16   36%      66%       77
  30b-a3b  32  v5p-8    26%      71%      117

30b-a3b is Qwen3-Coder-30B-A3B-Instruct, whose adapters are on attention alone.
"""

from typing import NamedTuple

from ml_collections import ConfigDict

from codea1.config_file import SFT, default_config, parse_arg, use_method
from codea1.runtime.errors import BadInput
from codea1.slices import num_chips, split


class Fit(NamedTuple):
    """How a size is laid out on a slice."""

    tensor: int  # ways in which heads, MLP and vocabulary are cut; rows are cut over the other chips
    slots: int  # sequences that decode at once, per way in which rows are cut
    cache_gib: int  # of each chip for the pages of their keys and values


FITS = {
    ("0.5b", "v5e-8"): Fit(1, 128, 6),
    ("1.5b", "v5e-16"): Fit(1, 192, 6),
    ("1.5b", "2xv5e-16"): Fit(1, 192, 6),
    ("1.5b", "4xv5e-16"): Fit(1, 128, 6),
    ("1.5b", "v5e-64"): Fit(1, 128, 6),
    ("1.5b", "v6e-16"): Fit(1, 256, 12),
    ("1.5b", "v6e-64"): Fit(1, 256, 12),
    ("1.5b", "v5p-32"): Fit(1, 256, 24),
    ("1.5b", "v5p-64"): Fit(1, 256, 24),
    ("3b", "v5e-16"): Fit(2, 128, 4),
    ("3b", "v5e-64"): Fit(2, 128, 6),
    ("3b", "v6e-16"): Fit(2, 256, 12),
    ("3b", "v6e-64"): Fit(2, 256, 12),
    ("3b", "v5p-32"): Fit(1, 256, 24),
    ("3b", "v5p-64"): Fit(1, 256, 24),
    ("7b", "v5e-64"): Fit(4, 128, 4),
    ("7b", "v6e-16"): Fit(4, 256, 6),
    ("7b", "v6e-64"): Fit(4, 256, 12),
    ("7b", "v5p-32"): Fit(2, 256, 24),
    ("7b", "v5p-64"): Fit(2, 256, 24),
}
# Adapters of rank RANK, on slices that would not hold moments and gradients of all weights.
RANK = 32
FITS_ADAPTERS = {
    ("7b", "v5e-8"): Fit(4, 128, 6),
    ("14b", "v5e-16"): Fit(8, 128, 5),
    ("32b", "v6e-16"): Fit(8, 256, 10),
    ("30b-a3b", "v6e-16"): Fit(1, 128, 12),
    ("30b-a3b", "v5p-8"): Fit(1, 384, 48),
}
# Those that are not of Qwen2.5-Coder: shape and folder.
OTHERS = {"30b-a3b": ("qwen3-coder-30b-a3b", "Qwen3-Coder-30B-A3B-Instruct")}
SLICES = (
    *(f"size={size},topology={topology}" for size, topology in FITS),
    *(f"size={size},lora={RANK},topology={topology}" for size, topology in FITS_ADAPTERS),
)


def get_config(arg: str | None = None) -> ConfigDict:
    arg = parse_arg(
        arg,
        size="1.5b",
        topology="v5e-16",
        lora=0,
        seed=0,
        method="code_a1",
        models="models",
        data="data/code_a1",
        static_tests="",
    )
    fits = FITS | FITS_ADAPTERS if arg.lora else FITS
    if (arg.size, arg.topology) not in fits:
        name = f"size={arg.size}{f',lora={arg.lora}' if arg.lora else ''} on topology={arg.topology}"
        raise BadInput(f"{name} is not among the shipped ones: {', '.join(SLICES)}.")
    fit = fits[arg.size, arg.topology]
    data_parallel = num_chips(arg.topology) // fit.tensor
    of_qwen2 = f"qwen2.5-coder-{arg.size}", f"Qwen2.5-Coder-{arg.size.upper()}-Instruct"
    shape, folder = OTHERS.get(arg.size, of_qwen2)
    c = default_config()
    c.seed = arg.seed
    for name in ("train", "validation", "test"):
        c.data[name].source = f"{arg.data}/{name}.parquet"
    for player in (c.code, c.test):
        player.shape, player.model = shape, f"{arg.models}/{folder}"
        player.micro_batch_size = data_parallel  # one of the longest rows on each
        player.share_prompts = True
        player.lora.rank = arg.lora
    c.code.prompt_lengths = (512, 1024)
    c.test.prompt_lengths = (1024, 2048)
    c.game.assert_forms = "equality"
    c.rollout.slots = fit.slots * data_parallel
    c.rollout.cache_gib = float(fit.cache_gib)
    c.mesh.replica, _ = split(arg.topology)  # each slice has a copy of the weights, cut over its own chips
    c.mesh.tensor = fit.tensor
    c.mesh.topology = arg.topology
    use_method(c, arg.method, arg.static_tests, own=[SFT])
    if arg.lora:
        for player in (c.code, c.test):
            player.learning_rate *= 10  # than all weights want
    if arg.method == SFT:
        c.sft.start = c.test.model
        c.sft.steps = 111
        c.sft.batch_size = 256
        c.sft.length = c.test.max_prompt_length + 1024
        c.sft.micro_batch_size = data_parallel
        c.sft.row_lengths = (1024, 2048)
        c.sft.learning_rate = 1e-5
        c.sft.warmup_steps = 10
        c.sft.adam_b2 = 0.999
        c.sft.weight_decay = 0.1
    return c
