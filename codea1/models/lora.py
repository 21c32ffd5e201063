"""LoRA (Hu et al., 2021): what of a model's parameters trains, what is frozen, and both in one kernel.

Adapters are leaves next to the kernels of all linear layers: `q_lora_a` and `q_lora_b` next to `q_kernel`. `nnx.LoRA`
intercepts a product; ours are in `weights.dense`, whose own gradient it would bypass.
"""

from typing import Any

import jax
from flax.traverse_util import flatten_dict, unflatten_dict

from codea1.models import qwen2
from codea1.models.config import Qwen2Config
from codea1.models.qwen2 import Params


def split(tree: Any) -> tuple[Any, Any]:
    """Returns, of anything shaped like parameters, what trains and what is frozen.

    Those are the adapters and the base; or everything and nothing, where there are no adapters.
    """
    flat = flatten_dict(tree)
    adapters = {path: x for path, x in flat.items() if path[-1].endswith(("_lora_a", "_lora_b"))}
    if not adapters:
        return tree, {}
    return unflatten_dict(adapters), unflatten_dict({path: x for path, x in flat.items() if path not in adapters})


def join(trained: Any, frozen: Any) -> Any:
    """Returns the whole of what `split` has split."""
    return unflatten_dict(flatten_dict(trained) | flatten_dict(frozen))


def initialise_adapters(config: Qwen2Config, key: jax.Array, shardings: Any) -> Params:
    """Draws the adapters as `qwen2.initialise` does, and nothing else: they change no answer yet."""
    return jax.jit(lambda key: split(qwen2.initialise(config, key))[0], out_shardings=shardings)(key)
