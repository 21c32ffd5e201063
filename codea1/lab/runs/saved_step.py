"""Replays one step of a run from its samples and the checkpoint before it, and compares the metrics."""

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from codea1.game.methods import METHODS
from codea1.learn.batch import TrainSample
from codea1.players.base import Start, require_base
from codea1.players.functions import functions_of_players
from codea1.players.player import Player
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runs.samples import Samples
from codea1.runtime.errors import BadInput
from codea1.sharding import device_mesh

_OF_THE_CLOCK = ("update_tflops_per_second", "update_mfu")
_ADDED = ("sampler_kl",)  # older runs have none


@dataclass(frozen=True)
class Tolerance:
    """How far a metric may be from another: |a - b| <= absolute + relative * |b|."""

    relative: float
    absolute: float


# By the dtype of activations: what another order of sums, on other devices, makes of an update.
ROUNDING = {"float32": Tolerance(1e-4, 1e-5), "bfloat16": Tolerance(5e-2, 5e-3)}


@dataclass(frozen=True)
class MetricPair:
    """A metric of the run beside that of the replay; NaN where it is no number."""

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
    """A training step of a run that can be replayed. Nothing is written."""

    def __init__(self, folder: RunFolder, config: ConfigDict, step: int) -> None:
        """Finds what the folder holds of the step.

        Raises BadInput: it has no samples or metrics of it, or no checkpoint of the step before; names those steps that
        can be replayed.
        """
        self.folder, self.step = folder, step
        self._config = config
        self._samples = Samples(folder)
        self._checkpoints = Checkpoints.reader(folder.checkpoints)
        self._rows = {row["step"]: row for row in read_metrics(folder.metrics)}
        possible = self._possible()
        if step not in possible:
            known = ", ".join(map(str, possible)) or "none"
            raise BadInput(f"{folder.path} cannot make step {step} again: {self._lacks(step)}; it can for {known}.")

    @property
    def start(self) -> str:
        """Where the step begins, for people."""
        return "the model folders" if self.step == 1 else f"the checkpoint of step {self.step - 1}"

    def replay(self) -> list[MetricPair]:
        """Makes every update of the step, on the devices there are, and pairs its metrics with the run's.

        Every host makes the same call. Raises BadInput: a model folder has gone, or the samples are damaged.
        """
        mesh = self.mesh()
        players = [name for name in METHODS[self._config.method].policies if name != self._config.frozen]
        return [pair for name in players for pair in self._pairs(name, self._learned(name, mesh))]

    def mesh(self) -> Mesh:
        """Returns the run's mesh where there are devices for it, or else one with all devices as fsdp."""
        config, count = self._config, jax.device_count()
        others = config.mesh.replica * config.mesh.tensor
        fits = count % others == 0 if config.mesh.fsdp == -1 else count == others * config.mesh.fsdp
        if not fits:
            config = copy.deepcopy(config)
            config.mesh.replica, config.mesh.fsdp, config.mesh.tensor = 1, -1, 1
        return device_mesh(config)

    def _learned(self, name: str, mesh: Mesh) -> dict[str, float]:
        # One player after the other: the devices here may be smaller than those of the run.
        own = self._config[name]
        start = Start(own.model)
        tokenizer = start.tokenizer(own.thinking)
        functions = functions_of_players(self._config, mesh, {name: start.described(tokenizer)})
        player = Player(functions[name], self._config, start, tokenizer)
        if self.step > 1:
            require_base(self._config, name, self._checkpoints, self.step - 1, reference=True)
            player.restore(self._checkpoints.restore_part(self.step - 1, player.abstract_states))
        return player.learn(_train_samples(self._samples.read(self.step), player), self.step)

    def _pairs(self, player: str, metrics: dict[str, float]) -> list[MetricPair]:
        recorded = self._rows[self.step]
        names = [name for name in metrics if name not in _OF_THE_CLOCK]
        names = [name for name in names if name not in _ADDED or f"{player}/{name}" in recorded]
        for name in names:
            if f"{player}/{name}" not in recorded:
                raise BadInput(f"{self.folder.metrics}, step {self.step}: no {player}/{name}.")
        return [MetricPair(f"{player}/{name}", _number(recorded[f"{player}/{name}"]), metrics[name]) for name in names]

    def _possible(self) -> list[int]:
        starts = {0, *self._checkpoints.steps()}
        return [step for step in self._samples.steps() if step - 1 in starts and step in self._rows]

    def _lacks(self, step: int) -> str:
        if step not in self._rows or step not in self._samples.steps():
            return "it has no samples or metrics of it"
        return f"it has no checkpoint of step {step - 1}"


def _train_samples(rows: Iterable[Mapping[str, Any]], player: Player) -> list[TrainSample]:
    """Returns what `codea1.training.step.train_samples` returned of the round whose rows these are, in the same order.

    Raises BadInput: a row is not one of `codea1.runs.samples`.
    """
    samples = []
    for number, row in enumerate(rows, start=1):
        try:
            is_selected = row["player"] in player.roles and row["selected"]
            if is_selected and row["reward"] is not None and player.learns_from(row["finish_reason"]):
                names = ("prompt_ids", "token_ids", "log_probs", "advantage", "shaped_reward")
                samples.append(TrainSample(*(row[name] for name in names)))
        except KeyError as error:
            raise BadInput(f"row {number} of the samples: {error} is missing.") from None
    return samples


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
