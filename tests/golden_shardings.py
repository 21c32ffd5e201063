"""How every shipped config cuts its parameters, as a table that is kept in tests/golden/shardings.json.

python -m tests.golden_shardings    # writes the table again, after a change that was meant
"""

import json
from dataclasses import replace
from pathlib import Path

import jax
from flax import nnx
from flax.traverse_util import flatten_dict

from codea1 import sharding
from codea1.lab.aot.jobs import models
from codea1.lab.aot.topology import shipped_configs
from codea1.models import qwen2
from codea1.models.config import Qwen2Config, require_divisible
from codea1.slices import num_chips

PATH = Path(__file__).parent / "golden" / "shardings.json"

Table = dict[
    str, dict[str, str]
]  # config and player: parameter: its cut in training and in rollout, and a chip's share


def tables() -> Table:
    """The table of all shipped configs; needs neither chips nor their compiler."""
    return {
        f"{name}, {player}": _table(replace(model.config, lora_rank=config.policy(player).lora.rank), _mesh(config))
        for name, config in shipped_configs()
        for player, model in models(config).items()
    }


def _mesh(config) -> jax.sharding.AbstractMesh:
    chips, replica, tensor = num_chips(config.mesh.topology), config.mesh.replica, config.mesh.tensor
    return jax.sharding.AbstractMesh((replica, chips // replica // tensor, tensor), sharding.MESH_AXES)


def _table(model: Qwen2Config, mesh: jax.sharding.AbstractMesh) -> dict[str, str]:
    require_divisible(model, mesh)
    _, abstract = qwen2.abstract(model)
    shapes = flatten_dict(nnx.to_pure_dict(abstract), sep=".")
    train, rollout = (
        flatten_dict(sharding.param_shardings(abstract, mesh, rules), sep=".")
        for rules in (sharding.TRAIN_RULES, sharding.ACTIVATION_RULES)
    )

    def one(name: str) -> str:
        shape = shapes[name].shape
        train_shard, rollout_shard = (each[name].shard_shape(shape) for each in (train, rollout))
        return f"{shape}: {_spec(train[name])} {train_shard}, {_spec(rollout[name])} {rollout_shard}"

    return {name: one(name) for name in sorted(shapes)}


def _spec(cut: jax.sharding.NamedSharding) -> str:
    axes = ["-" if not axis else axis if isinstance(axis, str) else " x ".join(axis) for axis in cut.spec]
    return f"({', '.join(axes)})"


if __name__ == "__main__":
    PATH.write_text(json.dumps(tables(), indent=1) + "\n")
