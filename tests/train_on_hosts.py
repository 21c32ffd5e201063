"""`codea1.train` with answers that mean something, and something that happens to the last host when a step begins.

  train_on_hosts.py [--at=STEP --what=die|term|hang] [--loaded_books=FOLDER] FLAGS OF codea1.train

die: it is killed, once the checkpoint of the step before is complete; term: it gets SIGTERM; hang: its sandbox finishes
no grading any more. To --loaded_books each host exports what
it takes up of the Mistake Book, as 0_of_2.jsonl.
"""

import os
import signal
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import jax
from absl import flags
from etils import epath

from bench.micro_run import scripted_answer
from codea1 import train
from codea1.data.feed import QuestionFeed
from codea1.data.tokenizer import ChatTokenizer
from codea1.game.book_pages import Pages
from codea1.game.mistake_book import MistakeBook
from codea1.lab.runs.book_export import write_export
from codea1.runtime import command, phases
from codea1.sandbox.host.grading import Grader

AT = flags.DEFINE_integer("at", None, "step")
WHAT = flags.DEFINE_enum("what", "die", ["die", "term", "hang"], "what happens then")
LOADED_BOOKS = flags.DEFINE_string("loaded_books", None, "folder")


batch = QuestionFeed.batch
load = MistakeBook.load


def load_and_tell(book: MistakeBook, pages: Pages) -> None:
    load(book, pages)
    if LOADED_BOOKS.value:
        name = f"{jax.process_index()}_of_{jax.process_count()}.jsonl"
        write_export(epath.Path(LOADED_BOOKS.value) / name, book.pages())


def batch_of_the_fated(feed: QuestionFeed, step: int) -> list:
    if step + 1 == AT.value and jax.process_index() == jax.process_count() - 1:
        {"die": die, "term": term, "hang": hang}[WHAT.value](step)
    return batch(feed, step)


def die(step: int) -> None:
    while not (Path(train.WORKDIR.value) / "checkpoints" / str(step) / "commit_success.txt").exists():
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)


def term(step: int) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.5)  # a thread hears it


def hang(step: int) -> None:
    phases.LIMITS["sandbox"] = 5.0  # as no honest grading takes
    Grader.grade = lambda *_: Future()


if __name__ == "__main__":
    # Where no collective notices that a host died, JAX does, after 100 s where it is not asked to be quicker.
    jax.distributed.initialize = partial(jax.distributed.initialize, heartbeat_timeout_seconds=30)
    ChatTokenizer.decode = scripted_answer
    QuestionFeed.batch = batch_of_the_fated
    MistakeBook.load = load_and_tell
    command.run(train.main)
