"""Tells one question's whole story in a run: every step in which it was asked, each verdict, reward and book change.

  python -m codea1.explain runs/tiny/code_a1 --question=list/ne3/gap4/any
  python -m codea1.explain runs/tiny/code_a1 --question=list/ne3/gap4/any --step=50 --html=story.html

The page needs nothing but itself. Changes nothing in the run's folder.
"""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from codea1.runs import story_view
from codea1.runs.folder import RunFolder
from codea1.runs.story import read_story
from codea1.runtime.errors import BadInput, with_exit_code
from codea1.storage.objects import location, write_atomically


@with_exit_code
def main(arguments: Sequence[str] | None = None) -> None:
    """Does what the words of a command line ask for."""
    parser = argparse.ArgumentParser(prog="python -m codea1.explain", description="Tells a question's story in a run.")
    parser.add_argument("run", metavar="RUN", help="run folder")
    parser.add_argument("--question", required=True, help="its id")
    parser.add_argument("--step", type=int, help="only this training step; all without it")
    parser.add_argument("--html", metavar="FILE", help="writes a page to this file instead of the terminal")
    given = parser.parse_args(arguments)
    story = read_story(RunFolder.existing(given.run), given.question, given.step)
    if not given.html:
        story_view.show(story, Console())
        return
    file = location(given.html, "--html")
    try:
        write_atomically(file, story_view.page(story))
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}.") from None
    print(f"wrote {file}")


if __name__ == "__main__":
    sys.exit(main())
