"""What saving and loading a Mistake Book costs, from 10^3 to 10^6 tests.

  python -m bench.mistake_book [--tests 1000 10000 100000 1000000] [--folder FOLDER] [--repeats 3]

Tests are spread over questions as in the paper's run (9,688 questions), with argument lists of 1 to 40 integers. Times
are medians in seconds. `snapshot` is all that a step waits for; `save` runs in the background; `load` is one host that
reads every shard, and `load 1/4` one of four.
"""

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

from etils import epath

from codea1.game.calls import Call, CallTest
from codea1.game.mistake_book import Evidence, MistakeBook, shards_of_host
from codea1.runs.book_files import read_shards, write_shards
from codea1.storage.checksums import write_manifest
from codea1.values import encode_exact

QUESTIONS = 9_688
COLUMNS = ("tests", "questions", "MB on disk", "bytes per test", "snapshot", "save", "load", "load 1/4")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tests", type=int, nargs="+", default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--folder", default=None, help="where to write; a bucket works, too (default: a temporary one)")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    folder = epath.Path(arguments.folder or tempfile.mkdtemp(prefix="mistake_book_"))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, medians of {arguments.repeats}, in {folder}\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{' --: |' * len(COLUMNS)}")
    try:
        for tests in arguments.tests:
            print(f"| {' | '.join(measure(tests, folder / str(tests) / 'book', arguments.repeats))} |", flush=True)
    finally:
        if not arguments.folder:
            shutil.rmtree(folder)


def measure(tests: int, step: epath.Path, repeats: int) -> Iterator[str]:
    book = make_book(tests)
    if book.size != tests:
        raise RuntimeError(f"the book has {book.size} tests instead of {tests}")
    folder, pages = step / "book", book.pages()

    def save() -> None:
        write_shards(folder, pages)
        write_manifest(step)

    snapshot, saved = median(book.pages, repeats), median(save, repeats)
    loaded = median(lambda: read_shards(folder), repeats)
    quarter = median(lambda: read_shards(folder, shards_of_host(0, 4)), repeats)
    if read_shards(folder) != pages:
        raise RuntimeError("the book that was loaded is not the one that was saved")
    size = sum(path.stat().length for path in folder.iterdir())
    yield from (f"{tests:,}", f"{len(pages):,}", f"{size / 1e6:.2f}", f"{size / tests:.0f}")
    yield from (f"{snapshot:.6f}", f"{saved:.3f}", f"{loaded:.3f}", f"{quarter:.3f}")


def make_book(tests: int) -> MistakeBook:
    dice = random.Random(0)
    book = MistakeBook()
    for number in range(tests):
        values = [dice.randrange(-1000, 1000) for _ in range(dice.randint(1, 40))]
        call = Call("solution", encode_exact(((values, number), {})))  # the number makes each another test
        evidence = Evidence(failed_new=[[CallTest(call, encode_exact(sum(values)))] * dice.randint(1, 8)])
        book.update(f"KodCode/{number % QUESTIONS}", "0" * 32, dice.randrange(111), evidence)
    return book


def median(work: Callable[[], object], repeats: int) -> float:
    """Seconds."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
