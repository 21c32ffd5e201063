"""Who is in which slot: plain bookkeeping on the host, the same on every process."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from codea1.rollout.decoding import Chunk, Rows
from codea1.rollout.request import Request, Sample
from codea1.rollout.sampling import stable_hash
from codea1.rollout.sizes import Sizes, smallest


@dataclass(frozen=True)
class Draw:
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
        self._num_draws = 0

    def num_draws(self, enough: int) -> int:
        """Samples that are wanted and not yet taken, or a number of them that is at least `enough`."""
        while self._num_draws < enough and (request := next(self._source, None)) is not None:
            self._check(request)
            length = smallest(self._sizes.prompt_lengths, len(request.prompt_ids))
            if request.num_samples > 0:
                self._waiting[length].append(request)
                self._arrivals[length].append(self._num_arrived)
                self._num_arrived += 1
                self._num_draws += request.num_samples
        return self._num_draws

    def take(self, num_free: int) -> tuple[int, dict[tuple[int, ...], list[Draw]]]:
        """The prompts of the next prefill with the samples wanted of each, and their static length.

        They are those that wait longest among prompts of one static length: enough for `num_free` slots where there are
        so many, and no more than one prefill holds. Requests of the same prompt, if next to each other, come together.
        There must be one.
        """
        self.num_draws(enough=num_free)
        length = min((waits[0], length) for length, waits in self._arrivals.items() if waits)[1]
        waiting, arrivals = self._waiting[length], self._arrivals[length]
        prompts: dict[tuple[int, ...], list[Draw]] = {}
        num_taken = 0
        while waiting:
            is_enough = num_taken >= num_free or len(prompts) == self._sizes.prompts[-1]
            if is_enough and waiting[0].prompt_ids not in prompts:
                break
            request = waiting.popleft()
            arrivals.popleft()
            indices = range(request.first_sample, request.first_sample + request.num_samples)
            prompts.setdefault(request.prompt_ids, []).extend(Draw(request, index) for index in indices)
            num_taken += request.num_samples
        self._num_draws -= num_taken
        return length, prompts


class Slots:
    """The slots, who is in them, and what they have drawn."""

    def __init__(self, size: int, max_response_length: int) -> None:
        self._max_response_length = max_response_length
        self._draws: list[Draw | None] = [None] * size
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

    def free(self) -> list[int]:
        """The slots that hold nobody."""
        return np.flatnonzero(~self.rows.live).tolist()

    def last_position(self, num_steps: int) -> int:
        """The furthest position of a query that a chunk of so many steps can come to."""
        rows = self.rows
        steps = np.minimum(num_steps, rows.limit - rows.drawn)
        return int(np.max(np.where(rows.live, rows.position + steps - 1, 0)))

    def put(self, slot: int, draw: Draw) -> None:
        """Starts a sample in a free slot."""
        request, rows = draw.request, self.rows
        self._draws[slot] = draw
        rows.token[slot] = request.prompt_ids[-1]
        rows.position[slot] = len(request.prompt_ids) - 1
        rows.drawn[slot] = 0
        rows.limit[slot] = min(request.length_limit or self._max_response_length, self._max_response_length)
        rows.question_hash[slot] = stable_hash(request.question_id)
        rows.sample_index[slot] = draw.index
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
        """Moves to fewer slots, no fewer than are live, and returns which of the old ones (int32) they are."""
        order = np.argsort(~self.rows.live, kind="stable")[:size].astype(np.int32)
        self._draws = [self._draws[slot] for slot in order]
        self._tokens_BR, self._log_probs_BR = self._tokens_BR[order], self._log_probs_BR[order]
        self.rows = replace(self.rows, **{name: column[order] for name, column in vars(self.rows).items()})
        return order

    def _sample(self, slot: int, stopped: bool) -> Sample:
        draw, length = self._draws[slot], int(self.rows.drawn[slot])
        return Sample(
            question_id=draw.request.question_id,
            index=draw.index,
            prompt_ids=draw.request.prompt_ids,
            token_ids=tuple(self._tokens_BR[slot, :length].tolist()),
            log_probs=self._log_probs_BR[slot, :length].copy(),
            finish_reason="stop" if stopped else "length",
        )
