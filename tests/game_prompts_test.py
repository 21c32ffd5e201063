"""Templates and what is put into them."""

import json

import pytest

from codea1.game import prompts
from codea1.game.prompts import TEMPLATES, TINY, PromptTemplates, code_messages
from codea1.game.question import Question
from codea1.runtime.errors import BadInput

QUESTION = Question(
    id="q1",
    prompt=None,
    problem="def f(n):\n    '''{program} {x}'''",
    description="Add {one}.",
    ground_truth="def f(n):\n    return n + 1",
    entry_point="f",
)
PROGRAM = "def f(n):\n    return {'a': {n}, **{}} # {problem} {0} %s \\1"


@pytest.mark.parametrize("name", TEMPLATES)
def test_braces_in_questions_and_programs_are_left_alone(name):
    code = "\n".join(message["content"] for message in code_messages(TEMPLATES[name], QUESTION))
    test = "\n".join(message["content"] for message in prompts.test_messages(TEMPLATES[name], QUESTION, PROGRAM, 8))
    assert QUESTION.problem in code
    assert f"```python\n{PROGRAM}\n```" in test
    assert "{num_tests}" not in test
    assert "{entry_point}" not in test


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_black_box_is_shown_the_question_and_no_program(name):
    messages = prompts.test_messages(TEMPLATES[name], QUESTION, None, 6)
    content = "\n".join(message["content"] for message in messages)
    assert QUESTION.problem in content  # as the Code LLM sees it: with the declaration, which no program tells here
    assert "{program}" not in content.replace(QUESTION.problem, "")
    assert "Buggy" not in content
    assert messages != prompts.test_messages(TEMPLATES[name], QUESTION, PROGRAM, 6)


def test_a_file_may_lack_the_black_box_and_may_not_show_it_a_program():
    messages = [{"role": "user", "content": "{problem}"}]
    read = PromptTemplates.from_json(json.dumps({"code": messages, "test": messages}), "t.json")
    assert read.black_box == ()
    shown = [{"role": "user", "content": "{problem} {program}"}]
    text = json.dumps({"code": messages, "test": messages, "black_box": shown})
    with pytest.raises(BadInput, match=r"field 'black_box'.*unknown placeholder \{program\}"):
        PromptTemplates.from_json(text, "t.json")


def test_the_default_test_prompt_names_what_counts():
    (_, user) = prompts.test_messages(TEMPLATES["default"], QUESTION, PROGRAM, 6)
    sections = [line for line in user["content"].splitlines() if line.startswith("# ")]
    assert sections == ["# Role", "# Task", "# Strategy", "# Context", "# Output Format"]
    assert "first 6 test cases count" in user["content"]
    assert "Add {one}." in user["content"]
    assert "assert f(arguments) == answer" in user["content"]


def test_the_tiny_test_prompt_continues_the_code_players_turn():
    messages = prompts.test_messages(TINY, QUESTION, "x = 1", 4)
    assert messages[:1] == code_messages(TINY, QUESTION)
    assert messages[1] == {"role": "assistant", "content": "```python\nx = 1\n```"}


def test_a_datasets_own_prompt_is_taken_as_it_is():
    prompt = ({"role": "user", "content": "{problem}"},)
    question = Question("q", prompt, "p", "d", "g", "f")
    assert code_messages(TEMPLATES["default"], question) == list(prompt)


GOOD = {
    "code": [{"role": "user", "content": "{problem}"}],
    "test": [{"role": "user", "content": '{problem} {"json": 1} { not a placeholder } {program}'}],
}


def test_templates_are_read_from_json():
    templates = PromptTemplates.from_json(json.dumps(GOOD), "t.json")
    assert templates.code == ({"role": "user", "content": "{problem}"},)
    assert prompts.test_messages(templates, QUESTION, "x", 2)[0]["content"].endswith(
        '{"json": 1} { not a placeholder } x'
    )


def test_a_test_llm_is_told_how_methods_with_nodes_and_whole_programs_are_called():
    method = "class Solution:\n    def f(self, head: Optional[ListNode]) -> int:\n        return 0\n"
    tested = (
        (method, "Solution().f"),
        *(("print(1)", name) for name in ("stdout", "stdout_tokens", "stdout_any_order")),
    )
    asked = [Question("q", None, "p", "Do it.", *rest) for rest in tested]
    shown = [prompts.test_messages(prompts.DEFAULT, each, "x = 1", 4)[-1]["content"] for each in asked]
    blind = [prompts.test_messages(prompts.DEFAULT, each, None, 4)[-1]["content"] for each in asked]
    assert all(f"p\n\n{each.calling}\n" in text for each, text in zip(asked, blind, strict=True))
    assert "Do it.\n\nIn tests, a linked list is a list" in shown[0]
    assert "assert Solution().f(arguments) == answer" in shown[0]
    assert "Do it.\n\n`stdout(text)` is all that the program prints when `text` is its standard input.\n" in shown[1]
    assert "`stdout_tokens(text)` is all that the program prints when `text` is its standard input. White" in shown[2]
    assert "difference, nor does one of 1e-05, absolute or relative, between numbers with" in shown[2]
    assert "assert stdout_tokens(arguments) == answer" in shown[2]
    assert "standard input. The order of lines makes no difference" in shown[3]
    for form, each in zip(("class", *["program"] * 3), asked, strict=True):
        assert f"Write the complete Python {form} " in code_messages(prompts.DEFAULT, each)[-1]["content"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"code": None}, "lacks the field 'code'"),
        ({"extra": []}, "has the unknown field 'extra'"),
        ({"code": []}, "field 'code' must be a list of messages"),
        ({"code": [{"role": "user"}]}, "field 'code', message 0 lacks the field 'content'"),
        ({"code": [{"role": "bot", "content": "{problem}"}]}, "has the role 'bot'"),
        ({"code": [{"role": "user", "content": 1}]}, "content that is not text"),
        ({"code": [{"role": "user", "content": "hello"}]}, "shows neither"),
        ({"code": [{"role": "user", "content": "{problem} {program}"}]}, "unknown placeholder {program}"),
        ({"test": [{"role": "user", "content": "{problem} {answers}"}]}, "unknown placeholder {answers}"),
        ({"test": ["{problem}"]}, "must be a JSON object"),
    ],
)
def test_a_bad_template_is_told_in_one_sentence(change, sentence):
    data = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(BadInput) as error:
        PromptTemplates.from_json(json.dumps(data), "t.json")
    assert "t.json" in str(error.value)
    assert sentence in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3"])
def test_what_is_not_a_json_object_is_refused(text):
    with pytest.raises(BadInput, match=r"t\.json"):
        PromptTemplates.from_json(text, "t.json")
