"""Makes the update of one step again from its samples and the checkpoint before it, and compares the metrics."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh

from bench.micro_run import mesh_of
from codea1.game.methods import METHODS
from codea1.learn.batch import TrainSample
from codea1.players.base import Start, require_base
from codea1.players.functions import functions_of_players
from codea1.players.player import Player
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runs.samples import Samples
from codea1.sharding import make_mesh
from codea1.training.stored_config import config_of

_OF_THE_CLOCK = ("update_tflops_per_second", "update_mfu")


@dataclass(frozen=True)
class Tolerance:
    """How far a metric may be from another: |a - b| <= absolute + relative * |b|."""

    relative: float
    absolute: float


# By the dtype of activations: what another order of sums, on other devices, makes of an update.
ROUNDING = {"float32": Tolerance(1e-4, 1e-5), "bfloat16": Tolerance(5e-2, 5e-3)}


@dataclass(frozen=True)
class MetricPair:
    """A metric of the run and that of the replay; NaN where it is no number."""

    name: str
    recorded: float
    again: float

    @property
    def is_equal(self) -> bool:
        """To the last bit."""
        return self.recorded == self.again or (math.isnan(self.recorded) and math.isnan(self.again))

    def is_close(self, tolerance: Tolerance) -> bool:
        """Returns whether they are equal within rounding."""
        allowed = tolerance.absolute + tolerance.relative * abs(self.recorded)
        return self.is_equal or abs(self.again - self.recorded) <= allowed


class SavedStep:
    """A training step of a run that has a checkpoint of the step before, or is the first. Nothing is written."""

    def __init__(self, folder: RunFolder, step: int) -> None:
        self.step = step
        self._config = config_of(folder)
        self._samples = Samples(folder)
        self._checkpoints = Checkpoints.reader(folder.checkpoints)
        (self._recorded,) = (row for row in read_metrics(folder.metrics) if row["step"] == step)

    def replay(self) -> list[MetricPair]:
        """Makes every update of the step, on the devices there are, and pairs its metrics with the run's.

        Every host makes the same call. Raises BadInput: a model folder has gone or is another.
        """
        mesh = self.mesh()
        players = [name for name in METHODS[self._config.method].policies if name != self._config.frozen]
        return [pair for name in players for pair in self._pairs(name, self._learned(name, mesh))]

    def mesh(self) -> Mesh:
        """Returns the run's mesh where there are devices for it, or else one with all devices as fsdp."""
        config, count = self._config, jax.device_count()
        others = config.mesh.replica * config.mesh.tensor
        fits = count % others == 0 if config.mesh.fsdp == -1 else count == others * config.mesh.fsdp
        return mesh_of(config) if fits else make_mesh(1, -1, 1)

    def _learned(self, name: str, mesh: Mesh) -> dict[str, float]:
        # One player after the other: the devices here may be smaller than those of the run.
        own = self._config.policy(name)
        start = Start(own.model)
        tokenizer = start.tokenizer(own.thinking)
        functions = functions_of_players(self._config, mesh, {name: start.described(tokenizer)})
        roles = METHODS[self._config.method].roles_of(name)
        options = {"steps": self._config.steps, "seed": self._config.seed, "roles": roles}
        player = Player(functions[name], start, tokenizer, **options)
        if self.step > 1:
            require_base(self._config, name, self._checkpoints, self.step - 1, reference=True)
            player.restore(self._checkpoints.restore_part(self.step - 1, functions[name].abstract_states))
        return player.learn(_train_samples(self._samples.read(self.step), player), self.step)

    def _pairs(self, player: str, metrics: dict[str, float]) -> list[MetricPair]:
        recorded = {name: self._recorded[f"{player}/{name}"] for name in metrics if name not in _OF_THE_CLOCK}
        return [MetricPair(f"{player}/{name}", _number(value), metrics[name]) for name, value in recorded.items()]


def _train_samples(rows: Iterable[Mapping[str, Any]], player: Player) -> list[TrainSample]:
    """Returns what `codea1.training.step.train_samples` returned of the round with these rows, in the same order."""
    names = ("prompt_ids", "token_ids", "log_probs", "advantage", "shaped_reward")
    selected = (row for row in rows if row["player"] in player.roles and row["selected"])
    paid = (row for row in selected if row["reward"] is not None and player.learns_from(row["finish_reason"]))
    return [TrainSample(*(row[name] for name in names)) for row in paid]


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
