"""The benchmarks of the Code LLM, by name."""

from collections.abc import Mapping

from codea1.data.loader import load_questions
from codea1.evaluation.bigcodebench import WHERE_FROM as BIGCODEBENCH_FROM
from codea1.evaluation.bigcodebench import BigCodeBench, load_tasks
from codea1.evaluation.check_scripts import CheckScripts
from codea1.evaluation.code_benchmark import CodeBenchmark
from codea1.evaluation.evalplus import WHERE_FROM as EVALPLUS_FROM
from codea1.evaluation.evalplus import EvalPlus, load_problems
from codea1.runtime.errors import BadInput
from codea1.sandbox.host.pool import SandboxPool

_BIGCODEBENCH = [f"bigcodebench_{split}{subset}" for split in ("complete", "instruct") for subset in ("", "_hard")]
WHERE_FROM: Mapping[str, str] = {**EVALPLUS_FROM, **dict.fromkeys(_BIGCODEBENCH, BIGCODEBENCH_FROM)}
SEMANTICS = ("evalplus", "scripts")


def load_benchmark(name: str, path: str, semantics: str, pool: SandboxPool) -> CodeBenchmark:
    """One of WHERE_FROM, from its official file, local or in a bucket.

    Args:
      semantics: of HumanEval+ and MBPP+: EvalPlus's own, or those of the check scripts in a file of the form of the
        official Code-A1 data.

    Raises:
      BadInput: no such file, which tells where to get it, or it names the file and row of what is wrong.
    """
    if not path:
        raise BadInput(f"--file is missing: it names the data of {name}. {WHERE_FROM[name]}")
    if name in _BIGCODEBENCH:
        return BigCodeBench(name, load_tasks(path), pool)
    if semantics == "evalplus":
        return EvalPlus(name, load_problems(name, path), pool)
    return CheckScripts(name, [each for each in load_questions(path) if each.data_source == name], pool)
