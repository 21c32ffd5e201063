"""A programming question with its ground truth, which both players are asked about."""

import hashlib
import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A row of a dataset, once read.

    Code-A1 itself uses no golden tests: they are the reward of the golden-tests baseline. Check script, golden tests
    and mutants are empty where the dataset has none.
    """

    id: str
    prompt: tuple[dict[str, str], ...] | None  # chat messages the dataset brings for the Code LLM; None: use a template
    problem: str  # what the Code LLM is asked, as code or text
    description: str  # what the Test LLM is shown of the problem
    ground_truth: str  # whole program that defines entry_point
    entry_point: str  # name of the function under test
    check_script: str | None = None  # defines check(candidate), the benchmark's own judge
    golden_tests: tuple[str, ...] = ()  # sources of assert statements
    mutants: tuple[str, ...] = ()  # whole programs, each with one known mistake
    data_source: str = ""  # the dataset's own tag, e.g. "mbppplus"

    @property
    def paid_mutants(self) -> tuple[str, ...]:
        """The mutants that rewards may read: every other one."""
        return self.mutants[::2]

    @property
    def hidden_mutants(self) -> tuple[str, ...]:
        """The mutants that no reward reads, so that they tell what the rewards are worth."""
        return self.mutants[1::2]

    @property
    def ground_truth_digest(self) -> str:
        """Digest of the ground truth and its entry point: where it is the same, so are the answers to calls."""
        text = json.dumps([self.entry_point, self.ground_truth])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
