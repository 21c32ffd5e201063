"""Every program of an update, called once on nobody.

The micro-batches have no number for a loss. So the update has no number for a gradient norm, and what it does then is
to change nothing, to the bit: the programs are run as they will be, on the state as it is.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from codea1.learn.batch import RowShape, TrainBatch, empty_batch
from codea1.learn.update import TrainState, Update
from codea1.runtime.compilations import Compilation, noted
from codea1.sharding import to_host


def batch_without_loss(shape: RowShape, pad_id: int) -> TrainBatch:
    """A micro-batch, on the host, whose loss is NaN."""
    nobody = empty_batch(shape, pad_id)
    return dataclasses.replace(
        nobody,
        response_mask=np.ones_like(nobody.response_mask),
        loss_weights=np.full_like(nobody.loss_weights, np.nan),
    )


def call_every_program(
    update: Update, state: TrainState, batches: Sequence[Any], compilations: list[Compilation], prefix: str = ""
) -> TrainState:
    """Calls the programs of an update, and returns the state as it was.

    Args:
      update: whose programs.
      state: donated.
      batches: one without a loss for each shape of a micro-batch, on the mesh.
      compilations: gets the programs that were not yet compiled, named with `prefix`.

    Raises RuntimeError: the batches have a loss, so that the state is another one now.
    """
    gradients = noted(compilations, f"{prefix}zeros", update.zeros, state.params)
    for batch in batches:
        name = f"{prefix}accumulate {rows_of(batch)}"
        gradients, _, _ = noted(compilations, name, update.accumulate, state.params, gradients, batch)
    state, applied = noted(compilations, f"{prefix}apply", update.apply, state, gradients, 0.0)
    if not to_host(applied["skipped"]):
        raise RuntimeError("the warm-up of an update changed what it updates")
    return state


def rows_of(batch: Any) -> str:
    """The shape of a micro-batch in the name of a program, "8 x 512"."""
    return "{} x {}".format(*batch.tokens.shape)
