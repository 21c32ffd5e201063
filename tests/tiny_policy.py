"""A policy small enough to compile in a second, with random weights that make its predictions uneven."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from codea1.models import qwen2
from codea1.models.config import Qwen2Config
from codea1.sharding import TRAIN_RULES, make_mesh, param_shardings

CONFIG = Qwen2Config(
    vocab_size=48, hidden_size=32, intermediate_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8
)


def make_policy(
    fsdp: int = 1, tensor: int = 1, dtype: DTypeLike = jnp.float32, *, replica: int = 1, lora_rank: int = 0
) -> SimpleNamespace:
    """The same policy on any mesh: `mesh`, `config`, `graphdef`, `shardings` and `params`."""
    mesh = make_mesh(replica, fsdp, tensor, devices=jax.devices()[: replica * fsdp * tensor])
    config = dataclasses.replace(CONFIG, dtype=dtype, lora_rank=lora_rank)
    graphdef, abstract = qwen2.abstract(config)
    shardings = param_shardings(abstract, mesh, TRAIN_RULES)
    params = jax.jit(_spread, out_shardings=shardings)(qwen2.initialise(config, jax.random.key(1)))
    return SimpleNamespace(mesh=mesh, config=config, graphdef=graphdef, shardings=shardings, params=params)


def _spread(params: Any) -> Any:
    # At their initial size of 0.02 the weights predict all tokens alike, and a wrong mask or shift would not show.
    return jax.tree.map(lambda p: p * 8 if p.ndim > 1 else p, params)
