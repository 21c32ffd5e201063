"""The benchmarks of the Code LLM by name, and questions with check scripts."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from codea1.data.loader import load_questions
from codea1.evaluation.benchmark import CodeBenchmark, require_file
from codea1.evaluation.bigcodebench import WHERE_FROM as BIGCODEBENCH_FROM
from codea1.evaluation.bigcodebench import BigCodeBench, load_tasks
from codea1.evaluation.evalplus import WHERE_FROM as EVALPLUS_FROM
from codea1.evaluation.evalplus import EvalPlus, load_problems
from codea1.game.question import Question
from codea1.runtime.errors import BadInput
from codea1.sandbox.host import ScriptRun
from codea1.sandbox.host.pool import SandboxPool


class CheckScripts(CodeBenchmark):
    """HumanEval+ and MBPP+ as the Code-A1 reference judges them: by each row's own check script.

    Against EvalPlus's own judgement (`codea1.evaluation.evalplus`): an empty list counts as one of floats, types and
    lengths are not compared, a script has one time limit, and three scripts check nothing. No program passes that of
    HumanEval/32.
    """

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


_BIGCODEBENCH = [f"bigcodebench_{split}{subset}" for split in ("complete", "instruct") for subset in ("", "_hard")]
WHERE_FROM: Mapping[str, str] = {**EVALPLUS_FROM, **dict.fromkeys(_BIGCODEBENCH, BIGCODEBENCH_FROM)}
SEMANTICS = ("evalplus", "scripts")


def load_benchmark(name: str, path: str, semantics: str, pool: SandboxPool) -> CodeBenchmark:
    """Loads one of WHERE_FROM from its official file, local or in a bucket.

    Args:
      semantics: of HumanEval+ and MBPP+: EvalPlus's own, or those of the check scripts in a file of the form of the
        official Code-A1 data.

    Raises:
      BadInput: no such file, with where to get it, or names the file and row of what is wrong.
    """
    require_file(path, name, WHERE_FROM[name])
    if name in _BIGCODEBENCH:
        return BigCodeBench(name, load_tasks(path), pool)
    if semantics == "evalplus":
        return EvalPlus(name, load_problems(name, path), pool)
    return CheckScripts(name, [each for each in load_questions(path) if each.data_source == name], pool)
