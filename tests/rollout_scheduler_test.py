"""Who is prefilled where, and who gets which slot and pages: played without devices, where samples end at random."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codea1.models.kv_cache import num_reads
from codea1.rollout.decoding import Chunk
from codea1.rollout.scheduler import IDLE, Group, Prefilled, Queue, Request, Shard, Sizes
from codea1.rollout.slots import Slots

PAD, PAGE, CHUNK, RESPONSE = 0, 4, 3, 12
PLENTY = 10_000


def sizes(
    shards: int,
    slots_per_shard: int,
    prompts_per_shard: int,
    inserted: int,
    longest_prompt: int = 4,
    pages: int = PLENTY,
) -> Sizes:
    longest = -(-(longest_prompt + RESPONSE - 1) // PAGE)
    return Sizes(
        shards=shards,
        slots=(shards * slots_per_shard,),
        prompts=tuple(sorted({shards, shards * prompts_per_shard})),
        inserted=inserted,
        prompt_lengths=(2, longest_prompt),
        max_response_length=RESPONSE,
        page=PAGE,
        pages=pages,
        longest=longest,
        reads={shards * count: num_reads(count, longest, "cpu") for count in range(1, slots_per_shard + 1)},
        platform="cpu",
    )


class Play:
    """Fills slots and lets samples draw and end until nobody is left, and checks each step."""

    def __init__(self, static: Sizes, requests: list[Request], seed: int, ends_with_chunk: float = 0.5) -> None:
        self.static = static
        self.ends = ends_with_chunk  # chance of a sample to end in each chunk
        self.queue = Queue(iter(requests), static)
        self.shards = [Shard(static) for _ in range(static.shards)]
        self.slots = Slots(static.slots[-1], self.shards, static)
        self.prefilled = Prefilled(self.shards, static)
        self.random = random.Random(seed)
        self.written: dict[tuple[int, int], tuple[int, ...]] = {}  # tokens in each page of each shard
        self.done: list[tuple[str, int]] = []
        self.rows = self.prompts = self.events = self.gave_way = 0
        self.idle = 0.0  # most of the slots that stayed free while somebody waited, as a share

    def run(self) -> "Play":
        while True:
            self.refill()
            if not self.slots.num_live:
                assert not self.prefilled.num_waiting
                assert not self.queue.pull_until(enough=1)
                assert all(shard.num_free == self.static.pages for shard in self.shards)
                return self
            firsts = self.firsts()
            self.gave_way += self.slots.grow(self.queue, CHUNK)
            assert self.firsts() == firsts  # they never give way
            self.check_pages()
            self.draw()

    def by_shard(self, column_B: np.ndarray) -> np.ndarray:
        return column_B.reshape(self.static.shards, -1)

    def firsts(self) -> list[int]:
        """Which sample of each shard came first of those that live."""
        return self.by_shard(np.where(self.slots.rows.live, self.slots._started_B, 2**40)).min(axis=1).tolist()

    def refill(self) -> None:
        while True:
            num_free = list(map(len, self.slots.free()))
            known = [set(shard.groups) for shard in self.shards]
            if chosen := self.prefilled.choose(self.queue, num_free, PAD):
                self.prefill(*chosen)
            for shard, prompts in zip(self.shards, known, strict=True):  # a sample has a page to start in
                assert shard.num_free or not shard.groups.keys() - prompts
            last_W = self.by_shard(self.slots._started_B).max(axis=1)
            started, from_WZ, to_WZ = self.slots.fill(self.queue, CHUNK)
            has_more_W = self.by_shard(self.slots._started_B).max(axis=1) > last_W
            missing_W = self.by_shard(self.slots._missing_B(CHUNK)).sum(axis=1)
            for shard, has_more, missing in zip(self.shards, has_more_W, missing_W, strict=True):
                assert shard.num_free >= missing or not has_more  # none starts for whose chunk another would give way
            self.events += started
            for shard, (from_Z, to_Z) in enumerate(zip(from_WZ, to_WZ, strict=True)):
                used = to_Z < self.static.pages
                assert not used[np.argmin(used) :].any() or used.all()  # the first ones
                for source, target in zip(from_Z[used].tolist(), to_Z[used].tolist(), strict=True):
                    self.written[shard, target] = self.written[shard, source]
            if not started:
                break
        if self.prefilled.num_waiting or self.queue.pull_until(enough=1):
            self.idle = max(self.idle, sum(map(len, self.slots.free())) / self.static.slots[-1])

    def prefill(self, tokens_BT: np.ndarray, pages_BM: np.ndarray, groups: dict[int, Group]) -> None:
        assert len(tokens_BT) in self.static.prompts
        assert tokens_BT.shape[1] in self.static.prompt_lengths
        rows = len(tokens_BT) // self.static.shards
        self.rows += rows
        self.prompts += len(groups)
        for row, (tokens, pages) in enumerate(zip(tokens_BT.tolist(), pages_BM.tolist(), strict=True)):
            for place, page in enumerate(pages):
                if page < self.static.pages:
                    self.written[row // rows, page] = tuple(tokens[place * PAGE : (place + 1) * PAGE])

    def check_pages(self) -> None:
        """No page is lost or somebody else's, and each sample's hold its prompt and what it comes to."""
        slots, static = self.slots, self.static
        table, rows = slots.table(), slots.rows
        size = len(rows.live) // static.shards
        for index, shard in enumerate(self.shards):
            used = [page for group in shard.groups.values() for page in group.pages]
            reads = set()
            for slot in (np.flatnonzero(rows.live[index * size : (index + 1) * size]) + index * size).tolist():
                prompt = slots._samples[slot].request.prompt_ids
                count = slots._num_pages_B[slot]
                pages = table.pages_BM[slot, :count].tolist()
                shared = slots._num_shared_B[slot]
                assert pages[:shared] == shard.groups[prompt].pages[:shared]
                used += pages[shared:]
                reads |= {(slot - index * size, page, place) for place, page in enumerate(pages)}
                last = rows.position[slot] + min(CHUNK, rows.limit[slot] - rows.drawn[slot]) - 1
                assert last // PAGE < count
                held = sum((self.written[index, page] for page in pages[: -(-(len(prompt) - 1) // PAGE)]), ())
                assert held[: len(prompt) - 1] == prompt[:-1]
            assert len(used) == len(set(used)) == static.pages - shard.num_free
            found = table.reads_WI3[index, : table.num_reads_W[index]].tolist()
            assert set(map(tuple, found)) == reads
            assert len(found) == len(reads)
            assert (table.reads_WI3[index, len(found) :, 0] == size).all()
        self.check_groups()

    def check_groups(self) -> None:
        """Each group reads pages that its rows have in common; of a prompt at most one row is in none."""
        size = len(self.slots.rows.live) // self.static.shards
        num_shared_B, members_WGR = self.slots._reading_together()
        alone: Counter[tuple[int, tuple[int, ...]]] = Counter()
        for index, members_GR in enumerate(members_WGR):
            num_groups = int((members_GR[:, 0] >= 0).sum())
            assert (members_GR[num_groups:] == -1).all()
            grouped = []
            for rows in map(set, members_GR[:num_groups].tolist()):
                grouped += rows
                assert len(rows) > 1
                slots = [index * size + row for row in rows]
                (count,) = {num_shared_B[slot] for slot in slots}
                assert count == self.slots._num_shared_B[slots[0]] > 0
                assert len({tuple(self.slots._pages_BM[slot, :count]) for slot in slots}) == 1
            assert len(grouped) == len(set(grouped))
            for row in range(size):
                slot = index * size + row
                assert (num_shared_B[slot] > 0) == (row in grouped)
                if row not in grouped and self.slots.rows.live[slot] and self.slots._num_shared_B[slot]:
                    alone[index, self.slots._samples[slot].request.prompt_ids] += 1
        assert max(alone.values(), default=0) <= 1

    def draw(self) -> None:
        rows = self.slots.rows
        left_B = np.where(rows.live, np.minimum(CHUNK, rows.limit - rows.drawn), 0)
        stopped_B = rows.live & np.array([self.random.random() < self.ends for _ in rows.live])
        new_B = np.where(stopped_B & (left_B > 0), [self.random.randint(1, max(each, 1)) for each in left_B], left_B)
        drawn_B = (rows.drawn + new_B).astype(np.int32)
        shape = (len(rows.live), CHUNK)
        tokens_BC = np.array([self.random.randint(1, 99) for _ in range(rows.live.size * CHUNK)], np.int32).reshape(
            shape
        )
        chunk = Chunk(tokens_BC, np.zeros(shape, np.float32), drawn_B, stopped_B, np.int32(CHUNK))
        for sample in self.slots.take(chunk):
            self.done.append((sample.question_id, sample.index))
        self.events += int(new_B.sum())


def wanted(requests: list[Request]) -> list[tuple[str, int]]:
    return sorted((request.question_id, index) for request in requests for index in range(request.num_samples))


@settings(max_examples=200, deadline=None)
@given(
    shards=st.sampled_from([1, 2, 3, 8]),
    slots_per_shard=st.one_of(st.integers(1, 6), st.just(20)),
    prompts_per_shard=st.integers(1, 3),
    inserted=st.integers(1, 3),
    longest_prompt=st.integers(3, 15),
    spare=st.one_of(st.integers(1, 12), st.just(PLENTY)),
    groups=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30)), max_size=20),
    seed=st.integers(0, 99),
)
def test_every_sample_ends_in_pages_that_hold_its_prompt(
    shards, slots_per_shard, prompts_per_shard, inserted, longest_prompt, spare, groups, seed
):
    static = sizes(shards, slots_per_shard, prompts_per_shard, inserted, longest_prompt)
    static = sizes(shards, slots_per_shard, prompts_per_shard, inserted, longest_prompt, static.longest + spare)
    requests = [
        # Some prompts are equal.
        Request(f"q{number}", tuple(range(1 + prompt // 20, 2 + prompt // 20 + prompt % longest_prompt)), 0, samples)
        for number, (prompt, samples) in enumerate(groups)
    ]
    play = Play(static, requests, seed).run()
    assert sorted(play.done) == wanted(requests)
    if spare == PLENTY:
        assert play.gave_way == 0
        assert play.idle < IDLE
        assert shards > 1 or play.idle == 0


def soak(events: int, seed: int) -> tuple[int, int]:
    """Plays until so many events; returns how many there were, and how often samples gave way."""
    chance, done, gave_way = random.Random(seed), 0, 0
    while done < events:
        static = sizes(
            chance.choice([1, 2, 4, 16]), chance.randint(1, 16), chance.randint(1, 4), chance.randint(1, 4), 15
        )
        few = static.longest + chance.choice([1, 1, 2, 3, 5, 8, 20])
        static = sizes(static.shards, static.slots[-1] // static.shards, 2, static.inserted, 15, few)
        requests = [
            Request(
                f"q{number}", tuple(chance.randint(1, 3) for _ in range(chance.randint(1, 15))), 0, chance.randint(1, 9)
            )
            for number in range(chance.randint(1, 60))
        ]
        play = Play(static, requests, chance.randint(0, 9999), ends_with_chunk=chance.choice([0.05, 0.3, 0.9])).run()
        assert sorted(play.done) == wanted(requests)
        done, gave_way = done + play.events, gave_way + play.gave_way
    return done, gave_way


@pytest.mark.parametrize("events", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_few_pages_lose_nothing_and_starve_nobody(events: int):
    done, gave_way = soak(events, seed=0)
    assert gave_way > done / 200


def prompt(number: int) -> tuple[int, ...]:
    return (1 + number // 100, 1 + number % 100)


@pytest.mark.parametrize("shards", [1, 16])
def test_no_prompt_is_prefilled_twice_though_shards_wait_for_one_another(shards):
    requests = [Request(f"q{number}", prompt(number), 0, 8) for number in range(400)]
    play = Play(sizes(shards, 16, 2, 2), requests, seed=0).run()
    assert play.idle < IDLE
    assert play.prompts <= 400 + shards  # the last ones are shared out
    assert play.rows <= (1 if shards == 1 else 2) * 400 / shards  # with those that only other shards needed


def test_a_large_group_is_shared_out_over_all_shards():
    static = sizes(8, 4, 1, 4)
    play = Play(static, [Request("q", (1, 2), 0, 96)], seed=0)
    play.refill()
    assert play.rows == 1
    assert play.slots.num_live == 32
    assert sorted(play.run().done) == [("q", index) for index in range(96)]


def test_fewer_slots_keep_what_is_live_in_its_shard():
    play = Play(sizes(2, 4, 2, 4), [Request("q", (1,), 0, 4), Request("r", (2,), 0, 4)], seed=0)
    play.refill()
    slots = play.slots
    for slot in (0, 1, 2, 5, 7):
        slots._leave(slot)
    assert (slots.excess(4), slots.excess(2)) == (0, 1)
    indices = slots.rows.sample_index[[3, 4, 6]].tolist()
    slots.keep(4)
    assert slots.rows.live.tolist() == [True, False, True, True]
    assert slots.rows.sample_index[slots.rows.live].tolist() == indices
    slots.grow(play.queue, CHUNK)
    play.check_pages()
