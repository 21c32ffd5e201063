"""Forms in which models write a right program, and what is read of them: the program must define `f` as x + 1."""

import time

import pytest

from codea1.game.answers import continued, extract_program, extract_python_block

F = "def f(x):\n    return x + 1"
WRONG = "def f(x):\n    return x"
HELPED = "import math\n\ndef one():\n    return math.floor(1.5)\n\ndef f(x):\n    return x + one()"
TESTS = "assert f(1) == 2\nprint('ok')"


def indented(text: str, by: str = "    ") -> str:
    return "\n".join(by + line for line in text.split("\n"))


READ = {
    "a block": f"```python\n{F}\n```",
    "a block in prose": f"Here is the solution.\n\n```python\n{F}\n```\n\nIt adds one.",
    "a block without a language": f"```\n{F}\n```",
    "py": f"```py\n{F}\n```",
    "python3": f"```python3\n{F}\n```",
    "Python": f"```Python\n{F}\n```",
    "PYTHON": f"```PYTHON\n{F}\n```",
    "a blank before the language": f"``` python\n{F}\n```",
    "blanks after the language": f"```python   \n{F}\n```",
    "a title": f'```python title="solution.py"\n{F}\n```',
    "a name of a file": f"```python:solution.py\n{F}\n```",
    "line numbers": f"```python {{linenos=table}}\n{F}\n```",
    "attributes": f"```{{.python .numberLines}}\n{F}\n```",
    "a comment after the language": f"```python  # solution\n{F}\n```",
    "four backticks": f"````python\n{F}\n````",
    "four backticks around three": f"````python\n{F}\n# ```\n````",
    "tildes": f"~~~python\n{F}\n~~~",
    "Windows' ends of lines": f"```python\n{F}\n```".replace("\n", "\r\n"),
    "a byte order mark": f"\ufeff{F}",
    "a fence that is not closed": f"```python\n{F}",
    "a fence that is not closed, without a language": f"Sure!\n```\n{F}\n",
    "a fence that is not closed, after one that is": f"```python\n{F}\n```\nOr:\n```python\ndef f(x):\n    return (",
    "a fence that is closed at the end of the code": f"```python\n{F}```",
    "a fence that begins after prose": f"Solution: ```python\n{F}\n```",
    "a fence that opens where the last was not closed": f"```python\nimport math\n```python\n{F}\n```",
    "indented in a list": f"1. Write it:\n\n   ```python\n{indented(F, '   ')}\n   ```\n2. Done.",
    "indented with its fence": f"    ```python\n{indented(F)}\n    ```",
    "indented in its fence": f"```python\n{indented(F)}\n```",
    "indented with tabs": f"```python\n{indented(F, chr(9))}\n```",
    "indented after an empty line": f"```python\n\n{indented(F)}\n\n```",
    "a sketch first": f"The idea:\n```python\nfor x in xs: x + 1\n```\nThe program:\n```python\n{F}\n```",
    "a stub first": f"The signature:\n```python\ndef f(x):\n    ...\n```\nThe program:\n```python\n{F}\n```",
    "a wrong attempt first": f"First:\n```python\n{WRONG}\n```\nBut that fails. Corrected:\n```python\n{F}\n```",
    "the example of the question first": f"```python\n>>> f(1)\n2\n```\n```python\n{F}\n```",
    "the input first": f"```\n3\n1 2 3\n```\nbecomes\n```\n{F}\n```",
    "a command first": f"```bash\npip install numpy\n```\n```python\n{F}\n```",
    "tests after it": f"```python\n{F}\n```\nTests:\n```python\n{TESTS}\n```",
    "usage after it": f"```python\n{F}\n```\nExample usage:\n```python\nprint(f(1))  # 2\n```",
    "output after it": f"```python\n{F}\n```\nOutput:\n```\n2\n```",
    "another language after it": f"```python\n{F}\n```\nIn C:\n```c\nint f(int x) {{ return x + 1; }}\n```",
    "another language before it": f"```javascript\nfunction f(x) {{ return x + 1 }}\n```\n```python\n{F}\n```",
    "an explanation of a part after it": f"```python\n{F}\n```\nThe line\n```python\nreturn x + 1\n```\nadds one.",
    "the same twice": f"```python\n{F}\n```\nSo the whole program is:\n```python\n{F}\n```",
    "a broken sketch of it after it": f"```python\n{F}\n```\nIn short:\n```python\ndef f(x): add one\n```",
    "helpers and imports": f"```python\n{HELPED}\n```",
    "an assignment": "```python\nf = lambda x: x + 1\n```",
    "an assignment after a block of tests": f"```python\n{TESTS}\n```\n```python\nf = lambda x: x + 1\n```",
    "a fence in its docstring": (
        '```python\ndef f(x):\n    """Adds one.\n\n    ```\n    f(1)\n    ```\n    """\n    return x + 1\n```'
    ),
    "a fence with a language in its docstring": (
        '```python\ndef f(x):\n    """Adds one.\n\n    ```python\n    f(1)\n    ```\n    """\n    return x + 1\n```'
    ),
    "a fence in a string": "```python\nFENCE = '```'\n\ndef f(x):\n    return x + 1\n```",
    "only the program": F,
    "only the program, indented": indented(F),
    "only the program, with a fence in its docstring": (
        'def f(x):\n    """Adds one.\n\n    ```\n    f(1)\n    ```\n    """\n    return x + 1'
    ),
    "only the program, after prose": f"Here is the program:\n\n{HELPED}",
    "thoughts first": f"<think>\n```python\n{WRONG}\n```\n</think>\n```python\n{F}\n```",
    "thoughts that the prompt began": f"Try:\n```python\n{WRONG}\n```\n</think>\n```python\n{F}\n```",
    "the end of thoughts in a string": f"```python\n{F}\nEND = '</think>'\n```\nIt knows `</think>`.",
    "a fence that the prompt opened": f"{F}\n```",
    "a fence that the prompt opened, and prose": f"{F}\n```\nIt adds one.",
    "a fence that the prompt opened, and tests": f"{F}\n```\nTests:\n```python\n{TESTS}\n```",
    "a stub after it": f"```python\n{F}\n```\nTests:\n```python\ndef f(x):\n    ...\n\nassert f(1) == 2\n```",
    "a docstring alone after it": f'```python\n{F}\n```\nThat is:\n```python\ndef f(x):\n    """Adds one."""\n```',
    "not implemented after it": f"```python\n{F}\n```\n```python\ndef f(x):\n    raise NotImplementedError()\n```",
    "code on the fence's line": "```python def f(x): return x + 1\n```",
    "no-break spaces": f"```python\n{F.replace('    ', chr(160) * 4)}\n```",
    "a byte order mark in its fence": f"```python\n\ufeff{F}\n```",
    "in tags": f"<answer>\n```python\n{F}\n```\n</answer>",
    "a main guard": f"```python\n{F}\n\nif __name__ == '__main__':\n    print(f(int(input())))\n```",
}
NOT_READ = {  # of these a program could be made, but what the policy wrote is none
    "prose after it": f"{F}\n\nThis adds one to x.",
    "in tags without a fence": f"<code>\n{F}\n</code>",
    "a prompt before each line": "```python\n>>> def f(x):\n...     return x + 1\n```",
    "line numbers in the code": "```python\n1 def f(x):\n2     return x + 1\n```",
    "in two blocks": "```python\ndef one():\n    return 1\n```\nand\n```python\ndef f(x):\n    return x + one()\n```",
    "as a method": f"```python\nclass Solution:\n{indented('def f(self, x):')}\n{indented('    return x + 1')}\n```",
    "only a body": "```python\n    return x + 1\n```",
    "by another name": "```python\ndef add_one(x):\n    return x + 1\n```",
}


def is_right(source: str) -> bool:
    names: dict = {"__name__": "solution"}
    try:
        exec(source, names)
        return names["f"](41) == 42
    except Exception:
        return False


@pytest.mark.parametrize("form", READ)
def test_forms_that_are_read(form):
    assert is_right(extract_program(READ[form], "f").source)


@pytest.mark.parametrize("form", NOT_READ)
def test_forms_that_are_not_read(form):
    assert not is_right(extract_program(NOT_READ[form], "f").source)


def test_more_is_read_than_by_the_reference():
    assert len(READ) >= 50
    assert sum(is_right(extract_python_block(answer).source) for answer in READ.values()) < len(READ) / 2


@pytest.mark.parametrize(
    ("entry_point", "program", "other"),
    [
        ("Solution().f", "class Solution:\n    def f(self, x):\n        return x", "print(Solution().f(1))"),
        ("stdout", "n = int(input())\nprint(n + 1)", "2"),
        ("stdout", "import sys\nsys.stdout.write(input())", "python main.py < input.txt"),
        ("stdout", "print(int(input()) + 1)", "assert stdout('1') == '2'"),
        ("stdout", "n = int(input())\nprint(n + 1)", "print(n + 1)"),
        ("stdout", "import sys\nn, *_ = sys.stdin\nprint(n)", "print(n)"),
    ],
)
def test_methods_and_whole_programs(entry_point, program, other):
    for first, last in ((program, other), (other, program)):
        assert extract_program(f"```python\n{first}\n```\n```\n{last}\n```", entry_point).source == program


@pytest.mark.parametrize(
    "completion",
    [
        "    return x + 1",
        "```python\n    return x + 1\n```",
        "    return x + 1\n```\nIt adds one.",
        f"```python\n{F}\n```",
        f"Here it is:\n```python\n{F}\n```\nIt adds one.",
        '    """As\n```\nf(1)\n```\n    """\n    return x + 1',
        "Add one.\n</think>\n    return x + 1",
    ],
)
@pytest.mark.parametrize("prompt", ["def f(x):\n", 'def f(x):\n    """Adds one."""\n'])
def test_a_completion_may_stand_in_a_code_block(prompt, completion):
    assert is_right(continued(prompt, completion))


def test_by_the_reference_rule_only_the_end_of_thoughts_is_new():
    assert is_right(extract_python_block(READ["thoughts that the prompt began"]).source)
    for form in ("a fence that the prompt opened", "code on the fence's line", "no-break spaces"):
        assert not is_right(extract_python_block(READ[form]).source)


def test_a_program_that_is_too_long_to_be_parsed_is_read():
    long = f"{F}\n" + "# a comment\n" * 5_000
    assert is_right(extract_program(f"```python\n{WRONG}\n```\n```python\n{long}```", "f").source)


@pytest.mark.parametrize("closed", [True, False])
def test_a_closed_fence_is_told_from_one_that_is_not(closed):
    assert extract_program(f"So:\n```python\n{F}" + "\n```" * closed, "f").fenced is closed


def test_time_is_linear_in_the_answer():
    started = time.process_time()
    for piece in (
        "```",
        "```\n",
        "``` \n",
        "    ```python\n",
        "~~~",
        "def f(x):\n",
        "f" + " " * 500,
        " ",
        "\t\n",
        "import ",
    ):
        extract_program(piece * (300_000 // len(piece)), "f")
    assert time.process_time() - started < 6  # about 0.5 s
