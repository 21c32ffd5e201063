"""Questions that are nearly those of an evaluation set are found, by what they say and by what their programs do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1.game.question import Question
from codea1.lab.data.near_duplicates import NearDuplicates, word_runs

SHARED_ELEMENTS = """
def shared(first, second):
    '''Those in both.'''
    kept = set(first) & set(second)
    return sorted(kept)
"""
SAME_PROGRAM = """
def intersection(a: list[int], b: list) -> list[int]:
    both: set = set(a) & set(b)  # not in the same words
    return sorted(both)
"""
TASK = "Write a function to find the shared elements from the given two lists of numbers."


def evaluation(description: str = TASK, program: str = SHARED_ELEMENTS, id: str = "E/1") -> Question:
    return Question(id, None, description, description, program, "f")


@pytest.mark.parametrize(
    ("description", "program", "near"),
    [
        (TASK, "def other(): pass", True),
        (TASK.upper().replace(" ", "\n  "), "def other(): pass", True),
        ("Imagine a shop. " + TASK + " Return them sorted.", "def other(): pass", True),
        ("Write a function to find the shared elements from a pair of tuples.", "def other(): pass", False),
        ("Count the vowels of a word, whatever their case.", SAME_PROGRAM, True),
        ("Count the vowels of a word, whatever their case.", SAME_PROGRAM.replace("&", "|"), False),
        ("Count the vowels of a word, whatever their case.", SAME_PROGRAM.replace("set(b)", "set(a)"), False),
        ("", "def other(): pass", False),
    ],
)
def test_words_or_program_make_a_question_near(description, program, near):
    questions = [evaluation("Reverse a string without slices or the reversed builtin.", "def r(s): ...", "E/0")]
    assert NearDuplicates([*questions, evaluation()]).has("T/1", description, program) is near


def test_examples_in_a_statement_hide_nothing_and_the_same_id_is_enough():
    official = f'def f(a, b):\n"""\n{TASK}\nassert f([1, 2, 3, 4, 5, 6], [3, 4, 5, 6, 7, 8]) == [3, 4, 5, 6]\n"""'
    index = NearDuplicates([evaluation(official, id="MBPP/9")])
    assert index.has("T/1", TASK, "def other(): pass")
    assert index.has("mbpp/9", "Count the vowels of a word, whatever their case.", "def other(): pass")
    assert not index.has("mbpp/90", "Count the vowels of a word, whatever their case.", "def other(): pass")


WORD = st.text("abcdefg", min_size=1, max_size=4)


@given(st.lists(WORD, min_size=1, max_size=30), st.lists(WORD, max_size=10), st.lists(WORD, max_size=10))
def test_a_text_inside_another_is_near_it_however_it_is_set(words, before, after):
    index = NearDuplicates([evaluation(", ".join(words), "x = 0")])
    text = " ".join([*before, *words, *after])
    is_near = index.has("T/1", text, "y = f()")
    assert is_near == (len(words) >= 5 or word_runs(" ".join(words)) <= word_runs(text))


def test_a_program_too_deep_to_be_walked_is_only_itself():
    deep = f"def f(x): return {' + '.join(['x'] * 900)}"
    index = NearDuplicates([evaluation(program=deep)])
    assert index.has("T/1", "", deep)
    assert not index.has("T/1", "", deep.replace("x", "y"))
