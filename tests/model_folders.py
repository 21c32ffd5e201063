"""What tests read model folders with."""

import os

import jax
import pytest
from flax import nnx

from codea1.models import huggingface, qwen2
from codea1.models.config import Qwen2Config


def load(folder: str | os.PathLike[str]) -> tuple[Qwen2Config, qwen2.Params]:
    """The configuration of a checkpoint and all its parameters as numpy arrays, in the dtype of the files."""
    checkpoint = huggingface.Checkpoint(folder)
    return checkpoint.config, params_of(checkpoint)


def params_of(checkpoint: huggingface.Checkpoint) -> qwen2.Params:
    _, abstract = qwen2.abstract(checkpoint.config)
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    shardings = jax.tree.map(lambda _: here, nnx.to_pure_dict(abstract))
    return jax.device_get(checkpoint.place(shardings, checkpoint.config.param_dtype))


def transformers_model(folder: object, dtype: str = "float32"):
    """What transformers makes of a folder, where torch is installed."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation="eager").eval()
