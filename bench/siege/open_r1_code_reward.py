"""open-r1: the script of `code_reward` in `src/open_r1/rewards.py`, here in a plain process for E2B."""

import json
import re
import subprocess
import sys

import peers


class Provider:
    """Runs scripts and returns the value of their last line, as a notebook's cell does."""

    def execute_scripts(self, scripts, languages):
        marked = [re.sub(r"\n *(evaluate_code\(code_snippet.*)", r"\n    print(repr(\1))", each) for each in scripts]
        done = [subprocess.run([sys.executable, "-c", _flat(each)], capture_output=True, text=True) for each in marked]
        return [float(each.stdout or "0") for each in done]


def _flat(script):
    return "if True:\n" + script


code_reward = peers.definitions(
    *("open-r1/src/open_r1/rewards.py", "code_reward", "extract_code"),
    **{"json": json, "re": re, "get_provider": lambda **how: Provider()},
).code_reward


def paid(question: dict, program: str) -> bool | None:
    if question["kind"] != "stdin":
        return None
    tests = [{"input": test["stdin"], "output": test["stdout"]} for test in question["tests"]]
    completion = [{"content": f"```python\n{program}\n```"}]
    return code_reward([completion], verification_info=[{"language": "python", "test_cases": tests}]) == [1.0]
