"""A policy: weights that answer, with their tokenizer and engine."""

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence

from codea1.data.tokenizer import ChatTokenizer
from codea1.game.answers import end_of_asserts, end_of_block
from codea1.game.prompts import Message
from codea1.models.qwen2 import Params
from codea1.players.functions import PlayerFunctions
from codea1.rollout.engine import Request, Sample


class Policy:
    """Answers chats. All hosts make the same calls."""

    def __init__(
        self, functions: PlayerFunctions, tokenizer: ChatTokenizer, params: Params, seed: int = 0, max_asserts: int = 0
    ) -> None:
        """Takes what answers: functions, the tokenizer and the weights, and the seed of what it draws.

        Answers that end with their first code block also end after `max_asserts` asserts, unless that is 0.
        """
        self.name, self.tokenizer, self.functions = functions.name, tokenizer, functions
        self._seed, self._config, self._params = seed, functions.config, params

        if self._config.stop_at_block:
            self._ticks = frozenset(id for token, id in tokenizer.vocabulary.items() if "`" in token)
            self._max_asserts = max_asserts
            functions.engine.end_of = self._end_of_answer

    @property
    def params(self) -> Params:
        """The weights that it answers with."""
        return self._params

    def prompt_ids(self, messages: Sequence[Message], prefill: str = "") -> tuple[int, ...]:
        """Returns the token ids of a chat, with the opening of the answer and what it begins with."""
        return (*self.tokenizer.encode_chat(messages), *(self.tokenizer.encode(prefill) if prefill else ()))

    def fits(self, prompt_ids: Sequence[int]) -> bool:
        """Returns whether the prompt is short enough."""
        return len(prompt_ids) <= self._config.max_prompt_length

    def generate(
        self,
        requests: Iterable[Request],
        *,
        stream: str,
        step: int = 0,
        seed: int | None = None,
        temperature: float | None = None,
        top_p: float = 1.0,
    ) -> Iterator[Sample]:
        """Returns an iterator over samples as they finish; keys are (seed, stream, step, question id, index).

        `seed` and `temperature` are those of the config where they are None; a temperature of 0 gives greedy answers.
        """
        temperature = self._config.temperature if temperature is None else temperature
        return self.functions.engine.generate(
            self.params,
            requests,
            seed=self._seed if seed is None else seed,
            stream=stream,
            step=step,
            temperature=temperature,
            top_p=top_p if top_p < 1 and temperature > 0 else None,
        )

    def _end_of_answer(self, ids: list[int], seen: int) -> int:
        """Returns how many tokens an answer has up to where it ends; 0 where it goes on.

        The first `seen` ids do not hold such an end.
        """
        if not self._max_asserts and self._ticks.isdisjoint(ids[seen:]):
            return 0
        text = self.tokenizer.decode(ids)
        end = end_of_block(text)
        if self._max_asserts:
            end = end_of_asserts(text[: end or None], self._max_asserts) or end
        return end and bisect.bisect_left(range(len(ids) + 1), end, key=lambda n: len(self.tokenizer.decode(ids[:n])))

    def call_between_chunks(self, function: Callable[[], None]) -> None:
        """Has `function` called every few tokens of whatever is generated from now on; what it raises ends that.

        All hosts call it equally often.
        """
        self.functions.engine.between_chunks = function
