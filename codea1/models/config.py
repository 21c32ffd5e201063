"""What describes a model: the numbers that decide its parameters' shapes and the compiled functions."""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import DTypeLike

from codea1.runtime.errors import BadInput

# What the backward pass recomputes in each layer: "none" keeps every activation, "dots" keeps the results of weight
# matmuls, "full" keeps the layer's input alone.
REMAT_POLICIES: dict[str, Callable[[Callable], Callable]] = {
    "none": lambda layer: layer,
    "dots": lambda layer: jax.checkpoint(
        layer, prevent_cse=False, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    ),
    "full": lambda layer: jax.checkpoint(layer, prevent_cse=False),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Qwen2Config:
    """Hashable description of one model: everything that decides its parameters' shapes and the compiled program.

    Raises BadInput when the numbers contradict one another.
    """

    vocab_size: int  # V
    hidden_size: int  # D
    intermediate_size: int  # F
    num_layers: int  # L
    num_heads: int  # H, query heads
    num_kv_heads: int  # K, key/value heads; H / K query heads share one
    head_dim: int  # h
    rope_theta: float = 1e6  # base of the rotary wavelengths
    rms_norm_eps: float = 1e-6
    qkv_bias: bool = True  # Qwen2: queries, keys and values have biases
    qk_norm: bool = False  # Qwen3: each query and key head is normalised before its rotation
    tie_word_embeddings: bool = True  # the output head is the embedding table
    dtype: DTypeLike = jnp.float32  # activations; norms, softmax and logits are float32 whatever this is
    param_dtype: DTypeLike = jnp.float32  # parameters at rest
    remat: str = "none"  # one of REMAT_POLICIES
    platform: str = "cpu"  # of the mesh the programs are for: chooses between forms of the same attention

    def __post_init__(self) -> None:
        # One spelling per dtype, so that equal configurations hash alike and share compiled programs.
        object.__setattr__(self, "dtype", jnp.dtype(self.dtype))
        object.__setattr__(self, "param_dtype", jnp.dtype(self.param_dtype))
        for field in dataclasses.fields(self):
            if field.type is int and getattr(self, field.name) < 1:
                raise BadInput(f"model {field.name} must be at least 1, got {getattr(self, field.name)}")
        if self.num_heads % self.num_kv_heads:
            raise BadInput(f"model num_kv_heads {self.num_kv_heads} does not divide num_heads {self.num_heads}")
        if self.head_dim % 2:
            raise BadInput(f"model head_dim must be even for rotary embeddings, got {self.head_dim}")
        if self.remat not in REMAT_POLICIES:
            raise BadInput(f"model remat must be one of {', '.join(REMAT_POLICIES)}, got {self.remat!r}")


def require_divisible(config: Qwen2Config, mesh: Mesh) -> None:
    """Raises BadInput when a mesh axis would cut a dimension of the model unevenly, naming the nearest size that works.

    Query heads need no check of their own: they are a multiple of the key/value heads.
    """
    cuts = {"tensor": ("num_kv_heads", "intermediate_size", "vocab_size"), "fsdp": ("hidden_size",)}
    for axis, names in cuts.items():
        size, dimensions = mesh.shape[axis], {name: getattr(config, name) for name in names}
        uneven = [f"{name} {value}" for name, value in dimensions.items() if value % size]
        if uneven:
            common = math.gcd(*dimensions.values())
            works = min((d for d in range(1, common + 1) if common % d == 0), key=lambda d: abs(d - size))
            raise BadInput(f"mesh axis {axis} {size} does not divide the model's {' or '.join(uneven)}: use {works}")
