"""Which prompts are prefilled, and which samples of them wait for a slot: bookkeeping on the host.

The batch axis is cut over chips, of slots and of prefilled prompts alike. A chip copies its own prompts to its own
slots, so that no cache ever moves between chips: a sample waits in the shard that holds its prompt. All shards prefill
together whether they need it or not, so that prompts that are waited for are prefilled again beside new ones for
nothing; and a long queue for one shard's prompts is shared out by prefilling them in others.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from codea1.models.kv_cache import KVCache
from codea1.rollout.scheduler import PendingSample, Queue
from codea1.rollout.sizes import Sizes, smallest

Prompt = tuple[int, ...]


@dataclass
class _Shard:
    rows: dict[Prompt, int] = field(default_factory=dict)  # of its part of the prefill
    waiting: deque[PendingSample] = field(default_factory=deque)  # of these prompts

    def evict_unused_prompts(self) -> None:
        waited_for = dict.fromkeys(sample.request.prompt_ids for sample in self.waiting)
        self.rows = {prompt: row for row, prompt in enumerate(waited_for)}

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
        """Whether a shard has free slots (`num_free` by shard) and nobody for them, and a prefill would bring some."""
        loads = [(len(shard.waiting), free) for shard, free in zip(self._shards, num_free, strict=True)]
        is_idle = any(free and not waiting for waiting, free in loads)
        return is_idle and (queue.num_wanted(enough=1) > 0 or any(waiting > free for waiting, free in loads))

    def choose(self, queue: Queue, num_free: Sequence[int], pad_id: int) -> np.ndarray:
        """Chooses the prompts of the next prefill and returns them, int32 [P, T] of static sizes, shard by shard."""
        for shard in self._shards:
            shard.evict_unused_prompts()
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
        """Who goes where next, each to a free slot (`free` by shard) of the shard that waits for it.

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
        """Enough for the free slots; then as many as go into rows that are prefilled anyway."""
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
        """Rows of a shard in the smallest prefill that holds what every shard has now."""
        most = max(len(shard.rows) for shard in self._shards)
        return smallest(self._sizes.prompts, most * len(self._shards)) // len(self._shards)
