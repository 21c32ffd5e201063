"""What the programs in a dataset's rows define and test, read from their syntax: nothing is run."""

import ast
import re
import warnings

_CHECK = re.compile(r"^def check\(\s*(\w+)", re.MULTILINE)


def complete_program(problem: str, code: str) -> tuple[str, str | None]:
    """The whole program of a ground truth, which may be the bare body of the function that the problem begins.

    Returns:
      The program, and the name of the completed function where the ground truth is a bare body.

    Raises:
      ValueError: the ground truth does not parse or defines no function, alone and after the problem.
    """
    whole = _parse(code)
    if _functions(whole):
        return code, None
    program = problem + code
    functions = _functions(_parse(program))
    if functions:
        begun = [function.name for function in functions if function.lineno <= len(problem.splitlines())]
        return program, begun[-1] if begun else None
    raise ValueError("its ground truth defines no function" if whole else "its ground truth does not parse as Python")


def entry_point(program: str, completed: str | None, check_script: str | None, function_name: str) -> str:
    """The name of the function under test, which the program defines.

    It is the function that the ground truth completes; else what the check script tests; else what the row says. Where
    a program has several functions, the script tests the one that it calls: its parameter, like the row, may be named
    after a helper that stands first. A parameter that the program does not define, such as candidate, says nothing.

    Args:
      program: as `complete_program` returns it.
      completed: likewise.
      check_script: defines check(candidate); None if the row has none.
      function_name: what the row says.

    Raises:
      ValueError: the check script does not parse or defines no check, or the program does not define the function.
    """
    defined = [function.name for function in _functions(_parse(program))]
    names = [completed] if completed else []
    if check_script is not None:
        parameter = _CHECK.search(check_script)
        if parameter is None:
            raise ValueError("its test defines no function check")
        # Scripts can hold a megabyte of data, so they are parsed only where it matters.
        names += _called_by_check(check_script) if len(defined) > 1 and not completed else [parameter[1]]
    for name in [*names, function_name]:
        if name in defined:
            return name
    raise ValueError(f"its ground truth does not define the function under test, {function_name!r}")


def _called_by_check(check_script: str) -> list[str]:
    """The names that check calls and that are not the script's own functions."""
    own = {function.name: function for function in _functions(_parse(check_script))}
    check = own.get("check")
    if check is None:
        raise ValueError("its test does not parse as Python")
    parameters = {argument.arg for argument in check.args.args}
    called = [
        node.func.id for node in ast.walk(check) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    return [name for name in called if name in parameters or name not in own]


def _functions(tree: ast.Module | None) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    body = tree.body if tree is not None else []
    return [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _parse(source: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes in docstrings
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
