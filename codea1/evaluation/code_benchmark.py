"""What every benchmark of the Code LLM is: questions, how they are asked, and a judge of programs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future

from codea1.game.answers import extract_program
from codea1.game.prompts import Message, PromptTemplates, code_messages
from codea1.game.question import Question
from codea1.sandbox.host.results import ScriptRun


class CodeBenchmark(ABC):
    """Questions with ground truths that a program must agree with."""

    name: str  # as evaluations are named after it
    questions: Sequence[Question]
    prefill = ""  # what the assistant's answer begins with
    stops: Sequence[str] = ()  # each ends an answer where it first stands, and is not part of it

    def messages(self, question: Question, templates: PromptTemplates) -> list[Message]:
        """The chat that asks for a program."""
        return code_messages(templates, question)

    def program(self, question: Question, answer: str) -> str:
        """The program in what a model said after `prefill`."""
        return extract_program(answer).source

    def continued(self, question: Question, completion: str) -> str:
        """The program that a completion of the question's code makes."""
        return question.problem + completion

    @abstractmethod
    def judge(self, question: Question, program: str) -> Future[ScriptRun]:
        """Runs a program: PASS, or why it does not."""

    def missing_modules(self) -> dict[str, list[str]]:
        """Modules that questions need and this Python does not have, by question."""
        return {}
