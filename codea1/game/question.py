"""A programming question with its ground truth, which both players are asked about."""

import hashlib
import json
from dataclasses import dataclass

from codea1.game.signature import node_kinds
from codea1.values.entry_points import PROGRAMS, STDOUT_ANY_ORDER, STDOUT_TOKENS, TOLERANCE, class_and_method

_COMPARED = {  # how, where that is not as text
    STDOUT_TOKENS: (
        "White space and the case of letters make no difference, nor does one of "
        f"{TOLERANCE:g}, absolute or relative, between numbers with a decimal point."
    ),
    STDOUT_ANY_ORDER: "The order of lines makes no difference, nor does that of words in a line.",
}


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
    entry_point: str  # what is under test: the name of a function, `Class().method`, or `stdout`, a whole program's
    check_script: str | None = None  # defines check(candidate), the benchmark's own judge
    golden_tests: tuple[str, ...] = ()  # sources of assert statements
    mutants: tuple[str, ...] = ()  # whole programs, each with one known mistake
    data_source: str = ""  # the dataset's own tag, e.g. "mbppplus"
    preamble: str = ""  # source that runs before every program: what the dataset says is there
    checker: str = ""  # defines accepts(given, expected, printed): is what was printed right, if not as expected?

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
        text = json.dumps([self.entry_point, self.module(self.ground_truth)])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def form(self) -> str:
        """What a program for it is: a function, class or program."""
        if self.entry_point in PROGRAMS:
            return "program"
        return "class" if class_and_method(self.entry_point) else "function"

    @property
    def calling(self) -> str:
        """What who writes tests must know of calling the entry point; empty for what Python says itself."""
        if self.entry_point in PROGRAMS:
            all_of_it = f"`{self.entry_point}(text)` is all that the program prints when `text` is its standard input."
            return f"{all_of_it} {_COMPARED[self.entry_point]}" if self.entry_point in _COMPARED else all_of_it
        parameters, answer = node_kinds(self.ground_truth, self.entry_point)
        if any((answer, *parameters.values())):
            return "In tests, a linked list is a list, and a binary tree one in level order, None for a missing child."
        return ""

    def module(self, program: str) -> str:
        """Returns what the sandbox loads for a program, so that it defines the entry point as tests call it."""
        method = class_and_method(self.entry_point)
        if method:
            define, more = "define_method", (*method, *node_kinds(self.ground_truth, self.entry_point))
        elif self.entry_point in PROGRAMS:
            define, more = "define_stdout", ()
        elif self.preamble:
            define, more = "define", ()
        else:
            return program
        arguments = ", ".join(map(repr, (self.preamble, program, *more)))
        return f"from codea1.sandbox.child.entries import {define}\n{define}(globals(), {arguments})\n"
