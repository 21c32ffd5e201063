"""Which samples wait where, and who has which pages: bookkeeping on the host, the same on every process.

How many of each there may be is static: see Sizes. Requests wait in a Queue until their prompts are prefilled; samples
of prefilled prompts wait for a slot in Prefilled; `slots.Slots` holds those that decode.

The batch axis is cut over chips, of slots and of pages alike. A sample's slot, its own pages and those of its prompt
are in one shard, so that no cache ever moves between chips: a sample waits in the shard that holds its prompt. All
shards prefill together whether they need it or not, and a long queue for one shard's prompts is shared out by
prefilling them in others.

A prompt's pages are shared by its samples; each has pages of its own for what follows, and copies the page in which the
prompt ends. Pages are given as a sample grows. Where a shard has none left, prompts whose samples all wait give theirs
back and are prefilled again later; then the sample that came last gives way, and starts again with the same draws. The
one that came first never does, and a shard has pages for the longest sequence: so all samples end.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Self

import jax
import numpy as np
from jax.sharding import Mesh

from codea1.models.at_rest import has_forms_on
from codea1.models.config import Qwen2Config
from codea1.models.kv_cache import num_reads, page_bytes, page_size
from codea1.runtime.errors import BadInput
from codea1.sharding import data_parallel, require_multiple, to_host

Prompt = tuple[int, ...]

MOST_PROMPTS = 4  # of a shard in a prefill, whose tokens fill an accelerator's arithmetic by then
FEWEST_SLOTS = 8  # below it a decode step takes hardly less time
IDLE = 1 / 16  # of the slots, from which on a prefill is worth its time


@dataclass(frozen=True)
class Sizes:
    """The static sizes of an engine; what is plural is ascending."""

    shards: int  # W, parts into which the mesh cuts the batch axis, of slots, pages and prompts
    slots: tuple[int, ...]  # sequences that decode at once; the largest, and smaller ones for the last stragglers
    prompts: tuple[int, ...]  # prompts of one prefill
    inserted: int  # slots of each shard that are filled at once
    prompt_lengths: tuple[int, ...]  # tokens
    max_response_length: int  # tokens
    page: int  # P, positions of a page of the cache
    pages: int  # N / W, of each shard
    longest: int  # M, pages of the longest sequence
    reads: Mapping[int, int]  # I, pages that the samples of a shard read at most, in whole blocks; by `slots`
    platform: str

    @classmethod
    def of(
        cls,
        mesh: Mesh,
        model: Qwen2Config,
        *,
        slots: int,
        prompt_lengths: Sequence[int],
        max_prompt_length: int,
        max_response_length: int,
        cache_gib: float,
    ) -> Self:
        """Returns the sizes of an engine whose pages take `cache_gib` of each chip, or all that they ever could if 0.

        Raises BadInput when the mesh does not cut the slots evenly, or the pages do not hold the longest sequence.
        """
        require_multiple("rollout.slots", slots, mesh)
        shards = data_parallel(mesh)
        fewer = (1, 2, 4, 8) if model.platform == "cpu" else (1, 4, 16)
        even = {slots // part for part in fewer if slots % (part * shards) == 0}
        most_prompts, parts = max(slots // shards // 8, 1), (1, 4)
        if model.platform != "cpu":
            most_prompts = min(most_prompts, MOST_PROMPTS)
        elif has_forms_on(model, mesh):  # a CPU multiplies the rows of one prompt at a third of its speed
            most_prompts, parts = max(most_prompts, min(slots, MOST_PROMPTS)), (1, 2, 4)
        prompts = tuple(sorted({max(most_prompts // part, 1) * shards for part in parts}))
        page = page_size(model.platform)
        # The last token of a response is never attended to.
        longest, of_prompt = (
            -(-length // page) for length in (max_prompt_length + max_response_length - 1, max_prompt_length)
        )
        # A prompt that ends within a page has that twice: for its samples to copy, and in each sample.
        most = slots // shards * (longest + 1) + 2 * prompts[-1] // shards * of_prompt
        pages = most
        if cache_gib:
            bytes_of_page = page_bytes(model, mesh.shape["tensor"])
            pages = min(most, int(cache_gib * 2**30 / bytes_of_page))
            if pages < longest + 1:
                needed = math.ceil((longest + 1) * bytes_of_page / 2**30 * 1000) / 1000
                raise BadInput(f"config.rollout.cache_gib is {cache_gib:g}, the longest sequence needs {needed:g}.")
        sizes = {size for size in even if size >= FEWEST_SLOTS or size == slots}
        return cls(
            shards=shards,
            slots=tuple(sorted(sizes)),
            prompts=prompts,
            inserted=max(slots // shards // 8, 1),
            prompt_lengths=tuple(sorted({*prompt_lengths, max_prompt_length})),
            max_response_length=max_response_length,
            page=page,
            pages=pages,
            longest=longest,
            reads={size: num_reads(size // shards, longest, model.platform) for size in sizes},
            platform=model.platform,
        )

    @property
    def prompts_per_shard(self) -> int:
        """Prompts of a shard that one prefill can hold."""
        return self.prompts[-1] // self.shards

    def pages_of(self, positions: int) -> int:
        """Returns how many pages so many positions take."""
        return -(-positions // self.page)

    def fewer_slots(self, slots: int) -> int:
        """Returns the next smaller number of slots; 0 below the smallest."""
        return max((fewer for fewer in self.slots if fewer < slots), default=0)


def smallest(sizes: Sequence[int], count: int) -> int:
    """Returns the smallest of ascending `sizes` that holds `count`, or else the largest."""
    return next((size for size in sizes if size >= count), sizes[-1])


@dataclass(frozen=True)
class Request:
    """Samples first_sample .. first_sample + num_samples - 1 of one prompt.

    `question_id` and the number of a sample key its draws: no two samples of a step have both alike.
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
    # Experts of the prompt's tokens but the last [P - 1, L, c], shared by its samples; and of those behind which each
    # token was drawn [R, L, c]: the last of the prompt, and the response but its last.
    prompt_routes: np.ndarray | None = None
    routes: np.ndarray | None = None


@dataclass(frozen=True)
class PendingSample:
    """One sample that is wanted: number `index` of a request."""

    request: Request
    index: int


class Queue:
    """Samples that wait for a prefill. Pulls no more requests from its source than the slots can soon take."""

    def __init__(self, requests: Iterable[Request], sizes: Sizes) -> None:
        self._source = iter(requests)
        self._sizes = sizes
        self._waiting: deque[list[PendingSample]] = deque()  # those of one prompt, in the order in which they came
        self._num_wanted = 0

    def pull_until(self, enough: int) -> int:
        """Returns how many samples are wanted and not yet taken, or a lower count that is at least `enough`."""
        while self._num_wanted < enough and self._pull():
            pass
        return self._num_wanted

    def oldest_length(self) -> int:
        """Returns the static length of the prompt that waits longest. There must be one."""
        return self._length(self._waiting[0])

    def peek(self, length: int, enough: int = 0) -> list[PendingSample]:
        """Returns the samples of the prompt that waits longest among those of one static length; [] if none waits.

        Where none waits, pulls further requests until one comes or `enough` samples of other lengths are wanted.
        """
        while True:
            samples = next((samples for samples in self._waiting if self._length(samples) == length), [])
            if samples or self._num_wanted >= enough or not self._pull():
                return samples

    def remove(self, samples: list[PendingSample]) -> None:
        """Takes samples that `peek` shows."""
        self._waiting.remove(samples)
        self._num_wanted -= len(samples)

    def put_back(self, samples: list[PendingSample]) -> None:
        """Lets samples of one prompt wait again, before all others."""
        self._waiting.appendleft(samples)
        self._num_wanted += len(samples)

    def _pull(self) -> bool:
        """Takes the next request from the source; returns whether there was one."""
        request = next(self._source, None)
        if request is not None:
            samples = [PendingSample(request, request.first_sample + index) for index in range(request.num_samples)]
            if samples:
                self._waiting.append(samples)
                self._num_wanted += len(samples)
        return request is not None

    def _length(self, samples: list[PendingSample]) -> int:
        return smallest(self._sizes.prompt_lengths, len(samples[0].request.prompt_ids))


@dataclass(eq=False)
class Group:
    """The samples of one prompt in a shard."""

    prompt: Prompt
    pages: list[int]  # with the prompt's keys and values
    waiting: deque[PendingSample] = field(default_factory=deque)  # for a slot
    num_running: int = 0
    prefill: "Prefill | None" = None  # that the pages are of, and which of its rows this is
    row: int = 0

    @cached_property
    def routes(self) -> np.ndarray | None:
        """Experts of the prompt's tokens, but of the last; see `Sample`."""
        if self.prefill is None or self.prefill.routes is None:
            return None
        return self.prefill.routes[self.row, : len(self.prompt) - 1].copy()


@dataclass(eq=False)
class Prefill:
    """What one prefill returned with the cache."""

    on_devices: jax.Array | None  # int [B, T, L, c]

    @cached_property
    def routes(self) -> np.ndarray | None:
        """Experts of its prompts; waits for the devices, and frees their memory."""
        routes, self.on_devices = to_host(self.on_devices), None
        return routes


class Shard:
    """The pages of one part of the batch, and the prompts that lie in them."""

    def __init__(self, sizes: Sizes) -> None:
        self.groups: dict[Prompt, Group] = {}
        self.new: list[Group] = []  # whose prompts are in no pages yet
        self.is_short = False  # of pages since the last sample ended: none starts while others run
        self._sizes = sizes
        self._free = list(range(sizes.pages))[::-1]

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_waiting(self) -> int:
        return sum(len(group.waiting) for group in self.groups.values())

    @property
    def takes_more(self) -> bool:
        """Whether another sample may start, if there are pages for it."""
        return not self.is_short or not any(group.num_running for group in self.groups.values())

    def take(self, count: int) -> list[int]:
        """Takes free pages, of which there must be so many."""
        if count > len(self._free):
            raise RuntimeError(f"{count} pages are wanted of {len(self._free)}")
        return [self._free.pop() for _ in range(count)]

    def give_back(self, pages: Iterable[int]) -> None:
        """Frees pages."""
        self._free.extend(pages)

    def add(self, samples: Sequence[PendingSample]) -> None:
        """Lets samples of one prompt wait here."""
        prompt = samples[0].request.prompt_ids
        if prompt not in self.groups:
            self.groups[prompt] = Group(prompt, self.take(self._sizes.pages_of(len(prompt) - 1)))
            self.new.append(self.groups[prompt])
        self.groups[prompt].waiting.extend(samples)

    def left(self, group: Group) -> None:
        """Frees a group's pages where none of its samples waits or runs."""
        if not group.waiting and not group.num_running:
            self.give_back(self.groups.pop(group.prompt).pages)
            if group in self.new:
                self.new.remove(group)

    def give_up(self, queue: Queue, but: Group | None = None) -> bool:
        """Puts a group of which no sample runs back in the queue, for its pages; returns whether there was one."""
        idle = [group for group in self.groups.values() if not group.num_running and group is not but]
        if not idle:
            return False
        self.give_back(self.groups.pop(idle[-1].prompt).pages)
        queue.put_back(list(idle[-1].waiting))
        self.is_short = True
        return True


class Prefilled:
    """The samples whose prompts are in pages and that have no slot yet."""

    def __init__(self, shards: Sequence[Shard], sizes: Sizes) -> None:
        self._shards = shards
        self._sizes = sizes

    @property
    def num_waiting(self) -> int:
        return sum(shard.num_waiting for shard in self._shards)

    def _pays(self, queue: Queue, num_free: Sequence[int]) -> bool:
        """Returns whether a prefill would pay for slots that are free (`num_free`) in shards where no sample waits.

        It pays once every shard has such slots, or a share IDLE of all slots is: a prefill takes the time of many
        decode steps, whatever the number of shards that need it.
        """
        loads = [(shard.num_waiting, free) for shard, free in zip(self._shards, num_free, strict=True)]
        idle = [free for waiting, free in loads if free and not waiting]
        if not idle or (len(idle) < len(loads) and sum(idle) < IDLE * self._sizes.slots[-1]):
            return False
        return queue.pull_until(enough=1) > 0 or any(waiting > free for waiting, free in loads)

    def choose(
        self, queue: Queue, num_free: Sequence[int], pad_id: int
    ) -> tuple[np.ndarray, np.ndarray, dict[int, Group]] | None:
        """Chooses the prompts of the next prefill, as many as have pages; None where that is none, or it would not pay.

        Returns tokens int32 [P, T] of static sizes, shard by shard, their pages as `PageTable` has them, and the groups
        by row.
        """
        if not self._pays(queue, num_free):
            return None
        self._take_requests(queue, num_free)
        if not queue.pull_until(enough=1):
            self._share_out(num_free)
        rows = self._num_rows()
        groups: dict[int, Group] = {}
        for index, shard in enumerate(self._shards):
            groups |= enumerate(shard.new, index * rows)
            shard.new = []
        if not groups:
            return None
        length = smallest(self._sizes.prompt_lengths, max(len(group.prompt) for group in groups.values()))
        tokens_BT = np.full((rows * len(self._shards), length), pad_id, np.int32)
        pages_BM = np.full((len(tokens_BT), self._sizes.pages_of(length)), self._sizes.pages, np.int32)
        for row, group in groups.items():
            tokens_BT[row, : len(group.prompt)] = group.prompt
            pages_BM[row, : len(group.pages)] = group.pages
        return tokens_BT, pages_BM, groups

    def _take_requests(self, queue: Queue, num_free: Sequence[int]) -> None:
        """Takes enough requests for the free slots; then as many as go into rows that are prefilled anyway."""
        needs = [free - shard.num_waiting for shard, free in zip(self._shards, num_free, strict=True)]
        if not queue.pull_until(enough=max(sum(needs), 1)):
            return
        length = queue.oldest_length()
        while (wanted := sum(max(need, 0) for need in needs)) and queue.pull_until(enough=wanted):
            samples = queue.peek(length)
            able = [i for i in self._able(samples, self._sizes.prompts_per_shard) if needs[i] > 0]
            if not able:
                break
            neediest = max(able, key=lambda i: needs[i])
            queue.remove(samples)
            self._shards[neediest].add(samples)
            needs[neediest] -= len(samples)
        rows = self._num_rows()
        while able := self._able(samples := queue.peek(length, enough=self._sizes.slots[-1]), rows):
            queue.remove(samples)
            min((self._shards[i] for i in able), key=lambda shard: shard.num_waiting).add(samples)

    def _share_out(self, num_free: Sequence[int]) -> None:
        """Lets shards with free slots take over samples for which other shards have none."""
        while True:
            spare = [shard.num_waiting - free for shard, free in zip(self._shards, num_free, strict=True)]
            donor = spare.index(max(spare))
            if spare[donor] <= 0:
                return
            group = next(group for group in reversed(self._shards[donor].groups.values()) if group.waiting)
            able = [i for i in self._able(group.waiting, self._sizes.prompts_per_shard) if spare[i] < 0]
            if not able:
                return
            taker = min(able, key=lambda i: spare[i])
            moved = [group.waiting.pop() for _ in range(min(-spare[taker], spare[donor], len(group.waiting)))]
            self._shards[taker].add(moved[::-1])
            self._shards[donor].left(group)

    def _able(self, samples: Sequence[PendingSample], rows: int) -> list[int]:
        """Returns the shards that hold the samples' prompt or have a row and pages for it, and a chunk of one sample.

        None where there are no samples.
        """
        if not samples:
            return []
        prompt = samples[0].request.prompt_ids
        needed = self._sizes.pages_of(len(prompt) - 1) + 1
        return [
            index
            for index, shard in enumerate(self._shards)
            if prompt in shard.groups or (len(shard.new) < rows and shard.takes_more and shard.num_free >= needed)
        ]

    def _num_rows(self) -> int:
        """Returns the rows of a shard in the smallest prefill that holds what every shard has now."""
        most = max(len(shard.new) for shard in self._shards)
        return smallest(self._sizes.prompts, most * len(self._shards)) // len(self._shards)
