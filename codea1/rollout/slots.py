"""The samples that decode: which slot and pages each has, and what it has drawn; numpy on the host."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
import numpy as np

from codea1.models.grouped_attention import MEMBERS
from codea1.models.kv_cache import PageTable, num_groups
from codea1.rollout.decoding import Chunk, Rows, abstract_rows
from codea1.rollout.scheduler import Group, PendingSample, Queue, Request, Sample, Shard, Sizes
from codea1.runtime.hosts import stable_hash
from codea1.sharding import Array

# Of a response's tokens, of which so many were looked at before: how many of them end it; 0: it goes on.
EndOf = Callable[[list[int], int], int]


class Slots:
    """The slots, the samples in them, and what those have drawn; equal parts for each shard lie one after another."""

    def __init__(self, size: int, shards: Sequence[Shard], sizes: Sizes) -> None:
        self._shards = shards
        self._sizes = sizes
        self._samples = np.full(size, None, object)  # PendingSample and its Group, last; None: there was none yet
        self._groups = np.full(size, None, object)
        self._num_started = 0
        self._started_B = np.zeros(size, np.int64)  # the order in which they came
        self._num_shared_B = np.zeros(size, np.int32)  # pages at the start that are the prompt's
        self._num_pages_B = np.zeros(size, np.int32)
        self._pages_BM = np.zeros((size, sizes.longest), np.int32)
        # By place in the response: memory is only taken for places that a sample has come to.
        self._tokens_RB = np.zeros((sizes.max_response_length, size), np.int32)
        self._log_probs_RB = np.zeros((sizes.max_response_length, size), np.float32)
        self._routes_RB: np.ndarray | None = None  # [R, B, L, c], once a chunk has some
        self.rows: Rows = jax.tree.map(lambda column: np.zeros(column.shape, column.dtype), abstract_rows(size))

    @property
    def num_live(self) -> int:
        return int(self.rows.live.sum())

    def excess(self, size: int) -> int:
        """Returns how many samples are too many for so many slots, in the shard that holds most."""
        return int(self._by_shard(self.rows.live).sum(axis=1).max()) - size // len(self._shards)

    def free(self) -> list[list[int]]:
        """Returns the slots without a live sample, by shard."""
        slots_WS = self._by_shard(np.arange(len(self.rows.live)))
        return [slots_S[~self.rows.live[slots_S]].tolist() for slots_S in slots_WS]

    def fill(self, queue: Queue, chunk: int) -> tuple[int, np.ndarray, np.ndarray]:
        """Starts samples that wait in free slots of their shards, at most `sizes.inserted` in each.

        A sample starts where there are pages for its first `chunk` tokens besides those that the others need in theirs.

        Returns how many started, and from_WZ and to_WZ for `Cache.copy_pages`.
        """
        shape = (len(self._shards), self._sizes.inserted)
        from_WZ, to_WZ = np.zeros(shape, np.int32), np.full(shape, np.iinfo(np.int32).max, np.int32)
        started = 0
        for index, (shard, free) in enumerate(zip(self._shards, self.free(), strict=True)):
            copies = 0
            for slot in free[: self._sizes.inserted]:
                group = next((group for group in shard.groups.values() if group.waiting), None)
                if group is None or not self._has_pages(index, group, queue, chunk):
                    break
                shared = (len(group.prompt) - 1) // self._sizes.page
                copied: list[int] = []
                if (len(group.prompt) - 1) % self._sizes.page:
                    copied = shard.take(1)
                    from_WZ[index, copies], to_WZ[index, copies] = group.pages[shared], copied[0]
                    copies += 1
                self._put(slot, group, [*group.pages[:shared], *copied], shared)
                started += 1
        return started, from_WZ, to_WZ

    def grow(self, queue: Queue, chunk: int) -> int:
        """Gives all live samples the pages of their next `chunk` tokens; returns how many gave way for that."""
        gave_way = 0
        missing_B = self._missing_B(chunk)
        short = np.flatnonzero(missing_B)
        for slot in short[np.argsort(self._started_B[short])].tolist():
            shard, missing = self._shards[self._shard_of(slot)], int(missing_B[slot])
            while self.rows.live[slot] and shard.num_free < missing:
                if not shard.give_up(queue):
                    self._stop_last(self._shard_of(slot))
                    gave_way += 1
            if self.rows.live[slot]:
                end = self._num_pages_B[slot] + missing
                self._pages_BM[slot, self._num_pages_B[slot] : end] = shard.take(missing)
                self._num_pages_B[slot] = end
        return gave_way

    def table(self) -> PageTable:
        """Returns where the samples lie, and what their next tokens read."""
        if self._sizes.platform == "tpu":
            num_shared_B, members_WGR = self._reading_together()
            return PageTable(self._pages_BM, num_shared_B=num_shared_B, members_WGR=members_WGR)
        shards, live = len(self._shards), self.rows.live
        size = len(live) // shards
        reads_WI3 = np.zeros((shards, self._sizes.reads[len(live)], 3), np.int32)
        reads_WI3[..., 0] = size  # padding: the row of no slot
        num_reads_W = np.zeros(shards, np.int32)
        for index, count_S in enumerate(self._by_shard(np.where(live, self._num_pages_B, 0))):
            row_I = np.repeat(np.arange(size), count_S)
            place_I = np.arange(len(row_I)) - np.repeat(np.cumsum(count_S) - count_S, count_S)
            num_reads_W[index] = len(row_I)
            page_I = self._pages_BM[index * size + row_I, place_I]
            # A page that rows share is read by one after another.
            reads_WI3[index, : len(row_I)] = np.stack([row_I, page_I, place_I], axis=1)[np.argsort(page_I)]
        return PageTable(self._pages_BM, reads_WI3, num_reads_W)

    def _reading_together(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns `num_shared_B` and `members_WGR` of a `PageTable`: the samples of a prompt, MEMBERS at a time."""
        shards, size = len(self._shards), len(self.rows.live) // len(self._shards)
        members_WGR = np.full((shards, num_groups(size), MEMBERS), -1, np.int32)
        slot_I = np.flatnonzero(self.rows.live & (self._num_shared_B > 0))
        prompt_I = slot_I // size * self._sizes.pages + self._pages_BM[slot_I, 0]  # no two have the same first page
        order = np.argsort(prompt_I, kind="stable")
        slot_I, prompt_I = slot_I[order], prompt_I[order]
        place_I = np.arange(len(slot_I))
        nth_I = place_I - np.searchsorted(prompt_I, prompt_I)
        candidate_I = np.cumsum(nth_I % MEMBERS == 0) - 1
        together_I = np.bincount(candidate_I, minlength=1)[candidate_I] > 1  # a sample alone makes no group
        slot_I, nth_I = slot_I[together_I], nth_I[together_I] % MEMBERS
        num_shared_B = np.zeros_like(self._num_shared_B)
        num_shared_B[slot_I] = self._num_shared_B[slot_I]
        first_I = nth_I == 0
        shard_G = slot_I[first_I] // size
        number_G = np.arange(len(shard_G)) - np.searchsorted(shard_G, shard_G)
        group_I = np.cumsum(first_I) - 1
        members_WGR[shard_G, number_G] = (slot_I[first_I] % size)[:, None]
        members_WGR[shard_G[group_I], number_G[group_I], nth_I] = slot_I % size
        return num_shared_B, members_WGR

    def take(self, chunk: Chunk, end_of: EndOf | None = None) -> list[Sample]:
        """Adds what a chunk has drawn, and returns the samples that it finished, cut where `end_of` says.

        `chunk` holds numpy arrays.
        """
        rows = self.rows
        num_new_B = chunk.drawn - rows.drawn
        slot, column = np.nonzero(np.arange(chunk.tokens.shape[1]) < num_new_B[:, None])
        place = rows.drawn[slot] + column, slot
        self._tokens_RB[place] = chunk.tokens[slot, column]
        self._log_probs_RB[place] = chunk.log_probs[slot, column]
        if chunk.routes is not None:
            if self._routes_RB is None:
                shape = *self._tokens_RB.shape, *chunk.routes.shape[2:]
                self._routes_RB = np.zeros(shape, chunk.routes.dtype)
            self._routes_RB[place] = chunk.routes[slot, column]
        drew = np.flatnonzero(num_new_B)
        rows.token[drew] = chunk.tokens[drew, num_new_B[drew] - 1]
        rows.position[:] += num_new_B
        rows.drawn[:] = chunk.drawn
        finished_B = rows.live & (chunk.stopped | (rows.drawn >= rows.limit))
        length_B, stopped_B = rows.drawn.copy(), chunk.stopped.copy()
        if end_of is not None:
            for slot in np.flatnonzero(rows.live & (num_new_B > 0)).tolist():
                length = int(length_B[slot])
                if end := end_of(self._tokens_RB[:length, slot].tolist(), length - int(num_new_B[slot])):
                    length_B[slot], stopped_B[slot], finished_B[slot] = end, True, True
        samples = []
        for slot in np.flatnonzero(finished_B).tolist():
            pending: PendingSample = self._samples[slot]
            length = int(length_B[slot])
            samples.append(
                Sample(
                    question_id=pending.request.question_id,
                    index=pending.index,
                    prompt_ids=pending.request.prompt_ids,
                    token_ids=tuple(self._tokens_RB[:length, slot].tolist()),
                    log_probs=self._log_probs_RB[:length, slot].copy(),
                    finish_reason="stop" if stopped_B[slot] else "length",
                    prompt_routes=self._groups[slot].routes,
                    routes=None if self._routes_RB is None else self._routes_RB[:length, slot].copy(),
                )
            )
            self._leave(slot)
            self._shards[self._shard_of(slot)].is_short = False
        return samples

    def keep(self, size: int) -> None:
        """Moves to fewer slots, which hold what is live in every shard."""
        slots_WS = self._by_shard(np.arange(len(self.rows.live)))
        places_WS = np.argsort(~self._by_shard(self.rows.live), axis=1, kind="stable")[:, : size // len(slots_WS)]
        order = np.take_along_axis(slots_WS, places_WS, axis=1).ravel()
        for name in ("_samples", "_groups", "_started_B", "_num_shared_B", "_num_pages_B", "_pages_BM"):
            setattr(self, name, getattr(self, name)[order])
        longest = self.rows.drawn.max()
        for name in ("_tokens_RB", "_log_probs_RB", "_routes_RB"):
            old_RB = getattr(self, name)
            if old_RB is None:
                continue
            new_RB = np.zeros((len(old_RB), size, *old_RB.shape[2:]), old_RB.dtype)
            new_RB[:longest] = old_RB[:longest, order]
            setattr(self, name, new_RB)
        self.rows = replace(self.rows, **{name: column[order] for name, column in vars(self.rows).items()})

    def _by_shard(self, column_B: Array) -> np.ndarray:
        return np.asarray(column_B).reshape(len(self._shards), -1)

    def _put(self, slot: int, group: Group, pages: list[int], num_shared: int) -> None:
        sample, rows = group.waiting.popleft(), self.rows
        group.num_running += 1
        request = sample.request
        self._samples[slot], self._groups[slot] = sample, group
        self._num_started += 1
        self._started_B[slot] = self._num_started
        self._num_shared_B[slot], self._num_pages_B[slot] = num_shared, len(pages)
        self._pages_BM[slot, : len(pages)] = pages
        rows.token[slot] = request.prompt_ids[-1]
        rows.position[slot] = len(request.prompt_ids) - 1
        rows.drawn[slot] = 0
        rows.limit[slot] = self._limit(request)
        rows.question_hash[slot] = stable_hash(request.question_id)
        rows.sample_index[slot] = sample.index
        rows.live[slot] = True

    def _has_pages(self, index: int, group: Group, queue: Queue, chunk: int) -> bool:
        """Returns whether a shard can start a sample of a group; where none runs, it gives up others for that."""
        shard = self._shards[index]
        known = len(group.prompt) - 1
        end = known + min(chunk, self._limit(group.waiting[0].request))
        needed = self._sizes.pages_of(end) - known // self._sizes.page
        if self._by_shard(self.rows.live)[index].any():
            missing = self._by_shard(self._missing_B(chunk))[index].sum()
            return shard.takes_more and shard.num_free - missing >= needed
        while shard.num_free < needed and shard.give_up(queue, but=group):
            pass
        return True  # at the latest when none is left: a shard has pages for the longest sample

    def _limit(self, request: Request) -> int:
        return min(request.length_limit or self._sizes.max_response_length, self._sizes.max_response_length)

    def _missing_B(self, chunk: int) -> np.ndarray:
        """Returns how many pages each sample has too few for its next `chunk` tokens."""
        rows = self.rows
        end_B = rows.position + np.minimum(chunk, rows.limit - rows.drawn)
        missing_B = np.maximum(-(-end_B // self._sizes.page) - self._num_pages_B, 0)
        return np.where(rows.live, missing_B, 0)

    def _stop_last(self, index: int) -> None:
        """Lets the sample of a shard that came last give way: it waits for a slot again, and loses what it drew."""
        live = np.flatnonzero(self.rows.live).tolist()
        last = max((slot for slot in live if self._shard_of(slot) == index), key=lambda slot: self._started_B[slot])
        self._groups[last].waiting.appendleft(self._samples[last])
        self._leave(last)
        self._shards[index].is_short = True

    def _leave(self, slot: int) -> None:
        shard = self._shards[self._shard_of(slot)]
        group: Group = self._groups[slot]
        shard.give_back(self._pages_BM[slot, self._num_shared_B[slot] : self._num_pages_B[slot]].tolist())
        self.rows.live[slot] = False
        group.num_running -= 1
        shard.left(group)

    def _shard_of(self, slot: int) -> int:
        return slot * len(self._shards) // len(self.rows.live)
