"""What the engine is asked and what it answers."""

from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class Request:
    """Samples first_sample .. first_sample + num_samples - 1 of one prompt.

    `question_id` is whatever tells this prompt's draws from those of every other prompt of the step.
    """

    question_id: str
    prompt_ids: tuple[int, ...]
    first_sample: int
    num_samples: int
    length_limit: int | None = None  # tokens of a response, where it is less than the engine's own limit


@dataclass(frozen=True, eq=False)
class Sample:
    """One response. `token_ids` ends with the stop id when it stopped; `log_probs` (float32) has an entry per token."""

    question_id: str
    index: int
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    log_probs: np.ndarray
    finish_reason: Literal["stop", "length"]
