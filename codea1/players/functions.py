"""The compiled functions of a player, with their layouts and static sizes: all that its config decides without weights.

`Player` calls them; `codea1.lab.aot` compiles the same lists for chips that are not there.
"""

import dataclasses
from collections.abc import Mapping
from functools import cached_property

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from codea1.config import Config, ModelConfig, PolicyConfig
from codea1.learn.batch import RowLayout, TrainBatch, abstract_batch, row_shapes, rows_of
from codea1.learn.log_probs import make_score
from codea1.learn.losses import ObjectiveConfig
from codea1.learn.optimizer import AdamWConfig
from codea1.learn.surrogates import Clip
from codea1.learn.update import PolicyLoss, TrainState, Update, abstract_state
from codea1.models import qwen2
from codea1.models.at_rest import at_rest, has_forms_on, with_forms
from codea1.models.config import PUBLISHED, SIZES, Qwen2Config, require_divisible
from codea1.models.lora import split
from codea1.models.qwen2 import Params
from codea1.players.base import Model, Start
from codea1.players.critic import Critic
from codea1.players.dtype import fastest_dtype
from codea1.rollout.engine import Engine
from codea1.runs.checkpoints import Checkpoints
from codea1.runtime.compilations import Function
from codea1.runtime.errors import BadInput
from codea1.sharding import TRAIN_RULES, data_parallel, param_shardings, require_multiple

_PRECISION = jax.config.values["jax_default_matmul_precision"]  # what the environment asks for


class PlayerFunctions:
    """What one policy calls on a mesh: `generation` and `learning`. Nothing is compiled before the first use."""

    def __init__(self, name: str, run: Config, model: Model, mesh: Mesh) -> None:
        """Declares the functions.

        Args:
          name: "code" or "test".
          run: the config, of which the policy's section stays there as `config`.
          model: as its folder or name describes it.
          mesh: of the devices that it computes on.

        Raises:
          BadInput: the model is not what the config says, the mesh cannot cut it, it was not made for rows so long,
            or adapters of another rank or alpha shall learn.
        """
        self.name, self.learns = name, name != run.frozen
        self.config = config = run.policy(name)
        self._log_prob_chunk = run.model.log_prob_chunk
        _require_shape(name, config, model.config)
        self.model = player_model(name, run, model.config, mesh)
        require_divisible(self.model, mesh)
        prompt, response = config.max_prompt_length, config.max_response_length
        if prompt + response > model.config.max_positions:
            raise BadInput(
                f"config.{name}: prompts of {prompt} and responses of {response} tokens exceed the "
                f"{model.config.max_positions} positions that the model was made for."
            )
        # TPUs and GPUs round the factors of a product of float32 unless JAX forbids it.
        is_exact = self.model.dtype == jnp.float32
        jax.config.update("jax_default_matmul_precision", "highest" if is_exact else _PRECISION)
        self._graphdef, self._declared = qwen2.abstract(self.model)
        self.mesh = mesh
        share, rows = config.share_prompts, config.micro_batch_size
        shapes = row_shapes(config.row_lengths, prompt + response, rows, data_parallel(mesh), share_prompts=share)
        self.layout = RowLayout(shapes, config.aggregation, response, model.ids.pad_id, share)
        self.optimizer = AdamWConfig(
            beta1=config.adam_b1,
            beta2=config.adam_b2,
            epsilon=config.adam_eps,
            weight_decay=config.weight_decay,
            max_grad_norm=config.max_grad_norm,
        )
        self.shardings, frozen = split(param_shardings(self._declared, mesh, TRAIN_RULES))
        # Of what never changes, but for the adapters of a frozen player.
        self.base_shardings = frozen if self.learns or frozen else self.shardings
        self.engine = Engine(
            self._graphdef,
            self.model,
            mesh,
            max_prompt_length=prompt,
            max_response_length=response,
            prompt_lengths=config.prompt_lengths,
            slots=run.rollout.slots,
            cache_gib=run.rollout.cache_gib,
            stop_ids=model.ids.stop_ids,
            pad_id=model.ids.pad_id,
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
        of_critic = self.critic.functions if self.critic else ()
        return [*self.scores.values(), *self.update.functions, *of_critic]

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
        return start.adapters.place(self.model, checksum, self.shardings, self.model.param_dtype, absent)

    def restore_params(self, checkpoints: Checkpoints, step: int) -> Params:
        """Reads those that train, as they were at a checkpoint of a run."""
        return checkpoints.restore_part(step, {self.name: {"params": self.abstract_state.params}})[self.name]["params"]

    @cached_property
    def abstract_state(self) -> TrainState:
        """All that training changes, as shapes in its layout."""
        return abstract_state(split(self.abstract_params)[0], self.optimizer)

    @property
    def abstract_states(self) -> dict[str, TrainState]:
        """The same of the policy and its critic, by name; nothing where the player is frozen."""
        states = {self.name: self.abstract_state} if self.learns else {}
        return states | ({self.critic.name: self.critic.abstract_state} if self.critic else {})

    @cached_property
    def abstract_batches(self) -> list[TrainBatch]:
        """A micro-batch of each shape, as the update takes it."""
        ref, share = has_reference(self.config), self.config.share_prompts
        return [
            abstract_batch(shape, self.mesh, ref=ref, share_prompts=share, routes=self.routes)
            for shape in self.layout.shapes
        ]

    @cached_property
    def scores(self) -> dict[tuple[bool, tuple[int, ...]], Function]:
        """`make_score` by whether it replays the samples' routes, and by shape of the tokens; those that are called."""
        # Of old log-probs; the first mini-batch computes its own.
        scores_old = self.config.old_log_probs == "trainer" and self.config.mini_batches > 1
        has_routes = self.routes is not None
        is_called = {False: has_reference(self.config) or has_routes or scores_old, True: has_routes and scores_old}
        jitted = make_score(self._graphdef, self._log_prob_chunk, self.mesh)
        temperature = jax.ShapeDtypeStruct((), jnp.float32)
        scores = {}
        for replays in (replays for replays, is_so in is_called.items() if is_so):
            for batch in self.abstract_batches:
                name = f"score {'replayed ' if replays else ''}{rows_of(batch.tokens_BT)}"
                routes = batch.routes_BTLc if replays else None
                arguments = self.abstract_params, batch.tokens_BT, temperature, batch.packing, routes
                scores[replays, batch.tokens_BT.shape] = Function("score", name, jitted, arguments)
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
    def critic(self) -> Critic | None:
        """The critic; None where the player has none."""
        if not self.learns or self.config.advantage != "gae":
            return None
        gae_lambda = self.config.critic.gae_lambda
        return Critic(f"{self.name}_critic", self.model, self.mesh, self.optimizer, self.abstract_batches, gae_lambda)


def functions_of_players(config: Config, mesh: Mesh, models: Mapping[str, Model]) -> dict[str, PlayerFunctions]:
    """Returns the functions of each policy, by name.

    Raises BadInput as `PlayerFunctions` does, and where the mesh cuts micro-batches or slots unevenly."""
    for name in models:
        require_multiple(f"{name}.micro_batch_size", config.policy(name).micro_batch_size, mesh)
    return {name: PlayerFunctions(name, config, model, mesh) for name, model in models.items()}


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


def player_model(name: str, config: Config, stored: Qwen2Config, mesh: Mesh) -> Qwen2Config:
    """Returns the model of a player; a frozen one has the adapters that are stored, and lies as the base of some does.

    Raises BadInput: adapters are stored, of another rank or alpha than those that shall learn.
    """
    shape, lora = model_config(config.model, stored, mesh), config.policy(name).lora
    if name == config.frozen:
        return dataclasses.replace(shape, param_dtype=shape.dtype)
    if stored.lora_rank and (stored.lora_rank, stored.lora_alpha) != (lora.rank, lora.alpha):
        raise BadInput(
            f"config.{name}.lora has rank {lora.rank} and alpha {lora.alpha:g}, but the adapters in "
            f"{config.policy(name).model} have rank {stored.lora_rank} and alpha {stored.lora_alpha:g}: "
            "they must be equal."
        )
    return dataclasses.replace(shape, lora_rank=lora.rank, lora_alpha=lora.alpha)


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
