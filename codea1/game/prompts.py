"""What the players are shown: templates of chat messages, and how a question and a program are put into them.

A placeholder is a word in braces, such as {problem}. Values are put in by one pass over the template, so braces in a
problem or a program mean nothing.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from codea1.game.question import Question
from codea1.runtime.errors import BadInput

Message = dict[str, str]

CODE_PLACEHOLDERS = frozenset({"problem", "description", "entry_point", "form"})
BLACK_BOX_PLACEHOLDERS = CODE_PLACEHOLDERS | {"num_tests"}
TEST_PLACEHOLDERS = BLACK_BOX_PLACEHOLDERS | {"program"}
ROLES = ("system", "user", "assistant")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")


@dataclass(frozen=True)
class PromptTemplates:
    """The messages of both players before anything is filled in."""

    code: tuple[Message, ...]  # may hold CODE_PLACEHOLDERS
    test: tuple[Message, ...]  # may hold TEST_PLACEHOLDERS
    black_box: tuple[Message, ...] = ()  # for a Test LLM that is not shown the program; may hold BLACK_BOX_PLACEHOLDERS
    dataset_prompts: bool = False  # a prompt that a row brings along stands in for `code`

    @classmethod
    def from_json(cls, text: str, source: str) -> "PromptTemplates":
        """Reads {"code": [{"role", "content"}, ...], "test": [...], "black_box": [...]}; `source` names it in errors.

        The last field is for methods whose Test LLM is not shown the program, and may be missing.

        Raises:
          BadInput: not JSON, a missing or unknown field, an unknown role or placeholder, or messages that never show
            the problem.
        """
        try:
            data = json.loads(text)
        except ValueError as error:
            raise BadInput(f"prompt template {source} is not JSON: {error}.") from None
        _check_fields(data, ("code", "test"), f"prompt template {source}", optional=("black_box",))
        placeholders = {"code": CODE_PLACEHOLDERS, "test": TEST_PLACEHOLDERS, "black_box": BLACK_BOX_PLACEHOLDERS}
        messages = {
            field: _read_messages(data[field], allowed, f"prompt template {source}, field {field!r}")
            for field, allowed in placeholders.items()
            if field in data
        }
        return cls(messages["code"], messages["test"], messages.get("black_box", ()))


def code_messages(templates: PromptTemplates, question: Question) -> list[Message]:
    """Returns the chat that asks the Code LLM for a program."""
    if templates.dataset_prompts and question.prompt is not None:
        return [dict(message) for message in question.prompt]
    return _fill(templates.code, question)


def test_messages(templates: PromptTemplates, question: Question, program: str | None, num_tests: int) -> list[Message]:
    """Returns the chat that asks the Test LLM for a suite of `num_tests` asserts that break `program`.

    Without a program it asks for asserts that break any wrong one.
    """
    shown = {"problem": question.problem, "description": question.description}
    if question.calling:
        shown = {name: f"{text}\n\n{question.calling}" for name, text in shown.items()}
    if program is None:
        return _fill(templates.black_box, question, num_tests=str(num_tests), **shown)
    return _fill(templates.test, question, num_tests=str(num_tests), program=program, **shown)


def _fill(messages: tuple[Message, ...], question: Question, **others: str) -> list[Message]:
    values = {
        "problem": question.problem,
        "description": question.description,
        "entry_point": question.entry_point,
        "form": question.form,
        **others,
    }
    return [
        {"role": message["role"], "content": _PLACEHOLDER.sub(lambda match: values[match[1]], message["content"])}
        for message in messages
    ]


def _check_fields(data: Any, fields: tuple[str, ...], where: str, optional: tuple[str, ...] = ()) -> None:
    if not isinstance(data, dict):
        raise BadInput(f"{where} must be a JSON object with the fields {', '.join(fields)}.")
    for field in fields:
        if field not in data:
            raise BadInput(f"{where} lacks the field {field!r}.")
    for field in data:
        if field not in (*fields, *optional):
            known = ", ".join((*fields, *optional))
            raise BadInput(f"{where} has the unknown field {field!r}; known are {known}.")


def _read_messages(data: Any, placeholders: frozenset[str], where: str) -> tuple[Message, ...]:
    if not isinstance(data, list) or not data:
        raise BadInput(f"{where} must be a list of messages, at least one.")
    used: list[str] = []
    for index, message in enumerate(data):
        place = f"{where}, message {index}"
        _check_fields(message, ("role", "content"), place)
        if message["role"] not in ROLES:
            raise BadInput(f"{place} has the role {message['role']!r}; it must be one of {', '.join(ROLES)}.")
        if not isinstance(message["content"], str):
            raise BadInput(f"{place} has a content that is not text.")
        names = _PLACEHOLDER.findall(message["content"])
        if unknown := [name for name in names if name not in placeholders]:
            known = ", ".join(f"{{{known}}}" for known in sorted(placeholders))
            raise BadInput(f"{place} has the unknown placeholder {{{unknown[0]}}}; known are {known}.")
        used += names
    if not {"problem", "description"} & {*used}:
        raise BadInput(f"{where} shows neither {{problem}} nor {{description}}.")
    return tuple(data)


_DEFAULT_CODE_TASK = """\
Write the complete Python {form} that the question below asks for. Put the whole {form}, with every import it
needs, into a single ```python code block, and write nothing outside that block.

Question:
{problem}"""

_DEFAULT_TEST_TASK = """\
# Role
You look for mistakes in Python programs. You are given a `Question` and `Buggy Code` that claims to answer it, and you
look for inputs on which `Buggy Code` does something other than what `Question` asks for.

# Task
Write {num_tests} test cases, each one assert statement that a right program passes and `Buggy Code` fails.

# Strategy
1. Attack the gaps: compare what `Question` requires with what `Buggy Code` really does, and choose inputs where the two
part.
2. Go for the hard places: limits of ranges, empty and extreme inputs, rare branches, inputs that take several steps to
work out. Be sure of every answer: it is the one `Question` demands, never the one `Buggy Code` happens to give.
3. Waste nothing: no two test cases may probe the same behaviour. Only the first {num_tests} test cases count, so begin
with the strongest.

# Context
Question:
{description}

Buggy Code:
```python
{program}
```

# Output Format
Put all test cases into ONE ```python code block, one per line, each calling `{entry_point}` with literal arguments:
assert {entry_point}(arguments) == answer"""

_DEFAULT_BLACK_BOX_TASK = """\
# Role
You look for mistakes in Python programs. You are given a `Question`, and you look for inputs on which a program that
claims to answer it is likely to do something other than what `Question` asks for.

# Task
Write {num_tests} test cases, each one assert statement that a right program passes and a wrong one fails.

# Strategy
1. Attack the gaps: think of what programs for `Question` get wrong, and choose inputs that show it.
2. Go for the hard places: limits of ranges, empty and extreme inputs, rare branches, inputs that take several steps to
work out. Be sure of every answer: it is the one `Question` demands.
3. Waste nothing: no two test cases may probe the same behaviour. Only the first {num_tests} test cases count, so begin
with the strongest.

# Context
Question:
{problem}

# Output Format
Put all test cases into ONE ```python code block, one per line, each calling `{entry_point}` with literal arguments:
assert {entry_point}(arguments) == answer"""

DEFAULT = PromptTemplates(
    code=(
        {"role": "system", "content": "You are a helpful assistant that completes code."},
        {"role": "user", "content": _DEFAULT_CODE_TASK},
    ),
    test=(
        {"role": "system", "content": "You are a helpful assistant that writes test cases."},
        {"role": "user", "content": _DEFAULT_TEST_TASK},
    ),
    black_box=(
        {"role": "system", "content": "You are a helpful assistant that writes test cases."},
        {"role": "user", "content": _DEFAULT_BLACK_BOX_TASK},
    ),
    dataset_prompts=True,
)

# As few tokens as can be, for policies made from nothing. The Test LLM sees its program as the Code LLM wrote it.
TINY = PromptTemplates(
    code=({"role": "user", "content": "{problem}"},),
    test=(
        {"role": "user", "content": "{problem}"},
        {"role": "assistant", "content": "```python\n{program}\n```"},
        {"role": "user", "content": "test"},
    ),
    black_box=(
        {"role": "user", "content": "{problem}"},
        {"role": "user", "content": "test"},
    ),
)

TEMPLATES = {"default": DEFAULT, "tiny": TINY}
