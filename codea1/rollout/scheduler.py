"""Which samples wait where and which are in the slots: bookkeeping on the host, the same on every process.

Requests wait in a Queue until their prompts are prefilled; samples of prefilled prompts wait for a slot in Prefilled;
Slots holds those that decode.

The batch axis is cut over chips, of slots and of prefilled prompts alike. A chip copies its own prompts to its own
slots, so that no cache ever moves between chips: a sample waits in the shard that holds its prompt. All shards prefill
together whether they need it or not, so that prompts that are waited for are prefilled again beside new ones at
no extra cost; and a long queue for one shard's prompts is shared out by prefilling them in others.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from codea1.models.kv_cache import KVCache
from codea1.rollout.decoding import Chunk, Rows
from codea1.rollout.functions import Sizes, smallest
from codea1.runtime.shares import stable_hash

Prompt = tuple[int, ...]

IDLE = 1 / 16  # of the slots, from which on a prefill is worth its time


@dataclass(frozen=True)
class Request:
    """Samples first_sample .. first_sample + num_samples - 1 of one prompt.

    `question_id` is different for every prompt of a step: it keys the draws.
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
        """Returns how many samples are wanted and not yet taken, or a lower count that is at least `enough`."""
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
        """Returns the static length of the prompt that waits longest. There must be one."""
        return min((waits[0], length) for length, waits in self._arrivals.items() if waits)[1]

    def peek(self, length: int) -> Request | None:
        """Returns the request that waits longest among those with prompts of one static length."""
        return next(iter(self._waiting[length]), None)

    def pop(self, length: int) -> list[PendingSample]:
        """Takes the request that `peek` shows, and returns the samples wanted of it."""
        request = self._waiting[length].popleft()
        self._arrivals[length].popleft()
        self._num_wanted -= request.num_samples
        return [PendingSample(request, request.first_sample + index) for index in range(request.num_samples)]


@dataclass
class _Shard:
    """The prompts of the last prefill that one shard holds, and the samples of them that wait for a slot."""

    rows: dict[Prompt, int] = field(default_factory=dict)  # of its part of the prefill
    waiting: deque[PendingSample] = field(default_factory=deque)  # of these prompts

    def can_take(self, prompt: Prompt, num_rows: int) -> bool:
        return prompt in self.rows or len(self.rows) < num_rows

    def take(self, samples: Sequence[PendingSample]) -> None:
        self.rows.setdefault(samples[0].request.prompt_ids, len(self.rows))
        self.waiting.extend(samples)


class Prefilled:
    """The prompts of the last prefill and the samples of them that have no slot yet."""

    def __init__(self, sizes: Sizes) -> None:
        self.cache: KVCache | None = None  # of the prompts that were chosen last
        self._sizes = sizes
        self._shards = [_Shard() for _ in range(sizes.shards)]

    @property
    def num_waiting(self) -> int:
        return sum(len(shard.waiting) for shard in self._shards)

    @property
    def num_prompts(self) -> int:
        return sum(len(shard.rows) for shard in self._shards)

    def should_prefill(self, queue: Queue, num_free: Sequence[int]) -> bool:
        """Returns whether slots are idle, free (`num_free`) in a shard where no sample waits, and a prefill would pay.

        While more samples are wanted it pays once every shard has idle slots, or a share IDLE of all slots is: a
        prefill takes the time of many decode steps, whatever the number of shards that need it.
        """
        loads = [(len(shard.waiting), free) for shard, free in zip(self._shards, num_free, strict=True)]
        idle = [free for waiting, free in loads if free and not waiting]
        if not idle:
            return False
        if queue.num_wanted(enough=1) > 0:
            return len(idle) == len(loads) or sum(idle) >= IDLE * self._sizes.slots[-1]
        return any(waiting > free for waiting, free in loads)

    def choose(self, queue: Queue, num_free: Sequence[int], pad_id: int) -> np.ndarray:
        """Chooses the prompts of the next prefill and returns them, int32 [P, T] of static sizes, shard by shard."""
        for shard in self._shards:
            waited_for = dict.fromkeys(sample.request.prompt_ids for sample in shard.waiting)
            shard.rows = {prompt: row for row, prompt in enumerate(waited_for)}
        self._take_requests(queue, num_free)
        self._share_out(num_free)
        rows = self._num_rows()
        prompts = [prompt for shard in self._shards for prompt in shard.rows]
        length = smallest(self._sizes.prompt_lengths, max(map(len, prompts)))
        tokens_PT = np.full((rows * len(self._shards), length), pad_id, np.int32)
        for index, shard in enumerate(self._shards):
            for prompt, row in shard.rows.items():
                tokens_PT[index * rows + row, : len(prompt)] = prompt
        return tokens_PT

    def insertion(
        self, free: Sequence[Sequence[int]]
    ) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int, PendingSample]]]:
        """Takes the samples that get a slot next, each a free one (`free` by shard) of the shard in which it waits.

        Returns prompt_WI and slot_WI for `decoding.insert`, and (shard, slot, sample) of those that got a slot.
        """
        shape = (len(self._shards), self._sizes.inserted)
        prompt_WI, slot_WI = np.zeros(shape, np.int32), np.full(shape, np.iinfo(np.int32).max, np.int32)
        placed = []
        for index, (shard, slots) in enumerate(zip(self._shards, free, strict=True)):
            for place, slot in enumerate(slots[: min(self._sizes.inserted, len(shard.waiting))]):
                sample = shard.waiting.popleft()
                prompt_WI[index, place], slot_WI[index, place] = shard.rows[sample.request.prompt_ids], slot
                placed.append((index, slot, sample))
        return prompt_WI, slot_WI, placed

    def _take_requests(self, queue: Queue, num_free: Sequence[int]) -> None:
        """Takes enough requests for the free slots; then as many as go into rows that are prefilled anyway."""
        needs = [free - len(shard.waiting) for shard, free in zip(self._shards, num_free, strict=True)]
        if not queue.num_wanted(enough=max(sum(needs), 1)):
            return
        length = queue.oldest_length()
        while (request := queue.peek(length)) and any(need > 0 for need in needs):
            able = [
                i
                for i, shard in enumerate(self._shards)
                if shard.can_take(request.prompt_ids, self._sizes.prompts_per_shard)
            ]
            neediest = max(able, key=lambda i: needs[i], default=None)
            if neediest is None or needs[neediest] <= 0:
                break
            samples = queue.pop(length)
            self._shards[neediest].take(samples)
            needs[neediest] -= len(samples)
        rows = self._num_rows()
        queue.num_wanted(enough=sum(rows - len(shard.rows) for shard in self._shards))
        while request := queue.peek(length):
            able = [shard for shard in self._shards if shard.can_take(request.prompt_ids, rows)]
            if not able:
                break
            min(able, key=lambda shard: len(shard.waiting)).take(queue.pop(length))

    def _share_out(self, num_free: Sequence[int]) -> None:
        """Lets shards with free slots take over samples for which other shards have none."""
        while True:
            spare = [len(shard.waiting) - free for shard, free in zip(self._shards, num_free, strict=True)]
            donor = self._shards[spare.index(max(spare))]
            if max(spare) <= 0:
                return
            prompt = donor.waiting[-1].request.prompt_ids
            able = [i for i, s in enumerate(self._shards) if s.can_take(prompt, self._sizes.prompts_per_shard)]
            taker = min(able, key=lambda i: spare[i], default=None)
            if taker is None or spare[taker] >= 0:
                return
            moved = []
            while len(moved) < min(-spare[taker], max(spare)) and donor.waiting[-1].request.prompt_ids == prompt:
                moved.append(donor.waiting.pop())
            self._shards[taker].take(moved[::-1])

    def _num_rows(self) -> int:
        """Returns the rows of a shard in the smallest prefill that holds what every shard has now."""
        most = max(len(shard.rows) for shard in self._shards)
        return smallest(self._sizes.prompts, most * len(self._shards)) // len(self._shards)


class Slots:
    """The slots, the samples in them, and what those have drawn; `shards` equal parts lie one after another."""

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
        """Returns the slots without a live sample, by shard, counted within it."""
        return [np.flatnonzero(~live_S).tolist() for live_S in self._live_WS()]

    def last_position(self, num_steps: int) -> int:
        """Returns the furthest position of a query that a chunk of so many steps can come to."""
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

    def take(self, chunk: Chunk) -> list[Sample]:
        """Adds what a chunk has drawn, and returns the samples that it finished. `chunk` holds numpy arrays."""
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
        samples = []
        for slot in finished.tolist():
            pending, length = self._samples[slot], int(rows.drawn[slot])
            samples.append(
                Sample(
                    question_id=pending.request.question_id,
                    index=pending.index,
                    prompt_ids=pending.request.prompt_ids,
                    token_ids=tuple(self._tokens_BR[slot, :length].tolist()),
                    log_probs=self._log_probs_BR[slot, :length].copy(),
                    finish_reason="stop" if chunk.stopped[slot] else "length",
                )
            )
        return samples

    def keep(self, size: int) -> np.ndarray:
        """Moves to fewer slots, which hold what is live in every shard.

        Returns which of the old ones they are: int32 [shards, size / shards], counted within the shard.
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
