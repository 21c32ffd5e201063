"""Shows, searches, merges and exports Mistake Books.

  python -m codea1.tools.book RUN                                 the questions with most failures, and their top tests
  python -m codea1.tools.book RUN --step=best --question=mbpp/2   those whose id holds the text
  python -m codea1.tools.book RUN --text='f([])' --top=100        the tests whose source holds the text
  python -m codea1.tools.book RUN --export=book.jsonl             a file for people; .jsonl.gz is compressed
  python -m codea1.tools.book RUN RUN FILE --export=all.jsonl     several books merged into one

A book is a run folder, the folder of a book in it (checkpoints/50/book) or an exported file. Reading disturbs no run.
"""

import argparse
import sys
from collections.abc import Sequence

import jax
from etils import epath

from codea1.game.book_pages import merge, search
from codea1.runs.book_export import counts, listing, open_book, write_export
from codea1.runtime.errors import BadInput, with_exit_code


@with_exit_code
def main(arguments: Sequence[str] | None = None) -> None:
    """Does what the words of a command line ask for."""
    options = _parser().parse_args(arguments)
    books = dict(open_book(path, options.step) for path in options.books)
    if len(books) < len(options.books):
        raise BadInput("the same book is given twice, so its failures would count twice.")
    found = search(merge(books), options.question, options.text)
    if options.export:
        write_export(epath.Path(options.export), found)
        print(f"wrote {options.export}: {counts(found)}, of {' and '.join(books)}")
    else:
        print(f"{' and '.join(books)}: {counts(found)}")
        for line in listing(found, options.questions, options.top):
            print(line)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m codea1.tools.book", description="Shows, searches, merges and exports Mistake Books."
    )
    parser.add_argument("books", metavar="BOOK", nargs="+", help="run folder, folder of a book, or exported file")
    parser.add_argument("--step", default="last", help='checkpoint of a run: "last" (default), "best" or a number')
    parser.add_argument("--question", default="", metavar="TEXT", help="only questions whose id holds the text")
    parser.add_argument("--text", default="", help="only tests whose Python source holds the text")
    parser.add_argument("--questions", type=int, default=20, metavar="N", help="questions to list (default: 20)")
    parser.add_argument("--top", type=int, default=3, metavar="N", help="tests to list of each (default: 3)")
    parser.add_argument("--export", metavar="FILE", help="write what was found there as JSON lines instead of listing")
    return parser


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")  # a live run beside it may hold the TPU
    sys.exit(main())
