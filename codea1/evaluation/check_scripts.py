"""HumanEval+ and MBPP+ as the Code-A1 reference judges them: by each row's own check script.

Against EvalPlus's own judgement (`codea1.evaluation.evalplus`): an empty list counts as one of floats, types and
lengths are not compared, a script has one time limit, and three scripts check nothing. No program passes that of
HumanEval/32.
"""

from collections.abc import Sequence
from concurrent.futures import Future

from codea1.evaluation.code_benchmark import CodeBenchmark
from codea1.game.question import Question
from codea1.runtime.errors import BadInput
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.host.results import ScriptRun


class CheckScripts(CodeBenchmark):
    """Questions with check scripts."""

    def __init__(self, name: str, questions: Sequence[Question], pool: SandboxPool) -> None:
        """Raises BadInput where there is no question, or one without a script."""
        if not questions:
            raise BadInput(f"the file holds no question of {name}.")
        for question in questions:
            if not question.check_script:
                raise BadInput(f"question {question.id} has no check script; --semantics=evalplus needs none.")
        self.name, self.questions, self._pool = name, questions, pool

    def judge(self, question: Question, program: str) -> Future[ScriptRun]:
        return self._pool.run_script(question.check_script, program, question.entry_point)
