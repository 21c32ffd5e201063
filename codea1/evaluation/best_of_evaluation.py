"""The evaluation of the programs that a Test LLM's tests choose, one of each question's."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from codea1.evaluation.attempts import Attempt, by_question
from codea1.evaluation.best_of_n import chosen, count_passes, stated_tests, suites
from codea1.evaluation.code_benchmark import CodeBenchmark
from codea1.evaluation.evaluation_folder import BEST_OF_N, EvaluationFolder
from codea1.evaluation.session import Evaluation
from codea1.runtime.errors import BadInput
from codea1.runtime.futures import run
from codea1.sandbox.host.grading import LOST, Grader, require_judged
from codea1.sandbox.host.pool import SandboxPool
from codea1.values.verdict import Verdict


class BestOfEvaluation:
    """Best-of-N among programs that are judged already; only the main host has a sandbox and the programs."""

    def __init__(
        self,
        evaluation: Evaluation,
        benchmark: CodeBenchmark,
        broken: Mapping[str, str],
        programs: EvaluationFolder | None,
        pool: SandboxPool | None,
    ) -> None:
        """`broken` questions are left out, with the reasons."""
        self._evaluation, self._benchmark, self._broken = evaluation, benchmark, broken
        self._programs, self._pool = programs, pool
        self._questions = [question for question in benchmark.questions if question.id not in broken]

    def choose(self) -> None:
        """Lets the tests choose one program of each question, and publishes how many of those are right.

        Raises BadInput where there is no program, and as `require_judged` does.
        """
        found = self._evaluation.hosts.of_main(self._found)
        name = f"{self._benchmark.name}_best_of_{min(map(len, found.values()))}"
        with self._evaluation.folder(name, self._settings, BEST_OF_N) as folder:
            self._write_suites(folder, found)
            with self._evaluation.hosts.agreed():
                if folder:
                    self._count(folder, found)
            if folder:
                metrics = {"pass_at_1": self._passes_of_chosen(folder)}
                ids = [question.id for question in self._benchmark.questions]
                self._evaluation.publish(name, metrics, ids, self._broken)

    def _found(self) -> dict[str, list[Attempt]]:
        found = by_question(self._programs.attempts_at({question.id for question in self._questions}))
        if not found:
            raise BadInput(f"there are no programs for {self._benchmark.name} to choose from.")
        return found

    def _settings(self) -> dict[str, Any]:
        asked = self._evaluation.asked
        of_test_llm = self._evaluation.settings_of_policy(asked.test_model, "test_")
        return {**self._programs.settings, **of_test_llm, "num_tests": asked.num_tests, "seed": asked.draw.seed}

    def _write_suites(self, folder: EvaluationFolder | None, found: Mapping[str, Sequence[Attempt]]) -> None:
        evaluation, asked = self._evaluation, self._evaluation.asked
        written = evaluation.hosts.of_main(lambda: set(folder.rows("suites")))
        programs = [attempt for attempts in found.values() for attempt in attempts if attempt.program]
        missing = sum((attempt.question_id, attempt.index) not in written for attempt in programs)
        if not missing:
            return
        drawn = suites(
            [question for question in self._questions if question.id in found],
            found,
            evaluation.policy("test", asked.test_model),
            evaluation.templates,
            asked.num_tests,
            sees_solution=evaluation.sees_solution,
            seed=asked.draw.seed,
            done=written,
        )
        with evaluation.shown("suites", missing) as seen:
            for key, text in drawn:
                if folder:
                    folder.add("suites", key, {"text": text})
                seen()
                missing -= 1
        if missing:
            evaluation.console.print(f"{missing} programs do not fit into the Test LLM's prompt and get no suite.")

    def _passes_of_chosen(self, folder: EvaluationFolder) -> list[float]:
        """For each question of the benchmark, whether the chosen program passes."""
        counts: dict[str, dict[int, int]] = {}
        for (id, index), row in folder.rows("choices").items():
            counts.setdefault(id, {})[index] = row["passed"]
        return [self._passes(question.id, counts.get(question.id, {})) for question in self._benchmark.questions]

    def _count(self, folder: EvaluationFolder, found: Mapping[str, Sequence[Attempt]]) -> None:
        """Keeps how many tests each program passes; not of questions on whose programs the sandbox failed."""
        grader, running = Grader(self._pool), {}
        for question in self._questions:
            keys = [(question.id, attempt.index) for attempt in found.get(question.id, ())]
            if all(key in folder.rows("choices") for key in keys):
                continue
            texts = [folder.rows("suites")[key]["text"] for key in keys if key in folder.rows("suites")]
            tests = stated_tests(texts, question.entry_point, self._evaluation.asked.num_tests)
            running[question.id] = len(tests), run(count_passes(found[question.id], tests, grader))
        lost, reasons = 0, [""] * len(folder.rows("choices"))
        with self._evaluation.shown("choices", len(running)) as seen:
            for id, (num_tests, future) in running.items():
                passed = future.result()
                reasons += [LOST if count is None else "" for count in passed]
                if None in passed:
                    lost += 1
                else:
                    for attempt, count in zip(found[id], passed, strict=True):
                        folder.add("choices", (id, attempt.index), {"passed": count, "tests": num_tests})
                seen()
        require_judged(reasons, "programs to choose from")
        if lost:
            self._evaluation.console.print(
                f"the sandbox failed on programs of {lost} questions: these are left out until this command runs again."
            )

    def _passes(self, question_id: str, counts: Mapping[int, int]) -> float:
        """Whether the chosen one of a question's attempts passes; `counts` is how many tests each passes, by index."""
        if question_id in self._broken or not counts:
            return math.nan
        result = self._programs.rows("results").get((question_id, chosen(counts)))
        return math.nan if result is None else float(result["verdict"] == Verdict.PASS.value)
