"""Generation: requests in, samples out.

A prompt is prefilled once, into pages that all its samples read. The slots decode together, a chunk of tokens at a
time; what a chunk finishes leaves the engine while the next chunk runs, and its slots and pages are given to the next
samples. Where fewer slots hold all that decode, they move there: the last ones, or those that have pages. The tokens
of a sample depend on the parameters, the prompt and its own keys; not on its slot, its pages, its neighbours or when it
came.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import jax
import numpy as np
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh

from codea1.models.config import Qwen2Config
from codea1.models.kv_cache import Cache
from codea1.models.lora import join
from codea1.models.qwen2 import Params
from codea1.rollout.decoding import Chunk, DecodingConfig, stream_key
from codea1.rollout.functions import generation_functions
from codea1.rollout.scheduler import Prefill, Prefilled, Queue, Request, Sample, Shard, Sizes, smallest
from codea1.rollout.slots import EndOf, Slots
from codea1.runtime.compilations import Function
from codea1.sharding import to_host

STATISTICS = (
    "samples",
    "truncated",  # samples that reached their length limit
    "empty",  # samples that stopped at once
    "preempted",  # times that a sample gave its pages to others and started again
    "prompts",  # prefilled
)


class Engine:
    """Draws samples from a Qwen2 policy on one mesh.

    At most `slots` samples decode at once, in pages that take `cache_gib` of each chip's memory, or what `slots` of the
    longest samples need if it is 0. Prompts are laid out in the shortest of `prompt_lengths` and `max_prompt_length`
    that holds them. Every compiled function has static sizes, see `Sizes`; each is compiled at its first use, or before
    by `compile_all`. Parameters are cast to the dtype of the model's activations for generation. Those that never
    change, which are all unless the policy `learns`, are used where they lie if they need no change. A mixture of
    experts `records_routes` for those who learn from its samples.
    """

    def __init__(
        self,
        graphdef: nnx.GraphDef,
        config: Qwen2Config,
        mesh: Mesh,
        *,
        slots: int,
        max_prompt_length: int,
        max_response_length: int,
        stop_ids: Sequence[int],
        pad_id: int,
        prompt_lengths: Sequence[int] = (),
        cache_gib: float = 0.0,
        learns: bool = True,
        records_routes: bool = False,
        chunk: int = 16,
    ) -> None:
        self.sizes = Sizes.of(
            mesh,
            config,
            slots=slots,
            prompt_lengths=prompt_lengths,
            max_prompt_length=max_prompt_length,
            max_response_length=max_response_length,
            cache_gib=cache_gib,
        )
        self.chunk = min(chunk, max_response_length)  # most tokens of a sample between two looks of the host
        replicas = mesh.shape["replica"]
        self.decoding = DecodingConfig(config, self.chunk, tuple(stop_ids), pad_id, replicas, records_routes)
        self._functions = generation_functions(self.decoding, graphdef, mesh, self.sizes, learns)
        self._published = flatten_dict(self._functions.publish.arguments[0]).keys()  # others are kept
        self.counts = Counter[str]()  # since the statistics were taken last
        self.end_of: EndOf | None = None  # ends responses that have drawn no stop id
        self.between_chunks: Callable[[], None] = lambda: None  # called while samples decode; may raise, to end that

    def functions(self, *, restricted: bool = False) -> list[Function]:
        """Lists what generation calls; with `top_p` it has functions of its own, listed when `restricted`."""
        of = self._functions
        decode = [function for (_, is_restricted), function in of.decode.items() if restricted or not is_restricted]
        return [of.publish, of.empty, *of.prefill.values(), of.copy_pages, *decode]

    def publish(self, params: Params) -> Params:
        """Returns training parameters in the layout and dtypes of generation: one all-gather over what cuts them."""
        flat = flatten_dict(params)
        kept = {path: flat.pop(path) for path in flat.keys() - self._published}
        return join(self._functions.publish(unflatten_dict(flat)), unflatten_dict(kept))

    def take_statistics(self) -> dict[str, float]:
        """Returns metrics of what was generated since the last call.

        They are the counts in STATISTICS, the share of a prefill's rows that held prompts, and that of slot-steps
        (decode steps, each for the slots there were) that drew a token.
        """
        counts, self.counts = self.counts, Counter()
        return {name: float(counts[name]) for name in STATISTICS} | {
            "prefill_use": counts["prompts"] / max(counts["prefill_rows"], 1),
            "slot_use": counts["tokens"] / max(counts["slot_steps"], 1),
        }

    def generate(
        self,
        params: Params,
        requests: Iterable[Request],
        *,
        seed: int,
        stream: str,
        step: int,
        temperature: float,
        top_p: float | None = None,
    ) -> Iterator[Sample]:
        """Yields the samples of all requests as they finish; greedy when temperature is 0.

        Draws are functions of (seed, stream, step, question_id, sample index, position in the response) alone.
        `top_p` is for evaluation: see `decoding.sample_tokens`. An iterator of requests is asked for the next ones
        while the earlier ones decode. Every process of a multi-process run must make the same call and exhaust the
        iterator that it returns.

        Raises ValueError for a prompt that is empty or longer than max_prompt_length, a limit that is not positive, a
        negative temperature and a top_p outside (0, 1]: before anything runs, but for what an iterator yields.
        """
        checked: Iterable[Request] = map(self._checked, requests)
        if isinstance(requests, Sequence):
            checked = list(checked)
        if temperature < 0:
            raise ValueError(f"temperature is {temperature}, it must not be negative")
        if top_p is not None and not 0 < top_p <= 1:
            raise ValueError(f"top_p is {top_p}, it must lie above 0 and not exceed 1")
        key_data = np.asarray(jax.random.key_data(stream_key(seed, stream, step)))
        queue = Queue(checked, self.sizes)
        limit = None if top_p is None else np.float32(top_p)
        return self._run(self.publish(params), queue, key_data, np.float32(temperature), limit)

    def _checked(self, request: Request) -> Request:
        longest = self.sizes.prompt_lengths[-1]
        if not 0 < len(request.prompt_ids) <= longest:
            raise ValueError(
                f"the prompt of question {request.question_id!r} has {len(request.prompt_ids)} tokens, "
                f"it must have 1 to {longest}"
            )
        if request.length_limit is not None and request.length_limit < 1:
            raise ValueError(f"question {request.question_id!r} has length_limit {request.length_limit}, less than 1")
        return request

    def _run(
        self, weights: Params, queue: Queue, key_data: np.ndarray, temperature: np.float32, top_p: np.float32 | None
    ) -> Iterator[Sample]:
        size = smallest(self.sizes.slots, queue.pull_until(enough=self.sizes.slots[-1]))
        shards = [Shard(self.sizes) for _ in range(self.sizes.shards)]
        slots = Slots(size, shards, self.sizes)
        prefilled = Prefilled(shards, self.sizes)
        cache = self._functions.empty()
        finished: list[Sample] = []
        while True:
            self.between_chunks()
            cache = self._refill(weights, queue, prefilled, slots, cache)
            if not slots.num_live:
                break
            while (smaller := self.sizes.fewer_slots(size)) and slots.excess(smaller) <= 0:
                slots.keep(smaller)
                size = smaller
            self.counts["preempted"] += slots.grow(queue, self.chunk)
            any_waits = prefilled.num_waiting > 0 or queue.pull_until(enough=1) > 0
            exit_when_live = np.int32(self._exit_when_live(slots, size, any_waits))
            cache, chunk = self._functions.decode[size, top_p is not None](
                weights, cache, slots.table(), slots.rows, key_data, temperature, exit_when_live, top_p
            )
            queue.pull_until(enough=self.sizes.slots[-1])  # prompts are made while the devices decode
            yield from finished
            finished = self._take(slots, to_host(chunk))
        yield from finished

    def _refill(self, weights: Params, queue: Queue, prefilled: Prefilled, slots: Slots, cache: Cache) -> Cache:
        """Gives the free slots to samples that wait, as long as there are both and pages for them."""
        while True:
            num_free = list(map(len, slots.free()))
            if chosen := prefilled.choose(queue, num_free, self.decoding.pad_id):
                tokens_BT, pages_BM, groups = chosen
                self.counts.update(prompts=len(groups), prefill_rows=len(tokens_BT))
                cache, routes = self._functions.prefill[tokens_BT.shape](weights, cache, tokens_BT, pages_BM)
                prefill = Prefill(routes)
                for row, group in groups.items():
                    group.prefill, group.row = prefill, row
            started, from_WZ, to_WZ = slots.fill(queue, self.chunk)
            if not started:
                return cache
            cache = self._functions.copy_pages(cache, from_WZ, to_WZ)

    def _exit_when_live(self, slots: Slots, size: int, any_waits: bool) -> int:
        """Returns how few live slots are worth leaving a chunk for: to refill the others, or to do without them."""
        if any_waits:
            return max(slots.num_live - self.sizes.inserted * self.sizes.shards, 0)
        smaller = self.sizes.fewer_slots(size)
        return min(smaller, slots.num_live - slots.excess(smaller)) if smaller else 0

    def _take(self, slots: Slots, chunk: Chunk) -> list[Sample]:
        """Adds what a chunk has drawn to the slots and the statistics, and returns the samples that it finished."""
        tokens = int(np.sum(chunk.drawn - slots.rows.drawn))
        finished = slots.take(chunk, self.end_of)
        self.counts.update(
            slot_steps=int(chunk.steps) * len(slots.rows.live),
            tokens=tokens,
            samples=len(finished),
            truncated=sum(sample.finish_reason == "length" for sample in finished),
            empty=sum(sample.finish_reason == "stop" and len(sample.token_ids) == 1 for sample in finished),
        )
        return finished
