"""What describes a model: the numbers that decide its parameters' shapes and compiled functions; and sizes by name."""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.typing import DTypeLike

from codea1.runtime.errors import BadInput

PROJECTION = "projection"  # what a kernel and its adapter make of an activation
# What the backward pass recomputes in each layer: "none" keeps every activation, "dots" keeps the projections, "full"
# keeps the layer's input alone.
REMAT_POLICIES: dict[str, Callable[[Callable], Callable]] = {
    "none": lambda layer: layer,
    "dots": lambda layer: jax.checkpoint(
        layer, prevent_cse=False, policy=jax.checkpoint_policies.save_only_these_names(PROJECTION)
    ),
    "full": lambda layer: jax.checkpoint(layer, prevent_cse=False),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Qwen2Config:
    """Hashable description of one model: everything that decides its parameters' shapes and the compiled functions.

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
    max_positions: int = 32768  # tokens of a row that it was made for
    qkv_bias: bool = True  # Qwen2: queries, keys and values have biases
    qk_norm: bool = False  # Qwen3: each query and key head is normalised before its rotation
    num_experts: int = 0  # e, experts of a layer; 0: it has one MLP
    experts_per_token: int = 0  # c; intermediate_size is then the width of one expert
    norm_experts: bool = True  # weights of a token's experts sum to 1
    tie_word_embeddings: bool = True  # the output head is the embedding table
    dtype: DTypeLike = jnp.float32  # products; norms, softmax and logits are float32 whatever this is
    param_dtype: DTypeLike = jnp.float32  # parameters that train, at rest
    lora_rank: int = 0  # of the adapters, which alone train then; 0: there are none, and all parameters train
    lora_alpha: float = 32.0  # what an adapter adds counts lora_alpha / lora_rank times
    remat: str = "none"  # one of REMAT_POLICIES
    platform: str = "cpu"  # of the mesh that functions are compiled for: chooses between forms of the same attention

    def __post_init__(self) -> None:
        # One spelling per dtype, so that equal configurations hash alike and share compiled functions.
        object.__setattr__(self, "dtype", jnp.dtype(self.dtype))
        object.__setattr__(self, "param_dtype", jnp.dtype(self.param_dtype))
        for field in dataclasses.fields(self):
            least = 0 if field.name in ("lora_rank", "num_experts", "experts_per_token") else 1
            if field.type is int and getattr(self, field.name) < least:
                raise BadInput(f"model {field.name} must be at least {least}, got {getattr(self, field.name)}.")
        if bool(self.num_experts) != bool(self.experts_per_token) or self.experts_per_token > self.num_experts:
            raise BadInput(f"model experts_per_token {self.experts_per_token} is not of {self.num_experts} experts.")
        if self.num_heads % self.num_kv_heads:
            raise BadInput(f"model num_kv_heads {self.num_kv_heads} does not divide num_heads {self.num_heads}.")
        if self.head_dim % 2:
            raise BadInput(f"model head_dim must be even for rotary embeddings, got {self.head_dim}.")
        if self.remat not in REMAT_POLICIES:
            raise BadInput(f"model remat must be one of {', '.join(REMAT_POLICIES)}, got {self.remat!r}.")

    @property
    def activations(self) -> jnp.dtype:
        """The dtype of what lies between products. Of bfloat16, XLA for CPU would convert whole arrays to write one."""
        return jnp.dtype(jnp.float32) if self.platform == "cpu" else jnp.dtype(self.dtype)

    @property
    def routes(self) -> jax.ShapeDtypeStruct | None:
        """The experts of one token, [L, c]: the largest number of the dtype is none's. None of a model without."""
        if not self.num_experts:
            return None
        return jax.ShapeDtypeStruct((self.num_layers, self.experts_per_token), np.min_scalar_type(self.num_experts))


@dataclasses.dataclass(frozen=True)
class SpecialIds:
    """Token ids that are not text."""

    stop_ids: tuple[int, ...]  # any of them ends an answer
    pad_id: int


def require_divisible(config: Qwen2Config, mesh: Mesh) -> None:
    """Raises BadInput when a mesh axis would cut a dimension of the model unevenly, naming the nearest size that works.

    Query heads need no check of their own: they are a multiple of the key/value heads.
    """
    mlp = () if config.num_experts else ("intermediate_size",)
    cuts = {"tensor": ("num_kv_heads", *mlp, "vocab_size"), "fsdp": ("hidden_size",)}
    chips, experts = mesh.shape["fsdp"] * mesh.shape["tensor"], config.num_experts
    if experts % chips:
        raise BadInput(f"mesh axes fsdp x tensor have {chips} chips, not a divisor of num_experts {experts}.")
    for axis, names in cuts.items():
        size, dimensions = mesh.shape[axis], {name: getattr(config, name) for name in names}
        uneven = [f"{name} {value}" for name, value in dimensions.items() if value % size]
        if uneven:
            common = math.gcd(*dimensions.values())
            works = min((d for d in range(1, common + 1) if common % d == 0), key=lambda d: abs(d - size))
            raise BadInput(f"mesh axis {axis} {size} does not divide the model's {' or '.join(uneven)}: use {works}.")


def _qwen(vocab: int, hidden: int, mlp: int, layers: int, heads: int, kv_heads: int, tied: bool = True) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=hidden // heads,
        tie_word_embeddings=tied,
    )


# In which the published sizes differ.
SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim"),
    *("num_experts", "experts_per_token"),
)

# The config.json of each Qwen/Qwen2.5-Coder-*B-Instruct on the Hugging Face hub, and of Qwen3-Coder-30B-A3B-Instruct.
PUBLISHED = {
    "qwen2.5-coder-0.5b": _qwen(151936, 896, 4864, 24, 14, 2),
    "qwen2.5-coder-1.5b": _qwen(151936, 1536, 8960, 28, 12, 2),
    "qwen2.5-coder-3b": _qwen(151936, 2048, 11008, 36, 16, 2),
    "qwen2.5-coder-7b": _qwen(152064, 3584, 18944, 28, 28, 4, tied=False),
    "qwen2.5-coder-14b": _qwen(152064, 5120, 13824, 48, 40, 8, tied=False),
    "qwen2.5-coder-32b": _qwen(152064, 5120, 27648, 64, 40, 8, tied=False),
    "qwen3-coder-30b-a3b": dataclasses.replace(
        _qwen(151936, 2048, 768, 48, 32, 4, tied=False),
        head_dim=128,
        rope_theta=1e7,
        max_positions=262144,
        qkv_bias=False,
        qk_norm=True,
        num_experts=128,
        experts_per_token=8,
    ),
}

# The special tokens of their tokenizers: <|im_end|> ends an answer, <|endoftext|> pads.
PUBLISHED_IDS = SpecialIds(stop_ids=(151645,), pad_id=151643)


def tiny_model(vocab_size: int) -> Qwen2Config:
    """Returns a model that learns on a laptop CPU: 0.8 M parameters without its embedding table."""
    return _qwen(vocab_size, hidden=128, mlp=384, layers=4, heads=4, kv_heads=2)
