"""What chips can do, and the arithmetic and memory traffic of a step's functions, counted by hand.

Norms, rotations, softmax and the optimizer's arithmetic are left out, as in `codea1.models.flops`.
"""

from dataclasses import dataclass

from codea1.models.config import Qwen2Config
from codea1.models.flops import (
    GIB,
    PEAK_FLOPS,
    active_weights,
    adapter_weights,
    attention_flops,
    expert_weights,
    frozen_gradients,
    head_flops,
    head_weights,
    layer_weights,
    layers_flops,
)
from codea1.models.moe import PLACES

BF16, F32 = 2, 4  # bytes


@dataclass(frozen=True)
class Chip:
    """What one chip of a generation can do."""

    hbm_bytes: int  # that the compiler lets functions use
    flops: float  # bfloat16, per second
    hbm_bandwidth: float  # bytes per second
    ici_bandwidth: float  # bytes per second that a chip sends to one neighbour
    ici_axes: int  # of the torus


# HBM as the compiler states it when a function does not fit; the rest from the TPU chapter of Google's "How to scale
# your model" (jax-ml.github.io/scaling-book/tpus).
CHIPS = {
    "v5e": Chip(int(15.75 * GIB), PEAK_FLOPS["TPU v5e"], 0.81e12, 45e9, 2),
    "v6e": Chip(int(31.25 * GIB), PEAK_FLOPS["TPU v6e"], 1.6e12, 90e9, 2),
    "v5p": Chip(int(95.74 * GIB), PEAK_FLOPS["TPU v5p"], 2.8e12, 90e9, 3),
}


@dataclass(frozen=True)
class Work:
    """Of all chips together."""

    flops: float
    hbm_bytes: float  # read and written
    ici_bytes: float = 0.0  # sent between chips

    def __add__(self, other: "Work") -> "Work":
        return Work(self.flops + other.flops, self.hbm_bytes + other.hbm_bytes, self.ici_bytes + other.ici_bytes)

    def __mul__(self, factor: float) -> "Work":
        return Work(self.flops * factor, self.hbm_bytes * factor, self.ici_bytes * factor)


@dataclass(frozen=True)
class Cut:
    """How a mesh cuts a model."""

    data: int  # replica x fsdp: parts into which rows are cut
    fsdp: int
    tensor: int

    @property
    def chips(self) -> int:
        return self.data * self.tensor


def num_weights(model: Qwen2Config) -> int:
    """Counts the weights of all matrices: what every chip must see of a model. Norms and biases are left out."""
    tables = 1 if model.tie_word_embeddings else 2
    return model.num_layers * layer_weights(model) + tables * head_weights(model)


def trained_weights(model: Qwen2Config) -> int:
    """Counts the weights of all matrices that train."""
    return model.num_layers * adapter_weights(model) if model.lora_rank else num_weights(model)


def score(model: Qwen2Config, rows: int, length: int, cut: Cut, visible: float = 1.0) -> Work:
    """Counts the log-probs of one micro-batch: one pass forward; `visible` as in `layers_flops`."""
    flops = layers_flops(model, rows, length, visible) + head_flops(model, rows * length)
    return Work(flops, 0) + _pass(model, rows * length, cut)


def update(model: Qwen2Config, rows: int, length: int, cut: Cut, visible: float = 1.0) -> Work:
    """Counts the gradients of one micro-batch; `visible` as in `layers_flops`.

    Backward is twice forward, and the chunks of logits are computed again for it; so are the layers, but for "none".
    Rematerialising with "dots" is counted as with "full". The backward kernels of attention make seven products of
    all pairs where forward makes two. What is frozen has no gradient, half of its backward pass.
    """
    passes = 3 if model.remat == "none" else 4
    attention = (3.5 - 2) * model.num_layers * visible * attention_flops(model, rows, length)
    flops = passes * layers_flops(model, rows, length, visible) + attention + 4 * head_flops(model, rows * length)
    flops -= frozen_gradients(model, rows * length)
    gradients = F32 * trained_weights(model)
    reduced = Work(0, 2 * gradients, gradients * _others(cut.fsdp) * cut.data)
    return Work(flops, 0) + _pass(model, rows * length, cut) * passes + reduced


def optimizer(model: Qwen2Config) -> Work:
    """Counts AdamW: it reads parameters, both moments and, twice, gradients; and writes all but the gradients."""
    return Work(0, trained_weights(model) * F32 * (4 + 1 + 3))


def publish(model: Qwen2Config, cut: Cut) -> Work:
    """Counts every chip's copy of the weights for generation, gathered from all chips that hold parts."""
    copies = BF16 * _gathered_weights(model) * cut.data
    return Work(0, copies, copies * _others(cut.fsdp))


def prefill(model: Qwen2Config, prompts: int, length: int, cut: Cut) -> Work:
    """Counts the prefill of so many prompts."""
    tokens = prompts * length
    weights = _read(model, model.num_layers * layer_weights(model), tokens, cut)
    between = _activations_between_chips(model, tokens, cut)
    return Work(layers_flops(model, prompts, length), weights + tokens * cache_bytes(model), between)


def decode_step(model: Qwen2Config, slots: int, positions: int, cut: Cut) -> Work:
    """Counts one token in every slot, with attention over so many positions in each on average."""
    attention = 4 * slots * positions * model.num_heads * model.head_dim * model.num_layers
    flops = 2 * slots * model.num_layers * active_weights(model) + attention + head_flops(model, slots)
    weights = _read(model, model.num_layers * layer_weights(model) + head_weights(model), slots, cut)
    return Work(flops, weights + slots * positions * cache_bytes(model), _activations_between_chips(model, slots, cut))


def cache_bytes(model: Qwen2Config) -> int:
    """Counts the bytes of the keys and values of one position."""
    return 2 * BF16 * model.num_layers * model.num_kv_heads * model.head_dim


def _pass(model: Qwen2Config, tokens: int, cut: Cut) -> Work:
    """Counts the traffic of one pass over the layers: weights gathered in bfloat16, activations written and read."""
    # Per layer and token: the residual stream twice, queries, keys, values, and the three of the MLP or each expert.
    D, F, h = model.hidden_size, model.intermediate_size * (model.experts_per_token or 1), model.head_dim
    per_token = 4 * D + (model.num_heads + 2 * model.num_kv_heads) * h + 3 * F
    activations = 2 * BF16 * tokens * model.num_layers * per_token
    gathered = BF16 * _gathered_weights(model) * cut.data
    between = gathered * _others(cut.fsdp) + _activations_between_chips(model, tokens, cut)
    return Work(0, gathered + _read(model, num_weights(model), tokens, cut) + activations, between)


def _gathered_weights(model: Qwen2Config) -> int:
    """Counts the weights that every chip needs whole, or its part along `tensor` of: all but experts."""
    return num_weights(model) - model.num_layers * expert_weights(model)


def _read(model: Qwen2Config, weights: int, tokens: int, cut: Cut) -> float:
    """Counts the bytes of so many weights that all chips read; experts in a replica once for each part of its rows."""
    experts, replicas = model.num_layers * expert_weights(model), cut.data // cut.fsdp
    parts = -(-tokens * model.experts_per_token // (replicas * PLACES))
    return BF16 * ((weights - experts) * cut.data + experts * replicas * parts)


def _activations_between_chips(model: Qwen2Config, tokens: int, cut: Cut) -> float:
    """Counts two sums per layer over chips that share its heads and MLP, each two exchanges of the residual stream.

    To experts all chips of a replica send their rows, and get float32 sums back.
    """
    sums = 4 * BF16 * (cut.tensor - 1)
    rows = (BF16 + F32) * (cut.fsdp - 1) * cut.tensor if model.num_experts else 0
    return (sums + rows) * tokens * model.hidden_size * model.num_layers


def _others(parts: int) -> float:
    return (parts - 1) / parts
