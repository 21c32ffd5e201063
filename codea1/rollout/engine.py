"""Generation: requests in, samples out.

Requests are cut into batches of a few static shapes, each batch is one compiled program, and samples come back as
batches finish. What a sample says depends on the parameters, the prompt and its own keys; not on the batch it was in.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from codea1.errors import BadInput
from codea1.models import qwen2
from codea1.models.qwen2 import Params, Qwen2Config
from codea1.rollout import decoding, sampling
from codea1.sharding import ROLLOUT_RULES, param_shardings, to_host


@dataclass(frozen=True)
class Request:
    """Samples first_sample .. first_sample + num_samples - 1 of one prompt.

    `question_id` is whatever tells this prompt's draws from those of every other prompt of the step.
    """

    question_id: str
    prompt_ids: tuple[int, ...]
    first_sample: int
    num_samples: int


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
class _Draw:
    """One row of a batch: sample `index` of a request."""

    request: Request
    index: int


class Engine:
    """Draws samples from a Qwen2 policy on one mesh.

    At most `slots` samples decode at once; a smaller rest runs in a batch of half, a quarter or an eighth of the slots,
    and so do the prefills of their prompts. Prompts are laid out in the shortest of `prompt_lengths` and
    `max_prompt_length` that holds them. Every size is compiled when it first occurs. Parameters are cast to the dtype
    of the model's activations for generation.
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
    ) -> None:
        self._row_multiple = mesh.shape["replica"] * mesh.shape["fsdp"]
        if slots % self._row_multiple:
            raise BadInput(f"rollout slots {slots} must be a multiple of replica x fsdp, which is {self._row_multiple}")
        self._slots = slots
        self._prompt_lengths = sorted({*prompt_lengths, max_prompt_length})
        self._pad_id = pad_id
        self._publish = _make_publish(config, mesh)
        static = decoding.DecodingConfig(config, max_response_length, tuple(stop_ids), pad_id)
        self._prefill, self._fan_out, self._decode = _make_programs(static, graphdef, mesh)

    def generate(
        self, params: Params, requests: Iterable[Request], *, seed: int, player: str, step: int, temperature: float
    ) -> Iterator[Sample]:
        """Yields the samples of all requests, those of short prompts first; greedy when temperature is 0.

        Draws are functions of (seed, player, step, question_id, sample index, position in the response) alone.
        Every process of a multi-process run must make the same call and exhaust the iterator.
        Raises ValueError, before anything runs, for a prompt that is empty or longer than max_prompt_length and for a
        negative temperature.
        """
        requests = list(requests)
        for request in requests:
            if not 0 < len(request.prompt_ids) <= self._prompt_lengths[-1]:
                raise ValueError(
                    f"the prompt of question {request.question_id!r} has {len(request.prompt_ids)} tokens, "
                    f"it must have 1 to {self._prompt_lengths[-1]}"
                )
        if temperature < 0:
            raise ValueError(f"temperature is {temperature}, it must not be negative")
        key_data = np.asarray(jax.random.key_data(sampling.phase_key(seed, player, step)))
        return self._run(self._publish(params), self._batches(requests), key_data, np.float32(temperature))

    def _run(
        self, params: Params, batches: Iterator[tuple[int, list[_Draw]]], key_data: np.ndarray, temperature: np.float32
    ) -> Iterator[Sample]:
        for prompt_length, draws in batches:
            prompts = list(dict.fromkeys(draw.request.prompt_ids for draw in draws))
            contexts = self._prefill(params, *self._prompt_arrays(prompts, prompt_length))
            prompt_rows, rows = self._row_arrays(prompts, draws)
            contexts = self._fan_out(contexts, prompt_rows)
            responses, _ = self._decode(params, contexts, rows, key_data, temperature)
            yield from _samples(draws, to_host(responses))

    def _batches(self, requests: list[Request]) -> Iterator[tuple[int, list[_Draw]]]:
        """Draws in batches of at most `slots` rows, with the static prompt length of each batch."""
        by_length: dict[int, list[_Draw]] = {length: [] for length in self._prompt_lengths}
        for request in requests:
            length = next(length for length in self._prompt_lengths if length >= len(request.prompt_ids))
            indices = range(request.first_sample, request.first_sample + request.num_samples)
            by_length[length].extend(_Draw(request, index) for index in indices)
        for length, draws in by_length.items():
            for start in range(0, len(draws), self._slots):
                yield length, draws[start : start + self._slots]

    def _prompt_arrays(self, prompts: list[tuple[int, ...]], length: int) -> tuple[np.ndarray, np.ndarray]:
        num_rows = self._static_size(len(prompts))
        tokens = np.full((num_rows, length), self._pad_id, np.int32)
        lengths = np.ones(num_rows, np.int32)
        for row, prompt_ids in enumerate(prompts):
            tokens[row, : len(prompt_ids)] = prompt_ids
            lengths[row] = len(prompt_ids)
        return tokens, lengths

    def _row_arrays(self, prompts: list[tuple[int, ...]], draws: list[_Draw]) -> tuple[np.ndarray, decoding.Rows]:
        """Which prompt each row continues, and whose sample it is."""
        row_of_prompt = {prompt_ids: row for row, prompt_ids in enumerate(prompts)}
        num_rows = self._static_size(len(draws))
        filler = [0] * (num_rows - len(draws))
        hashes = [sampling.stable_hash(draw.request.question_id) for draw in draws]
        rows = decoding.Rows(
            question_hash=np.array(hashes + filler, np.uint32),
            sample_index=np.array([draw.index for draw in draws] + filler, np.int32),
            live=np.arange(num_rows) < len(draws),
        )
        return np.array([row_of_prompt[draw.request.prompt_ids] for draw in draws] + filler, np.int32), rows

    def _static_size(self, count: int) -> int:
        """The smallest of slots, slots / 2, slots / 4, slots / 8 that holds `count` and that the mesh cuts evenly."""
        sizes = [self._slots // parts for parts in (1, 2, 4, 8) if self._slots % (parts * self._row_multiple) == 0]
        return min(size for size in sizes if size >= count)


@functools.cache
def _make_publish(config: Qwen2Config, mesh: Mesh) -> Callable[[Params], Params]:
    """Compiled copy of training parameters to the layout and dtype of generation."""
    _, abstract_params = qwen2.abstract(config)
    return jax.jit(
        lambda params: jax.tree.map(lambda p: p.astype(config.dtype), params),
        out_shardings=param_shardings(abstract_params, mesh, ROLLOUT_RULES),
    )


@functools.cache
def _make_programs(config: decoding.DecodingConfig, graphdef: nnx.GraphDef, mesh: Mesh) -> tuple[Callable, ...]:
    """Compiled prefill, fan_out and decode, shared by all engines that would compile the same."""
    decode = jax.jit(
        partial(decoding.decode, config, graphdef),
        donate_argnames="contexts",
        # Every process reads every response.
        out_shardings=(NamedSharding(mesh, PartitionSpec()), None),
    )
    return jax.jit(partial(decoding.prefill, config, graphdef)), jax.jit(partial(decoding.fan_out, config)), decode


def _samples(draws: list[_Draw], responses: decoding.Responses) -> Iterator[Sample]:
    for row, draw in enumerate(draws):
        length = responses.lengths[row]
        yield Sample(
            question_id=draw.request.question_id,
            index=draw.index,
            prompt_ids=draw.request.prompt_ids,
            token_ids=tuple(responses.tokens[row, :length].tolist()),
            log_probs=responses.log_probs[row, :length],
            finish_reason="stop" if responses.stopped[row] else "length",
        )
