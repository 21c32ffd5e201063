"""The programs of a player, with their layouts and static sizes: all that its config decides without any weights.

`Player` and `Critic` run them; `codea1.aot` compiles them for chips that are not there.
"""

import dataclasses
from functools import cached_property

import jax
from flax import nnx
from jax.sharding import Mesh
from ml_collections import ConfigDict

from codea1.learn.batch import RowShape, row_shapes
from codea1.learn.log_probs import make_score
from codea1.learn.losses import ObjectiveConfig
from codea1.learn.optimizer import AdamWConfig
from codea1.learn.surrogates import Clip
from codea1.learn.update import TrainState, abstract_state, make_update, state_shardings
from codea1.learn.values import abstract_value_params, make_value_update, make_values, value_shardings
from codea1.models import qwen2
from codea1.models.config import Qwen2Config, require_divisible
from codea1.models.config_json import SpecialIds
from codea1.models.qwen2 import Params
from codea1.rollout.engine import Engine
from codea1.sharding import TRAIN_RULES, laid_out, param_shardings


class PlayerPrograms:
    """What one policy runs on a mesh; nothing is compiled before the first use."""

    def __init__(self, name: str, config: ConfigDict, mesh: Mesh, stored: Qwen2Config, ids: SpecialIds) -> None:
        """Declares the programs.

        Args:
          name: "code" or "test", the section of `config` that says how it plays.
          config: the whole config of the run.
          mesh: where it lives.
          stored: the model, as its folder or name describes it.
          ids: of its tokenizer.

        Raises:
          BadInput: the mesh cannot cut the model.
        """
        own = config[name]
        self.model = model_config(config, stored, mesh)
        require_divisible(self.model, mesh)
        graphdef, self._declared = qwen2.abstract(self.model)
        self.mesh = mesh
        self.row_shapes: tuple[RowShape, ...] = row_shapes(
            own.row_lengths,
            own.max_prompt_length + own.max_response_length,
            own.micro_batch_size,
            multiple=mesh.shape["replica"] * mesh.shape["fsdp"],
        )
        self.optimizer = adamw(own)
        self.shardings = state_shardings(param_shardings(self._declared, mesh, TRAIN_RULES), self.optimizer)
        # Where the state is while the player does not learn.
        self.resting = _moments_on_host(self.shardings) if config.model.offload_moments else self.shardings
        self.engine = Engine(
            graphdef,
            self.model,
            mesh,
            max_prompt_length=own.max_prompt_length,
            max_response_length=own.max_response_length,
            prompt_lengths=own.prompt_lengths,
            slots=config.rollout.slots,
            stop_ids=ids.stop_ids,
            pad_id=ids.pad_id,
        )
        self.score = make_score(graphdef, config.model.log_prob_chunk, mesh)
        self.update = make_update(
            graphdef,
            _objective(own),
            self.optimizer,
            self.shardings,
            log_prob_chunk=config.model.log_prob_chunk,
            temperature=own.temperature,
        )

    @cached_property
    def abstract_params(self) -> Params:
        """The parameters as shapes in their training layout."""
        return laid_out(nnx.to_pure_dict(self._declared), self.shardings.params)

    @property
    def abstract_state(self) -> TrainState:
        """All that training changes, the same way."""
        return abstract_state(self.abstract_params, self.optimizer, self.shardings)


class CriticPrograms:
    """What a value model beside a policy runs."""

    def __init__(self, config: ConfigDict, policy: Qwen2Config, mesh: Mesh) -> None:
        """`config` is the player's section; `policy` the model that the critic starts from."""
        trunk = dataclasses.replace(policy, tie_word_embeddings=True)  # no head over the vocabulary
        graphdef, self._declared = qwen2.abstract(trunk)
        self.trunk_shardings = param_shardings(self._declared, mesh, TRAIN_RULES)
        self.optimizer = adamw(config)
        self.shardings = state_shardings(value_shardings(self.trunk_shardings, mesh), self.optimizer)
        self.values = make_values(graphdef, mesh)
        self.update = make_value_update(graphdef, self.optimizer, self.shardings, value_clip=config.critic.value_clip)
        self._head_size = trunk.hidden_size

    @property
    def abstract_state(self) -> TrainState:
        """All that training changes, as shapes in their layout."""
        trunk = nnx.to_pure_dict(self._declared)
        params = laid_out(abstract_value_params(trunk, self._head_size), self.shardings.params)
        return abstract_state(params, self.optimizer, self.shardings)


def _moments_on_host(shardings: TrainState) -> TrainState:
    on_host = jax.tree.map(lambda sharding: sharding.with_memory_kind("pinned_host"), shardings.opt_state)
    return dataclasses.replace(shardings, opt_state=on_host)


def model_config(config: ConfigDict, stored: Qwen2Config, mesh: Mesh) -> Qwen2Config:
    """The model of a folder as a run computes it on a mesh."""
    return dataclasses.replace(
        stored,
        dtype=config.model.dtype,
        param_dtype=config.model.param_dtype,
        remat=config.model.remat,
        platform=mesh.devices.flat[0].platform,
    )


def adamw(config: ConfigDict) -> AdamWConfig:
    """The optimizer of a player's section, which is its critic's too."""
    return AdamWConfig(
        beta1=config.adam_b1,
        beta2=config.adam_b2,
        epsilon=config.adam_eps,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
    )


def has_reference(config: ConfigDict) -> bool:
    """Whether the policy of a player's section is held close to the one it started from, which is then kept."""
    return config.kl_coefficient > 0


def kl_in_loss(config: ConfigDict) -> float:
    """The coefficient of the KL term in the loss of a player's section."""
    return 0.0 if config.kl_in_reward else config.kl_coefficient


def _objective(config: ConfigDict) -> ObjectiveConfig:
    return ObjectiveConfig(
        surrogate=config.surrogate,
        clip=Clip(config.clip_low, config.clip_high, config.dual_clip),
        importance_cap=config.importance_cap,
        kl_estimator=config.kl_estimator,
        kl_coefficient=kl_in_loss(config),
        entropy_coefficient=config.entropy_coefficient,
    )
