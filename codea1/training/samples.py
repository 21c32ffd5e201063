"""Which samples of a round train a player, from the round itself or from the rows that were saved of it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from codea1.game.round import Round, SolutionRecord, SuiteRecord
from codea1.learn.batch import TrainSample
from codea1.players.player import Player
from codea1.runtime.errors import BadInput


def trains(record: SolutionRecord | SuiteRecord, player: Player) -> bool:
    """Whether a sample is selected, has a reward and ended as its player wants it to."""
    return record.selected and not record.masked and player.learns_from(record.sample.finish_reason)


def of_round(round_: Round, player: Player) -> list[TrainSample]:
    """What a player learns from, of all roles that it plays."""
    return [_of_record(record) for role, record in _by_role(round_) if role in player.roles and trains(record, player)]


def of_rows(rows: Iterable[Mapping[str, Any]], player: Player) -> list[TrainSample]:
    """The same, bit for bit and in the same order, from the rows of `codea1.game.round_views`.

    Raises BadInput: a row is not one of those.
    """
    samples = []
    for number, row in enumerate(rows, start=1):
        try:
            is_selected = row["player"] in player.roles and row["selected"]
            if is_selected and row["reward"] is not None and player.learns_from(row["finish_reason"]):
                samples.append(_of_row(row))
        except KeyError as error:
            raise BadInput(f"row {number} of the samples: {error} is missing.") from None
    return samples


def _by_role(round_: Round) -> Iterator[tuple[str, SolutionRecord | SuiteRecord]]:
    """Every sample with the role that it was sampled in, each solution followed by its suites."""
    for solution in round_.solutions:
        yield "code", solution
        yield from (("test", suite) for suite in solution.suites)


def _of_record(record: SolutionRecord | SuiteRecord) -> TrainSample:
    sample = record.sample
    return TrainSample(sample.prompt_ids, sample.token_ids, sample.log_probs, record.advantage, record.shaped_reward)


def _of_row(row: Mapping[str, Any]) -> TrainSample:
    return TrainSample(row["prompt_ids"], row["token_ids"], row["log_probs"], row["advantage"], row["shaped_reward"])
