"""Who is prefilled where, and who gets which slot: played without devices, with samples that end at random."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codea1.rollout.functions import Sizes
from codea1.rollout.scheduler import IDLE, Prefilled, Queue, Request, Slots

PAD = 0


def sizes(shards: int, slots_per_shard: int, prompts_per_shard: int, inserted: int) -> Sizes:
    prompts = tuple(sorted({shards, shards * prompts_per_shard}))
    return Sizes(
        shards=shards,
        slots=(shards * slots_per_shard,),
        prompts=prompts,
        inserted=inserted,
        prompt_lengths=(2, 4),
        spans=(64,),
        straggler_spans=(64,),
    )


class Play:
    """Refills and ends samples until nobody is left, and checks each step."""

    def __init__(self, static: Sizes, requests: list[Request], seed: int) -> None:
        self.static = static
        self.queue = Queue(iter(requests), static, check=lambda _: None)
        self.slots = Slots(static.slots[-1], static.shards, max_response_length=4)
        self.prefilled = Prefilled(static)
        self.random = random.Random(seed)
        self.placed: list[tuple[str, int]] = []
        self.rows = 0  # that each shard prefilled
        self.idle = 0.0  # most of the slots that stayed free while somebody waited, as a share

    def run(self) -> "Play":
        while True:
            self.refill()
            if not self.slots.num_live:
                return self
            live = np.flatnonzero(self.slots.rows.live)
            self.slots.rows.live[self.random.sample(live.tolist(), self.random.randint(1, len(live)))] = False

    def refill(self) -> None:
        while True:
            free = self.slots.free()
            num_free = list(map(len, free))
            if self.prefilled.should_prefill(self.queue, num_free):
                self.tokens_WRT = self.prefilled.choose(self.queue, num_free, PAD)
                assert len(self.tokens_WRT) in self.static.prompts
                self.tokens_WRT = self.tokens_WRT.reshape(self.static.shards, -1, self.tokens_WRT.shape[1])
                self.rows += self.tokens_WRT.shape[1]
            prompt_WI, slot_WI, placed = self.prefilled.insertion(free)
            if not placed:
                break
            self.check(prompt_WI, slot_WI, placed)
        if self.prefilled.num_waiting or self.queue.num_wanted(enough=1):
            free = sum(map(len, self.slots.free()))
            self.idle = max(self.idle, free / self.static.slots[-1])

    def check(self, prompt_WI, slot_WI, placed) -> None:
        taken = [0] * self.static.shards
        for shard, slot, draw in placed:
            place = taken[shard]
            taken[shard] += 1
            assert slot_WI[shard, place] == slot
            tokens = self.tokens_WRT[shard, prompt_WI[shard, place]]
            ids = draw.request.prompt_ids
            assert tuple(tokens) == ids + (PAD,) * (len(tokens) - len(ids))
            assert slot in self.slots.free()[shard]
            self.slots.put(shard, slot, draw)
            self.placed.append((draw.request.question_id, draw.index))
        slots_per_shard = len(self.slots.rows.live) // self.static.shards
        for shard, count in enumerate(taken):
            assert (slot_WI[shard, count:] >= slots_per_shard).all()


def wanted(requests: list[Request]) -> list[tuple[str, int]]:
    return sorted((request.question_id, index) for request in requests for index in range(request.num_samples))


@settings(max_examples=200)
@given(
    shards=st.sampled_from([1, 2, 3, 8]),
    slots_per_shard=st.integers(1, 6),
    prompts_per_shard=st.integers(1, 3),
    inserted=st.integers(1, 3),
    groups=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 30)), max_size=20),
    seed=st.integers(0, 99),
)
def test_every_sample_gets_one_slot_beside_its_own_prompt(
    shards, slots_per_shard, prompts_per_shard, inserted, groups, seed
):
    requests = [
        Request(f"q{number}", tuple(range(1, 2 + prompt % 4)), 0, samples)
        for number, (prompt, samples) in enumerate(groups)
    ]
    play = Play(sizes(shards, slots_per_shard, prompts_per_shard, inserted), requests, seed).run()
    assert sorted(play.placed) == wanted(requests)
    assert play.idle < IDLE
    assert shards > 1 or play.idle == 0


def prompt(number: int) -> tuple[int, ...]:
    return (1 + number // 100, 1 + number % 100)


@pytest.mark.parametrize("shards", [1, 16])
def test_shards_that_wait_for_one_another_prefill_few_prompts_again(shards):
    requests = [Request(f"q{number}", prompt(number), 0, 8) for number in range(400)]
    play = Play(sizes(shards, 16, 2, 2), requests, seed=0).run()
    assert play.idle < IDLE
    assert play.rows <= (1 if shards == 1 else 2.4) * 400 / shards


def test_a_large_group_is_shared_out_over_all_shards():
    static = sizes(8, 4, 1, 4)
    play = Play(static, [Request("q", (1, 2), 0, 96)], seed=0)
    play.refill()
    assert play.rows == 1
    assert play.slots.num_live == 32
    assert sorted(play.run().placed) == [("q", index) for index in range(96)]


def test_fewer_slots_keep_what_is_live_in_its_shard():
    slots = Slots(8, shards=2, max_response_length=1)
    queue = Queue([Request("q", (1,), 0, 3)], sizes(2, 4, 1, 1), check=lambda _: None)
    queue.num_wanted(enough=1)
    for (shard, slot), draw in zip([(0, 3), (1, 0), (1, 2)], queue.pop(2), strict=True):
        slots.put(shard, slot, draw)
    assert slots.num_live_in_fullest == 2
    order = slots.keep(4)
    assert order[0, 0] == 3
    assert order[1].tolist() == [0, 2]
    assert slots.rows.live.tolist() == [True, False, True, True]
    assert slots.rows.sample_index[slots.rows.live].tolist() == [0, 1, 2]
