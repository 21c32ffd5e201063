"""What is asked, what is answered, and who is in which slot: bookkeeping on the host, the same on every process."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from codea1.rollout.decoding import Chunk, Rows
from codea1.rollout.sizes import Sizes, smallest
from codea1.runtime.shares import stable_hash


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


@dataclass(frozen=True)
class PendingSample:
    """One sample that is wanted: number `index` of a request."""

    request: Request
    index: int


class Queue:
    """Requests that wait for a prefill. Pulls no more of them from its source than the slots can soon take."""

    def __init__(self, requests: Iterable[Request], sizes: Sizes, check: Callable[[Request], None]) -> None:
        self._source = iter(requests)
        self._sizes = sizes
        self._check = check
        self._waiting: dict[int, deque[Request]] = {length: deque() for length in sizes.prompt_lengths}
        self._arrivals: dict[int, deque[int]] = {length: deque() for length in sizes.prompt_lengths}
        self._num_arrived = 0
        self._num_wanted = 0

    def num_wanted(self, enough: int) -> int:
        """Samples that are wanted and not yet taken, or a number of them that is at least `enough`."""
        while self._num_wanted < enough and (request := next(self._source, None)) is not None:
            self._check(request)
            length = smallest(self._sizes.prompt_lengths, len(request.prompt_ids))
            if request.num_samples > 0:
                self._waiting[length].append(request)
                self._arrivals[length].append(self._num_arrived)
                self._num_arrived += 1
                self._num_wanted += request.num_samples
        return self._num_wanted

    def oldest_length(self) -> int:
        """The static length of the prompt that waits longest. There must be one."""
        return min((waits[0], length) for length, waits in self._arrivals.items() if waits)[1]

    def peek(self, length: int) -> Request | None:
        """Of the requests that wait with prompts of one static length, the one that waits longest."""
        return next(iter(self._waiting[length]), None)

    def pop(self, length: int) -> list[PendingSample]:
        """Takes the request that `peek` shows, and returns the samples wanted of it."""
        request = self._waiting[length].popleft()
        self._arrivals[length].popleft()
        self._num_wanted -= request.num_samples
        return [PendingSample(request, request.first_sample + index) for index in range(request.num_samples)]


class Slots:
    """The slots, who is in them, and what they have drawn; `shards` of them are equal parts, one after another."""

    def __init__(self, size: int, shards: int, max_response_length: int) -> None:
        self._shards = shards
        self._max_response_length = max_response_length
        self._samples: list[PendingSample | None] = [None] * size
        self._tokens_BR = np.zeros((size, max_response_length), np.int32)
        self._log_probs_BR = np.zeros((size, max_response_length), np.float32)
        self.rows = Rows(
            *(np.zeros(size, np.int32) for _ in range(4)),
            question_hash=np.zeros(size, np.uint32),
            sample_index=np.zeros(size, np.int32),
            live=np.zeros(size, bool),
        )

    @property
    def num_live(self) -> int:
        return int(self.rows.live.sum())

    @property
    def num_live_in_fullest(self) -> int:
        """Samples in the shard that holds most."""
        return int(self._live_WS().sum(axis=1).max())

    def free(self) -> list[list[int]]:
        """The slots that hold nobody, by shard, counted within it."""
        return [np.flatnonzero(~live_S).tolist() for live_S in self._live_WS()]

    def last_position(self, num_steps: int) -> int:
        """The furthest position of a query that a chunk of so many steps can come to."""
        rows = self.rows
        steps = np.minimum(num_steps, rows.limit - rows.drawn)
        return int(np.max(np.where(rows.live, rows.position + steps - 1, 0)))

    def put(self, shard: int, slot: int, sample: PendingSample) -> None:
        """Starts a sample in a free slot of a shard."""
        request, rows = sample.request, self.rows
        slot += shard * len(rows.live) // self._shards
        self._samples[slot] = sample
        rows.token[slot] = request.prompt_ids[-1]
        rows.position[slot] = len(request.prompt_ids) - 1
        rows.drawn[slot] = 0
        rows.limit[slot] = min(request.length_limit or self._max_response_length, self._max_response_length)
        rows.question_hash[slot] = stable_hash(request.question_id)
        rows.sample_index[slot] = sample.index
        rows.live[slot] = True

    def take(self, chunk: Chunk) -> Iterator[Sample]:
        """Adds what a chunk has drawn, and gives the samples that it finished. `chunk` holds numpy arrays."""
        rows = self.rows
        num_new_B = chunk.drawn - rows.drawn
        slot, column = np.nonzero(np.arange(chunk.tokens.shape[1]) < num_new_B[:, None])
        place = slot, rows.drawn[slot] + column
        self._tokens_BR[place] = chunk.tokens[slot, column]
        self._log_probs_BR[place] = chunk.log_probs[slot, column]
        drew = np.flatnonzero(num_new_B)
        rows.token[drew] = chunk.tokens[drew, num_new_B[drew] - 1]
        rows.position[:] += num_new_B
        rows.drawn[:] = chunk.drawn
        finished = np.flatnonzero(rows.live & (chunk.stopped | (rows.drawn >= rows.limit)))
        rows.live[finished] = False
        return [self._sample(slot, bool(chunk.stopped[slot])) for slot in finished.tolist()]

    def keep(self, size: int) -> np.ndarray:
        """Moves to fewer slots, which hold what is live in every shard, and returns which of the old ones they are.

        They are int32 [shards, size / shards], counted within the shard.
        """
        live_WS = self._live_WS()
        order_WS = np.argsort(~live_WS, axis=1, kind="stable")[:, : size // self._shards].astype(np.int32)
        order = (order_WS + np.arange(self._shards)[:, None] * live_WS.shape[1]).ravel()
        self._samples = [self._samples[slot] for slot in order]
        self._tokens_BR, self._log_probs_BR = self._tokens_BR[order], self._log_probs_BR[order]
        self.rows = replace(self.rows, **{name: column[order] for name, column in vars(self.rows).items()})
        return order_WS

    def _live_WS(self) -> np.ndarray:
        return self.rows.live.reshape(self._shards, -1)

    def _sample(self, slot: int, stopped: bool) -> Sample:
        sample, length = self._samples[slot], int(self.rows.drawn[slot])
        return Sample(
            question_id=sample.request.question_id,
            index=sample.index,
            prompt_ids=sample.request.prompt_ids,
            token_ids=tuple(self._tokens_BR[slot, :length].tolist()),
            log_probs=self._log_probs_BR[slot, :length].copy(),
            finish_reason="stop" if stopped else "length",
        )
