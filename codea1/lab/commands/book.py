"""Shows, searches, merges and exports Mistake Books.

  python -m codea1.lab book RUN                                 the questions with most failures, and their top tests
  python -m codea1.lab book RUN --step=best --question=mbpp/2   those whose id holds the text
  python -m codea1.lab book RUN --text='f([])' --top=100        the tests whose source holds the text
  python -m codea1.lab book RUN --export=book.jsonl             a file for people; .jsonl.gz is compressed
  python -m codea1.lab book RUN RUN FILE --export=all.jsonl     several books merged into one

A book is a run folder, the folder of a book in it (checkpoints/50/book) or an exported file. Reading disturbs no run.
"""

import os

from absl import flags

from codea1.runtime import command

STEP = flags.DEFINE_string("step", "last", 'checkpoint of a run: "last", "best" or a number')
QUESTION = flags.DEFINE_string("question", "", "only questions whose id holds the text")
TEXT = flags.DEFINE_string("text", "", "only tests whose Python source holds the text")
QUESTIONS = flags.DEFINE_integer("questions", 20, "questions to list", lower_bound=0)
TOP = flags.DEFINE_integer("top", 3, "tests to list of each", lower_bound=0)
EXPORT = flags.DEFINE_string("export", "", "file that gets what was found, as JSON lines, instead of a listing")


def main(*books: str) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"  # a live run may hold the TPU
    from codea1.lab.runs.book_export import show_books  # imports JAX, once the flags are checked

    show_books(
        books,
        step=STEP.value,
        question=QUESTION.value,
        text=TEXT.value,
        questions=QUESTIONS.value,
        top=TOP.value,
        export=EXPORT.value,
    )


if __name__ == "__main__":
    command.run(main, argument="BOOK", many=True)
