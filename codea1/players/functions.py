"""The compiled functions of a player, with their layouts and static sizes: all that its config decides without weights.

`Player` and `Critic` call them; `codea1.lab.aot` compiles the same lists for chips that are not there.
"""

import dataclasses
from collections.abc import Mapping
from functools import cached_property

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from codea1.config import Config, ModelConfig, PolicyConfig, RolloutConfig
from codea1.learn.batch import RowLayout, TrainBatch, abstract_batch, row_shapes, rows_of
from codea1.learn.log_probs import make_score
from codea1.learn.losses import ObjectiveConfig
from codea1.learn.optimizer import AdamWConfig
from codea1.learn.surrogates import Clip
from codea1.learn.update import PolicyLoss, TrainState, Update, abstract_state, state_shardings
from codea1.learn.values import ValueBatch, ValueLoss, abstract_value_params, make_values, value_shardings
from codea1.models import qwen2
from codea1.models.at_rest import at_rest, has_forms_on, with_forms
from codea1.models.config import PUBLISHED, SIZES, Qwen2Config, SpecialIds, require_divisible
from codea1.models.lora import split
from codea1.models.qwen2 import Params
from codea1.players.base import Model, Start
from codea1.players.dtype import fastest_dtype
from codea1.rollout.engine import Engine
from codea1.runs.checkpoints import Checkpoints
from codea1.runtime.compilations import Function
from codea1.runtime.errors import BadInput
from codea1.sharding import TRAIN_RULES, data_parallel, laid_out, param_shardings, require_multiple

_PRECISION = jax.config.values["jax_default_matmul_precision"]  # what the environment asks for


class PlayerFunctions:
    """What one policy calls on a mesh: `generation` and `learning`. Nothing is compiled before the first use."""

    def __init__(
        self,
        name: str,
        config: PolicyConfig,
        model: ModelConfig,
        rollout: RolloutConfig,
        mesh: Mesh,
        stored: Qwen2Config,
        ids: SpecialIds,
        learns: bool = True,
    ) -> None:
        """Declares the functions.

        Args:
          name: "code" or "test".
          config: the policy's section, which stays there as `config`.
          model: how it computes.
          rollout: how it samples.
          mesh: of the devices that it computes on.
          stored: the model, as its folder or name describes it; see `Start.model`.
          ids: of its tokenizer.
          learns: False for one that is frozen.

        Raises:
          BadInput: the model is not what the config says, the mesh cannot cut it, it was not made for rows so long,
            or adapters of another rank or alpha shall learn.
        """
        self.name, self.config, self.learns = name, config, learns
        self._log_prob_chunk = model.log_prob_chunk
        _require_shape(name, config, stored)
        self.model = player_model(name, config, model, stored, mesh, learns)
        require_divisible(self.model, mesh)
        prompt, response = config.max_prompt_length, config.max_response_length
        if prompt + response > stored.max_positions:
            raise BadInput(
                f"config.{name}: prompts of {prompt} and responses of {response} tokens exceed the "
                f"{stored.max_positions} positions that the model was made for."
            )
        # TPUs and GPUs round the factors of a product of float32 unless JAX forbids it.
        is_exact = self.model.dtype == jnp.float32
        jax.config.update("jax_default_matmul_precision", "highest" if is_exact else _PRECISION)
        self._graphdef, self._declared = qwen2.abstract(self.model)
        self.mesh = mesh
        share, rows = config.share_prompts, config.micro_batch_size
        shapes = row_shapes(config.row_lengths, prompt + response, rows, data_parallel(mesh), share_prompts=share)
        self.layout = RowLayout(shapes, config.aggregation, response, ids.pad_id, share)
        self.optimizer = adamw(config)
        trained, frozen = split(param_shardings(self._declared, mesh, TRAIN_RULES))
        self.shardings = state_shardings(trained, self.optimizer)
        # Of what never changes, but for the adapters of a frozen player.
        self.base_shardings = frozen if self.learns or frozen else trained
        self.engine = Engine(
            self._graphdef,
            self.model,
            mesh,
            max_prompt_length=prompt,
            max_response_length=response,
            prompt_lengths=config.prompt_lengths,
            slots=rollout.slots,
            cache_gib=rollout.cache_gib,
            stop_ids=ids.stop_ids,
            pad_id=ids.pad_id,
            learns=self.learns,
            records_routes=self.routes is not None,
        )

    @property
    def generation(self) -> list[Function]:
        """All that answering calls; evaluation with top_p has more."""
        return self.engine.functions()

    @property
    def learning(self) -> list[Function]:
        """All that learning calls; nothing where the player is frozen."""
        if not self.learns:
            return []
        scores = self.score.values(), self.score_replayed.values()
        return [*scores[0], *scores[1], *self.update.functions, *(self.critic.functions if self.critic else ())]

    @property
    def routes(self) -> jax.ShapeDtypeStruct | None:
        """The experts of a token that its player learns with; None where the update's routers choose."""
        return self.model.routes if self.learns and self.config.replay_routes else None

    @cached_property
    def abstract_params(self) -> Params:
        """All parameters as shapes in their training layout."""
        return at_rest(self.model, self.mesh, self.learns)

    @cached_property
    def abstract_base(self) -> Params:
        """Those of them that never change: the base of adapters; all of a frozen player without; or else none."""
        frozen = split(self.abstract_params)[1]
        return frozen if self.learns or frozen else self.abstract_params

    def place_base(self, start: Start, shared: Params | None = None) -> Params:
        """Loads those parameters that never change, or takes those that another player has loaded."""
        base = shared or start.checkpoint().place(self.base_shardings, self.model.dtype)
        return with_forms(base, self.learns) if has_forms_on(self.model, self.mesh) else base

    def place_adapters(self, start: Start, absent: Params | None = None) -> Params:
        """Loads the adapters that a player starts from, and gives those linear layers that have none `absent`, or 0.

        Raises BadInput: they are not whole, or belong to another base.
        """
        if start.adapters is None:
            return absent or {}
        checksum = start.checksum() if start.adapters.base.checksum else ""
        return start.adapters.place(self.model, checksum, self.shardings.params, self.model.param_dtype, absent)

    def restore_params(self, checkpoints: Checkpoints, step: int) -> Params:
        """Reads those that train, as they were at a checkpoint of a run."""
        return checkpoints.restore_part(step, {self.name: {"params": self.abstract_state.params}})[self.name]["params"]

    @cached_property
    def abstract_state(self) -> TrainState:
        """All that training changes, as shapes in its layout."""
        return abstract_state(split(self.abstract_params)[0], self.optimizer, self.shardings)

    @cached_property
    def abstract_batches(self) -> list[TrainBatch]:
        """A micro-batch of each shape, as the update takes it."""
        ref, share = has_reference(self.config), self.config.share_prompts
        return [
            abstract_batch(shape, self.mesh, ref=ref, share_prompts=share, routes=self.routes)
            for shape in self.layout.shapes
        ]

    @cached_property
    def score(self) -> dict[tuple[int, ...], Function]:
        """`make_score` by shape of the tokens, by which routers choose; empty where nothing calls it."""
        is_called = has_reference(self.config) or self.routes is not None or self._scores_old
        return self._score("score", replays=False) if is_called else {}

    @cached_property
    def score_replayed(self) -> dict[tuple[int, ...], Function]:
        """The same with the routes of the samples, for old log-probs; empty where nothing calls it."""
        is_called = self.routes is not None and self._scores_old
        return self._score("score replayed", replays=True) if is_called else {}

    @property
    def _scores_old(self) -> bool:
        # The first mini-batch computes its own.
        return self.config.old_log_probs == "trainer" and self.config.mini_batches > 1

    def _score(self, name: str, *, replays: bool) -> dict[tuple[int, ...], Function]:
        jitted = make_score(self._graphdef, self._log_prob_chunk, self.mesh)
        temperature = jax.ShapeDtypeStruct((), jnp.float32)
        scores = {}
        for batch in self.abstract_batches:
            routes = batch.routes_BTLc if replays else None
            arguments = self.abstract_params, batch.tokens_BT, temperature, batch.packing, routes
            scores[batch.tokens_BT.shape] = Function("score", f"{name} {rows_of(batch.tokens_BT)}", jitted, arguments)
        return scores

    @cached_property
    def update(self) -> Update:
        """The policy's update."""
        c = self.config
        objective = ObjectiveConfig(
            surrogate=c.surrogate,
            clip=Clip(c.clip_low, c.clip_high, c.dual_clip),
            importance_cap=c.importance_cap,
            kl_estimator=c.kl_estimator,
            kl_coefficient=c.kl_coefficient,
            entropy_coefficient=c.entropy_coefficient,
        )
        loss = PolicyLoss(self._graphdef, objective, self._log_prob_chunk, c.temperature, c.balance_coefficient)
        return Update(loss, self.optimizer, self.abstract_state, self.abstract_batches, frozen=self.abstract_base)

    @cached_property
    def critic(self) -> "CriticFunctions | None":
        """The functions of the critic; None where the player has none."""
        if not self.learns or self.config.advantage != "gae":
            return None
        return CriticFunctions(self.config, self.model, self.mesh, self.abstract_batches)


class CriticFunctions:
    """What a policy's value model calls."""

    def __init__(self, config: PolicyConfig, policy: Qwen2Config, mesh: Mesh, batches: list[TrainBatch]) -> None:
        """Declares the functions.

        Args:
          config: the player's section.
          policy: the model that the critic starts from.
          mesh: of the devices that it computes on.
          batches: the policy's micro-batches, as shapes.
        """
        trunk = dataclasses.replace(policy, tie_word_embeddings=True)  # no head over the vocabulary
        graphdef, declared = qwen2.abstract(trunk)
        self.mesh = mesh
        self.trunk_shardings = param_shardings(declared, mesh, TRAIN_RULES)
        self.optimizer = adamw(config)
        self.shardings = state_shardings(value_shardings(self.trunk_shardings, mesh), self.optimizer)
        params = abstract_value_params(nnx.to_pure_dict(declared), trunk.hidden_size)
        self.abstract_state = abstract_state(laid_out(params, self.shardings.params), self.optimizer, self.shardings)
        params = self.abstract_state.params
        jitted = make_values(graphdef, mesh)
        self.values = {
            batch.tokens_BT.shape: Function(
                "values", f"values {rows_of(batch.tokens_BT)}", jitted, (params, batch.tokens_BT)
            )
            for batch in batches
        }
        of_values = [
            ValueBatch(b.tokens_BT, b.response_mask_BT, b.loss_weights_BT, b.rewards_BT, b.rewards_BT) for b in batches
        ]
        loss = ValueLoss(graphdef)
        self.update = Update(loss, self.optimizer, self.abstract_state, of_values, prefix="critic ")

    @property
    def functions(self) -> list[Function]:
        """All that the critic calls."""
        return [*self.values.values(), *self.update.functions]


def functions_of_players(config: Config, mesh: Mesh, models: Mapping[str, Model]) -> dict[str, PlayerFunctions]:
    """Returns the functions of each policy, by name.

    Raises BadInput as `PlayerFunctions` does, and where the mesh cuts micro-batches or slots unevenly."""
    for name in models:
        require_multiple(f"{name}.micro_batch_size", config.policy(name).micro_batch_size, mesh)
    require_multiple("rollout.slots", config.rollout.slots, mesh)
    shared = config.model, config.rollout, mesh
    return {
        name: PlayerFunctions(name, config.policy(name), *shared, model.config, model.ids, name != config.frozen)
        for name, model in models.items()
    }


def model_config(config: ModelConfig, stored: Qwen2Config, mesh: Mesh) -> Qwen2Config:
    """Returns the model of a folder as a run computes it on a mesh."""
    platform = mesh.devices.flat[0].platform
    return dataclasses.replace(
        stored,
        dtype=fastest_dtype(platform)[0] if config.dtype == "auto" else config.dtype,
        param_dtype="float32",  # in bfloat16 most steps of a policy's small learning rate would be rounded away
        remat=config.remat,
        platform=platform,
    )


def player_model(
    name: str, config: PolicyConfig, model: ModelConfig, stored: Qwen2Config, mesh: Mesh, learns: bool
) -> Qwen2Config:
    """Returns the model of a player; a frozen one has the adapters that are stored, and lies as the base of some does.

    Raises BadInput: adapters are stored, of another rank or alpha than those that shall learn.
    """
    shape, lora = model_config(model, stored, mesh), config.lora
    if not learns:
        return dataclasses.replace(shape, param_dtype=shape.dtype)
    if stored.lora_rank and (stored.lora_rank, stored.lora_alpha) != (lora.rank, lora.alpha):
        raise BadInput(
            f"config.{name}.lora has rank {lora.rank} and alpha {lora.alpha:g}, but the adapters in {config.model} "
            f"have rank {stored.lora_rank} and alpha {stored.lora_alpha:g}: they must be equal."
        )
    return dataclasses.replace(shape, lora_rank=lora.rank, lora_alpha=lora.alpha)


def adamw(config: PolicyConfig) -> AdamWConfig:
    """Returns the optimizer of a player's section, which is its critic's too."""
    return AdamWConfig(
        beta1=config.adam_b1,
        beta2=config.adam_b2,
        epsilon=config.adam_eps,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
    )


def has_reference(config: PolicyConfig) -> bool:
    """Returns whether the policy of a player's section is held close to the one it started from, which is then kept."""
    return config.kl_coefficient > 0


def _require_shape(name: str, config: PolicyConfig, stored: Qwen2Config) -> None:
    """Raises BadInput when the folder holds another model than the one the config names."""
    if not config.shape:
        return
    expected = PUBLISHED[config.shape]
    for field in SIZES:
        there, wanted = getattr(stored, field), getattr(expected, field)
        if there != wanted:
            raise BadInput(
                f"config.{name}.shape is {config.shape!r}, whose {field} is {wanted}, but {config.model} has {there}."
            )
