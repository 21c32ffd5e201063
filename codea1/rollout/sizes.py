"""The static sizes that the functions of generation are compiled for, and which of them holds what there is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from jax.sharding import Mesh

from codea1.runtime.errors import BadInput

SHORTEST_SPAN = 64  # positions: below it attention costs little beside the rest of a decode step
TILE = (
    128  # positions: in caches of whole tiles XLA for TPU keeps the order of axes; others it copies to rearrange them
)
FEWEST_SLOTS = 8  # below it a decode step takes hardly less time


@dataclass(frozen=True)
class Sizes:
    """What is plural is ascending."""

    shards: int  # W, parts into which the mesh cuts the batch axis, of slots and of prompts
    slots: tuple[int, ...]  # sequences that decode at once; the largest, and smaller ones for the last stragglers
    prompts: tuple[int, ...]  # prompts of one prefill
    inserted: int  # slots of each shard that one insertion fills
    prompt_lengths: tuple[int, ...]  # tokens
    spans: tuple[int, ...]  # positions that attention reads; the largest is the length of the cache

    @classmethod
    def of(
        cls, mesh: Mesh, *, slots: int, prompt_lengths: Sequence[int], max_prompt_length: int, max_response_length: int
    ) -> Self:
        """The sizes of an engine.

        Halving the slots halves the time of a decode step on a CPU. An accelerator spends it on reading the weights,
        whatever the number of slots, until there are many: there one smaller size is enough.
        Raises BadInput when the mesh does not cut the slots evenly.
        """
        shards = mesh.shape["replica"] * mesh.shape["fsdp"]
        if slots % shards:
            raise BadInput(f"rollout slots {slots} must be a multiple of replica x fsdp, which is {shards}")
        on_cpu = mesh.devices.flat[0].platform == "cpu"
        parts = (1, 2, 4, 8) if on_cpu else (1, 4)
        length = max_prompt_length + max_response_length - 1  # the last token of a response is never attended to
        tile = 1 if on_cpu else TILE
        length = -(-length // tile) * tile
        spans = {max(-(-length * eighths // 8 // tile) * tile, SHORTEST_SPAN) for eighths in (1, 2, 4, 6)}
        return cls(
            shards=shards,
            slots=tuple(sorted(_parts(slots, parts, shards))),
            prompts=tuple(sorted({max(slots // shards // part, 1) * shards for part in (8, 32)})),
            inserted=max(slots // shards // 8, 1),
            prompt_lengths=tuple(sorted({*prompt_lengths, max_prompt_length})),
            spans=(*sorted(span for span in spans if span < length), length),
        )

    @property
    def prompts_per_shard(self) -> int:
        """Prompts of a shard that one prefill can hold."""
        return self.prompts[-1] // self.shards

    def span(self, slots: int, positions: int) -> int:
        """How much of the cache attention reads where no query is beyond so many positions."""
        return smallest(self.spans_of(slots), positions)

    def spans_of(self, slots: int) -> tuple[int, ...]:
        """Returns the spans for so many slots. The stragglers in the smaller ones are long: one is enough."""
        return self.spans if slots == self.slots[-1] else self.spans[-1:]

    def fewer_slots(self, slots: int) -> int:
        """The next smaller number of slots; 0 below the smallest."""
        return max((fewer for fewer in self.slots if fewer < slots), default=0)


def _parts(slots: int, parts: Sequence[int], shards: int) -> set[int]:
    even = {slots // part for part in parts if slots % (part * shards) == 0}
    return {size for size in even if size >= FEWEST_SLOTS or size == slots}


def smallest(sizes: Sequence[int], count: int) -> int:
    """The smallest of ascending `sizes` that holds `count`, or else the largest."""
    return next((size for size in sizes if size >= count), sizes[-1])
