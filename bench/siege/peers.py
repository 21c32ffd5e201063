"""Finds graders of other projects in checkouts below the folder $PEERS, and puts questions in forms they read."""

import ast
import json
import os
import sys
import types
from pathlib import Path
from unittest.mock import MagicMock

PEERS = Path(os.environ.get("PEERS", "peers")).absolute()


def package(checkout: str, *names: str) -> None:
    """Makes packages of a checkout importable, the first with its folder, without what their `__init__` imports."""
    for name in names:
        module = sys.modules[name] = types.ModuleType(name)
        module.__path__ = [str(PEERS / checkout / name.replace(".", "/"))]


def absent(*names: str) -> None:
    """Stands in for modules that a grader imports and does not use to judge."""
    for name in names:
        sys.modules[name] = MagicMock()


def stand_in_for_pyext() -> None:
    """Defines the one function of pyext, which no longer installs, that graders call."""

    def from_string(name: str, _: str, source: str) -> types.ModuleType:
        module = types.ModuleType(name)
        exec(source, module.__dict__)
        return module

    sys.modules["pyext"] = types.SimpleNamespace(RuntimeModule=types.SimpleNamespace(from_string=from_string))


def definitions(path: str, *names: str, **given: object) -> types.SimpleNamespace:
    """Runs a file's definitions of some names, and nothing else of it, beside values that it would import."""
    parsed = ast.parse((PEERS / path).read_text())
    parsed.body = [node for node in parsed.body if _names(node) & set(names)]
    space = dict(given)
    exec(compile(parsed, path, "exec"), space)
    return types.SimpleNamespace(**{name: space[name] for name in names})


def _names(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {each.id for each in targets if isinstance(each, ast.Name)} | {getattr(node, "name", "")}


def live_code_bench(question: dict) -> dict:
    """Returns a question in LiveCodeBench's form: inputs and outputs as text, and the function's name."""
    tests = question["tests"]
    if question["kind"] == "stdin":
        return {"inputs": [test["stdin"] for test in tests], "outputs": [test["stdout"] for test in tests]}
    return {
        "inputs": ["\n".join(map(json.dumps, test["arguments"])) for test in tests],
        "outputs": [json.dumps(test["expected"]) for test in tests],
        "fn_name": question["entry_point"].split(".")[-1],
    }
