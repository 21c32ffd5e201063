"""Arithmetic of a model's passes, counted by hand, and what an update did of what its devices can do.

The compiler's own count takes the body of a loop once, and layers, chunks and decode steps are loops. Matrix products
count two operations per multiplication; norms, rotations, softmax and the optimizer are left out. Letters as in
`codea1.models.qwen2`.
"""

from collections.abc import Sequence

from jax.sharding import Mesh

from codea1.models.config import Qwen2Config

GIB = 1 << 30


# Bfloat16 per second, dense, of one device by the kind that JAX calls it. A v5p, whose two cores are one device, is
# called v5. TPUs: Google's "How to scale your model" (jax-ml.github.io/scaling-book/tpus); GPUs: NVIDIA's data sheets
# of the SXM versions.
PEAK_FLOPS = {
    **dict.fromkeys(("TPU v5 lite", "TPU v5e"), 197e12),
    **dict.fromkeys(("TPU v5", "TPU v5p"), 459e12),
    **dict.fromkeys(("TPU v6 lite", "TPU v6e"), 920e12),
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA H100 80GB HBM3": 989.4e12,
    "NVIDIA H200": 989.4e12,
}


def layer_weights(model: Qwen2Config) -> int:
    """Counts the weights of one layer's matrices, those of all its experts included."""
    resting = model.num_experts - model.experts_per_token
    return active_weights(model) + 3 * model.hidden_size * model.intermediate_size * resting


def expert_weights(model: Qwen2Config) -> int:
    """Counts the weights of one layer's experts, which lie cut over all chips; 0 where there are none."""
    return 3 * model.hidden_size * model.intermediate_size * model.num_experts


def active_weights(model: Qwen2Config) -> int:
    """Counts the weights of one layer by which a token is multiplied."""
    D, F, h = model.hidden_size, model.intermediate_size, model.head_dim
    experts, router = model.experts_per_token or 1, D * model.num_experts
    return 2 * D * model.num_heads * h + 2 * D * model.num_kv_heads * h + 3 * D * F * experts + router


def adapter_weights(model: Qwen2Config) -> int:
    """Counts the weights of one layer's adapters; 0 where there are none."""
    D, F, h = model.hidden_size, model.intermediate_size, model.head_dim
    mlp = 0 if model.num_experts else 3 * (D + F)
    return model.lora_rank * (2 * (D + model.num_heads * h) + 2 * (D + model.num_kv_heads * h) + mlp)


def head_weights(model: Qwen2Config) -> int:
    """Counts the weights of the output head."""
    return model.vocab_size * model.hidden_size


def layers_flops(model: Qwen2Config, rows: int, length: int, visible: float = 1.0) -> float:
    """Counts operations of all layers forward over rows of so many tokens.

    Under a causal mask, of whose pairs the share `visible` counts.
    """
    weights = 2 * rows * length * (active_weights(model) + adapter_weights(model))
    return model.num_layers * (weights + visible * attention_flops(model, rows, length))


def attention_flops(model: Qwen2Config, rows: int, length: int) -> float:
    """Counts those of one layer's scores and weighted values forward, for the half of all pairs that is not masked."""
    return 2 * rows * length**2 * model.num_heads * model.head_dim


def head_flops(model: Qwen2Config, tokens: int) -> float:
    """Counts those of the logits of so many tokens."""
    return 2 * tokens * head_weights(model)


def model_flops(model: Qwen2Config, rows: int, length: int) -> float:
    """Counts what an update must compute and no more: forward and backward. The numerator of MFU."""
    forward = layers_flops(model, rows, length) + head_flops(model, rows * length)
    return 3 * forward - frozen_gradients(model, rows * length)


def frozen_gradients(model: Qwen2Config, tokens: int) -> float:
    """Counts the gradients of matrices that do not train: none where there are no adapters."""
    return 2 * tokens * model.num_layers * active_weights(model) + head_flops(model, tokens) if model.lora_rank else 0.0


def utilisation(
    model: Qwen2Config, lengths: Sequence[int], repeated: Sequence[int], seconds: float, mesh: Mesh
) -> dict[str, float]:
    """Returns the speed of an update that took so long, counted in what it had to compute; see `model_flops`.

    "update_tflops_per_second" is of all devices together. "update_mfu" is that as a share of their bfloat16 peak
    (model FLOPs utilisation, Chowdhery et al. 2022, appendix B), and is left out for devices whose peak is not known.

    Args:
      model: that was updated.
      lengths: tokens of each sequence, prompt and response; padding does not count.
      repeated: tokens of each prompt among these that need not be computed again.
      seconds: that the update took.
      mesh: it ran on.
    """
    needed = sum(model_flops(model, 1, length) for length in lengths)
    needed -= sum(model_flops(model, 1, length) for length in repeated)
    flops_per_second = needed / seconds
    metrics = {"update_tflops_per_second": flops_per_second / 1e12}
    peak = PEAK_FLOPS.get(mesh.devices.flat[0].device_kind)
    if peak:
        metrics["update_mfu"] = flops_per_second / (peak * mesh.size)
    return metrics
