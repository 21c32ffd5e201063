"""Tokens that a guessing decode step draws, on a run's own samples, by the rule of `decoding.guess_next` and by others.

  python -m bench.guesses RUN... [--guesses=3]

A step draws what it had guessed right, and one token more. The rule that is used looks for the last three tokens where
they came last before, for two or one where three never did. Beside it: three alone; and in the other answers to the
prompt, as if those were there already.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence

from codea1.rollout.decoding import NGRAM
from codea1.runs.folder import RunFolder
from codea1.runs.samples import Samples

Tokens = Sequence[int]


class Lookup:
    """Where each sequence of up to `longest` tokens ended last, in what is known."""

    def __init__(self, longest: int) -> None:
        self._longest, self._ends, self.known = longest, dict[tuple[int, ...], int](), list[int]()

    def add(self, token: int) -> None:
        """Adds a token; what ends with it is found from the next one on."""
        for length in range(1, self._longest + 1):
            if len(self.known) >= length:
                self._ends[tuple(self.known[-length:])] = len(self.known) - 1
        self.known.append(token)

    def guess(self, tokens: Tokens, lengths: Sequence[int], count: int) -> list[int]:
        """Guesses what follows `tokens`: what followed their last ones, the first of `lengths` that came before."""
        for length in lengths:
            found = self._ends.get(tuple(tokens[-length:]))
            if found is not None:
                period = max(len(self.known) - 1 - found, 1)  # it goes round where that ends with what is known
                return [self.known[found + 1 + nth % period] for nth in range(count)]
        return []


def num_steps(prompt: Tokens, response: Tokens, count: int, lengths: Sequence[int], others: Sequence[Tokens]) -> int:
    """Returns in how many steps a response is drawn whose prompt, and other answers to it, are known."""
    own, siblings = Lookup(max(lengths)), Lookup(max(lengths))
    for each in others:
        for token in each:
            siblings.add(token)
    for token in prompt:
        own.add(token)
    steps = drawn = 0
    while drawn < len(response):
        guessed = own.guess(own.known, lengths, count) or siblings.guess(own.known, lengths, count)
        right = 0
        # The last token is always one that is drawn: what a step guesses behind it is none of the answer.
        while right < min(len(guessed), len(response) - drawn - 1) and guessed[right] == response[drawn + right]:
            right += 1
        for token in response[drawn : drawn + right + 1]:
            own.add(token)
        drawn, steps = drawn + right + 1, steps + 1
    return steps


def groups(folder: str, role: str) -> Iterator[list[tuple[Tokens, Tokens]]]:
    """Yields prompt and response of the samples of a run that have one prompt in one step."""
    samples = Samples(RunFolder.existing(folder))
    for step in samples.steps():
        found = defaultdict(list)
        for row in samples.read(step):
            if row["player"] == role:
                found[tuple(row["prompt_ids"])].append((row["prompt_ids"], row["token_ids"]))
        yield from found.values()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--guesses", type=int, default=3)
    asked = parser.parse_args()
    back_off = range(NGRAM, 0, -1)
    rules = {
        "three tokens alone": ([NGRAM], False),
        "as used": (back_off, False),
        "three, and in the group": ([NGRAM], True),
        "as used, and in the group": (back_off, True),
    }
    print(f"tokens a step with {asked.guesses} guesses: {', '.join(rules)}")
    for folder in asked.runs:
        for role in ("code", "test"):
            steps, tokens, answers = dict.fromkeys(rules, 0), 0, 0
            for group in groups(folder, role):
                for index, (prompt, response) in enumerate(group):
                    others = [other for nth, (_, other) in enumerate(group) if nth != index]
                    for name, (lengths, shared) in rules.items():
                        steps[name] += num_steps(prompt, response, asked.guesses, lengths, others if shared else ())
                    tokens, answers = tokens + len(response), answers + 1
            if answers:  # golden tests have no Test LLM
                drawn = ", ".join(f"{tokens / count:.2f}" for count in steps.values())
                print(f"{folder}, {role}: {drawn} ({answers} answers of {tokens / answers:.0f} tokens)")


if __name__ == "__main__":
    main()
