"""The time of a training step on a slice: the run's own scheduler and batching, on a clock that its functions move.

The lengths of prompts and responses are given; what each call then takes follows from the compiler's cycles and bytes
of its function, see `cost`, and from the pages and blocks that attention's kernels read, by their schedules, see
`kernels`. The host's work between chunks is the run's own, and is measured while it is done. The sandbox, what the
host does with finished samples, and what overlaps are not in it.
"""

import inspect
import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from codea1.config import trained_per_question
from codea1.game.methods import METHODS
from codea1.lab.aot.compilation import CompilerResult
from codea1.lab.aot.kernels import AttentionShape, BundlesByShape, KernelTimes
from codea1.lab.aot.roofline import ASSUMED, counts
from codea1.lab.aot.work import Chip
from codea1.learn.batch import TrainSample, micro_batches, mini_batches, repeated_prompts, rows_of
from codea1.players.functions import PlayerFunctions, has_reference
from codea1.rollout.decoding import Chunk, Rows
from codea1.rollout.scheduler import Request
from codea1.runs.folder import RunFolder
from codea1.runs.samples import Samples
from codea1.runtime.compilations import Function
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import stable_hash

# Tokens that a guessing step draws, by role: 1.26 to 1.29 and 1.89 to 2.01 on the answers of Qwen2.5-Coder-0.5B that
# results/study_real holds, by bench/guesses.py of commit 767ef1a.
DRAWN_WITH_GUESSES = {"code": 1.27, "test": 1.9}

Results = Mapping[str, CompilerResult]  # of a player's functions, by name


@dataclass(frozen=True)
class SampledLengths:
    """Tokens of one role's prompts and responses: responses [prompts, samples of each]."""

    prompts: np.ndarray
    responses: np.ndarray


@dataclass
class Clock:
    """Seconds that passed, by phase and by what they were priced from: see `Cost.seconds`."""

    chip: Chip
    phases: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # by phase

    def add(self, phase: str, result: CompilerResult, turns: float = 1.0, attention: float = 0.0) -> None:
        """Lets one call of a function pass, whose outermost loop makes so many turns.

        Attention's kernels take so many seconds of it, which are not in the function's cost.
        """
        cost = result.cost + result.turn * (turns - 1)
        self.calls[phase] += 1
        for kind, seconds in cost.seconds(self.chip).items():
            self.phases[phase][kind] += seconds
        self.phases[phase]["kernels"] += attention

    def seconds(self, phase: str = "") -> float:
        """Returns the seconds of one phase, or of all."""
        return sum(sum(kinds.values()) for name, kinds in self.phases.items() if phase in ("", name))


def lognormal(
    role: str,
    config: ConfigDict,
    means: tuple[float, float],
    of_prompts: float = 0.4,
    of_responses: float = 0.6,
    truncated: float = 0.002,
) -> SampledLengths:
    """Draws the lengths of a step about the means of prompts and of responses.

    Their logarithms have these deviations; a share of responses is `truncated`, and reaches the limit.
    """
    rng = np.random.default_rng(0)
    player, (groups, samples) = config[METHODS[config.method].roles[role]], counts(role, config)

    def draw(mean: float, deviation: float, limit: int, *shape: int) -> np.ndarray:
        drawn = rng.lognormal(np.log(mean) - deviation**2 / 2, deviation, shape)
        return np.clip(np.round(drawn), 1, limit).astype(int)

    prompts = draw(means[0], of_prompts, player.max_prompt_length, groups)
    responses = draw(means[1], of_responses, player.max_response_length, groups, samples)
    responses[rng.random(responses.shape) < truncated] = player.max_response_length
    return SampledLengths(prompts, responses)


def drawn_lengths(source: str, role: str, config: ConfigDict) -> SampledLengths:
    """Draws the lengths of a step of a role.

    Args:
      source: "lognormal" about the means of the roofline, with the other numbers of `lognormal` or without,
        "lognormal:0.4,0.6,0.002"; or the folder of a run.
      role: "code" or "test".
      config: whose counts and limits there are.

    Raises BadInput: it is neither, or the run has no samples of the role.
    """
    kind, _, numbers = source.partition(":")
    if kind != "lognormal":
        return of_run(role, config, RunFolder.existing(source))
    means = ASSUMED[role]
    try:
        return lognormal(role, config, (means.prompt, means.response), *map(float, filter(None, numbers.split(","))))
    except (ValueError, TypeError):
        raise BadInput(f"--lengths={source} is not lognormal:PROMPTS,RESPONSES,TRUNCATED or a run's folder.") from None


def of_run(role: str, config: ConfigDict, run: RunFolder) -> SampledLengths:
    """Draws the lengths of a step from the samples of a run's last step, its groups and in each the responses.

    Raises BadInput: the run has no samples of the role.
    """
    samples = Samples(run)
    groups: dict[tuple[str, int], tuple[int, list[int]]] = {}
    for row in samples.read(max(samples.steps(), default=0)):
        if row["player"] == role:
            key = row["question_id"], row["solution"] if role == "test" else 0
            groups.setdefault(key, (len(row["prompt_ids"]), []))[1].append(len(row["token_ids"]))
    if not groups:
        raise BadInput(f"{run.path} holds no samples of the {role} player.")
    rng = np.random.default_rng(0)
    player, (count, of_each) = config[METHODS[config.method].roles[role]], counts(role, config)
    chosen = [list(groups.values())[index] for index in rng.integers(0, len(groups), count)]
    prompts = np.array([prompt for prompt, _ in chosen])
    responses = np.array([rng.choice(lengths, of_each) for _, lengths in chosen])
    return SampledLengths(
        np.clip(prompts, 1, player.max_prompt_length), np.clip(responses, 1, player.max_response_length)
    )


def simulate_generation(
    own: PlayerFunctions,
    results: Results,
    kernels: KernelTimes,
    lengths: Mapping[str, SampledLengths],
    clock: Clock,
    role: str,
) -> None:
    """Samples a role's responses with the engine's own scheduler, and adds what it calls to the clock.

    What the engine's own code takes meanwhile, on this processor, is the phase "host".
    """
    prompts, responses = lengths[role].prompts, lengths[role].responses
    engine, ids = own.engine, [f"{role} {number}" for number in range(len(prompts))]
    planned = {stable_hash(id): each for id, each in zip(ids, responses, strict=True)}
    calls = _FakeCalls(partial(_passed, clock, results, role), planned, own, kernels, DRAWN_WITH_GUESSES[role])
    requests = [
        # Every prompt is another: those that are equal are prefilled once.
        Request(id, (number, *[0] * (int(length) - 1)), first_sample=0, num_samples=responses.shape[1])
        for number, (id, length) in enumerate(zip(ids, prompts, strict=True))
    ]
    sampled = engine.calling(calls.instead_of).generate({}, requests, seed=0, stream=role, step=0, temperature=1.0)
    started = time.process_time() - calls.seconds  # what begins the generation is compiled here, and on a pod has been
    drawn = sum(len(sample.token_ids) for sample in sampled)
    clock.phases[f"{role}: host"]["host"] = time.process_time() - started - calls.seconds
    if drawn != responses.sum():
        raise RuntimeError(f"{drawn} tokens were drawn of {responses.sum()}")


def _passed(
    clock: Clock,
    results: Results,
    role: str,
    kind: str,
    name: str,
    turns: float,
    attention: float,
) -> None:
    if name not in results:
        raise BadInput(f"a step calls {name}, which was not compiled: its time needs --functions=all.")
    phase = kind if kind in ("decode", "publish") else "prefill"
    clock.add(f"{role}: {phase}", results[name], turns, attention)


class _FakeCalls:
    """Compiled functions that compute nothing: each lets its time pass, and decoding ends samples as planned."""

    def __init__(
        self,
        passed: Callable[..., None],
        planned: Mapping[int, np.ndarray],
        own: PlayerFunctions,
        kernels: KernelTimes,
        drawn_with_guesses: float,
    ) -> None:
        self._passed, self._planned, self._engine, self._kernels = passed, planned, own.engine, kernels
        self._drawn_with_guesses = drawn_with_guesses
        self.seconds = 0.0  # that the calls took here

    def instead_of(self, function: Function) -> Callable[..., Any]:
        """Returns what stands for a function."""
        kind, signature = function.kind, inspect.signature(function.jitted)

        def call(*arguments: Any) -> Any:
            started = time.process_time()
            named = signature.bind(*function.static, *arguments).arguments
            turns, attention = 1.0, 0.0
            result: Any = None
            if kind == "decode":
                rows, guesses = named["rows"], named["known_BS"] is not None
                chunk = self._decode(rows, int(named["exit_when_live"]), guesses)
                turns, result = float(chunk.steps), (named["cache"], chunk)
                positions_B = (rows.position + (chunk.drawn - rows.drawn) // 2) * rows.live
                positions_WS = positions_B.reshape(self._engine.sizes.shards, -1)
                queries = 1 + self._engine.guesses * guesses
                attention = turns * self._kernels.decode(named["table"], positions_WS, queries)
            elif kind == "copy_pages":  # a loop over those of a shard
                turns = float((named["to_WZ"] < np.iinfo(np.int32).max).sum(axis=1).max())
            elif kind == "prefill":
                attention = self._kernels.whole_rows(named["tokens_BT"].shape)
            elif kind == "publish":
                result = {}
            self._passed(kind, function.name, turns, attention)
            self.seconds += time.process_time() - started
            return result

        return call

    def _decode(self, rows: Rows, exit_when_live: int, guesses: bool) -> Chunk:
        left_B = np.array(
            [
                self._planned[int(question)][sample] - drawn if live else 0
                for question, sample, drawn, live in zip(
                    rows.question_hash, rows.sample_index, rows.drawn, rows.live, strict=True
                )
            ]
        )
        descending, decoding = np.sort(left_B[rows.live])[::-1], self._engine.decoding
        columns, drawn_a_step = decoding.columns(guesses), self._drawn_with_guesses if guesses else 1.0
        # The chunk ends when no more than that many are left, or one slot has no room: one whose guesses are all right.
        most = int(columns // (1 + decoding.guesses * guesses) * drawn_a_step)
        longest = min(most, int(descending[exit_when_live])) if exit_when_live < len(descending) else 0
        steps = math.ceil(longest / drawn_a_step)
        if fixed := decoding.fixed_steps(guesses):
            steps, longest = fixed, most
        new_B = np.minimum(left_B, longest)
        shape = (len(rows.live), columns)
        is_last_B = rows.live & (left_B <= longest)
        stopped_B = is_last_B & (rows.drawn + new_B < rows.limit)
        return Chunk(
            np.zeros(shape, np.int32),
            np.zeros(shape, np.float32),
            rows.drawn + new_B.astype(np.int32),
            stopped_B,
            np.int32(steps),
        )


def simulate_learning(
    own: PlayerFunctions,
    results: Results,
    kernels: KernelTimes,
    lengths: Mapping[str, SampledLengths],
    clock: Clock,
    config: ConfigDict,
) -> int:
    """Adds a policy's update on the samples of all its roles to the clock; returns the tokens that it trains on."""
    section, rng, numbers = config[own.name], np.random.default_rng(0), itertools.count()
    chosen: list[TrainSample] = []
    for role in METHODS[config.method].roles_of(own.name):
        prompts, responses = lengths[role].prompts.tolist(), lengths[role].responses.tolist()
        groups = [
            # Every prompt is another.
            [TrainSample((number, *[0] * (prompt - 1)), range(response), np.zeros(response)) for response in row]
            for prompt, row, number in zip(prompts, responses, numbers, strict=False)
        ]
        trained = config.questions_per_step * trained_per_question(config)[role]
        chosen += [sample for index in rng.permutation(len(groups)) for sample in groups[index]][:trained]
    share = {"share_prompts": section.share_prompts}
    parts = mini_batches(chosen, section.mini_batches, rng, **share)
    for nth, part in enumerate(parts):
        batches = micro_batches(
            part,
            own.row_shapes,
            aggregation=section.aggregation,
            max_response_length=section.max_response_length,
            pad_id=0,
            **share,
        )
        scores = (section.old_log_probs == "trainer" and nth > 0) + has_reference(section)
        of_critic = ("critic ",) if own.critic else ()
        for learner in ("", *of_critic):
            for each in ("zeros", "apply"):
                clock.add(f"{own.name}: update", results[f"{learner}{each}"])
        for batch in batches:
            size, rows = rows_of(batch.tokens_BT), (batch.tokens_BT.shape, batch.packing)
            scored = kernels.whole_rows(*rows)
            for kind in (*["score"] * scores, *(["values"] if own.critic else [])):
                clock.add(f"{own.name}: log-probs", results[f"{kind} {size}"], attention=scored)
            updated = kernels.whole_rows(*rows, forward=1 if own.model.remat == "none" else 2, backward=1)
            for learner in ("", *of_critic):
                clock.add(f"{own.name}: update", results[f"{learner}accumulate {size}"], attention=updated)
    return sum(sample.length for sample in chosen) - sum(repeated_prompts(parts, **share))


def simulate(
    config: ConfigDict,
    players: Mapping[str, PlayerFunctions],
    results: Mapping[str, Results],
    lengths: Mapping[str, SampledLengths],
    chip: Chip,
    bundles: Callable[[Sequence[AttentionShape]], BundlesByShape],
) -> tuple[Clock, dict[str, int]]:
    """Returns the clock after one training step, and how many tokens each policy trained on.

    Args:
      config: of the run.
      players: as `jobs.plan` has them.
      results: of all their functions, by player.
      lengths: by role.
      chip: of the slice.
      bundles: see `kernels.bundles`.

    Raises BadInput: a function that the step calls was not compiled.
    """
    clock, trained = Clock(chip), {}
    for name, own in players.items():
        given = own, results[name], KernelTimes(own, chip, bundles), lengths, clock
        for role in METHODS[config.method].roles_of(name):
            simulate_generation(*given, role)
        if own.learns:
            trained[name] = simulate_learning(*given, config)
    return clock, trained
