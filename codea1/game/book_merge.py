"""Several Mistake Books into one."""

from collections.abc import Mapping
from dataclasses import replace

from codea1.game.book_entry import BookEntry
from codea1.game.ground_truth import answers_equal
from codea1.game.mistake_book import Page, Pages
from codea1.runtime.errors import BadInput


def merge(books: Mapping[str, Mapping[str, Page]]) -> Pages:
    """Adds up books by their names: frequencies and hits are summed, steps become the first and the last.

    Meant for books of different runs: two steps of one run would count the same failures twice. A question's tests come
    in the order of the books, and within a book in its own. Of rewards the best stays.

    Raises:
      BadInput: two books have tests of a question with the answers of different ground truths.
    """
    merged: Pages = {}
    for name, pages in books.items():
        for question_id, page in pages.items():
            there = merged.get(question_id, Page(page.truth, {}))
            if there.truth != page.truth:
                raise BadInput(
                    f"{name} cannot be merged with the books before it: the ground truth of question {question_id} is "
                    "another there."
                )
            merged[question_id] = _merge_pages(name, question_id, there, page)
    return merged


def _merge_pages(name: str, question_id: str, one: Page, other: Page) -> Page:
    entries = dict(one.entries)
    for identity, entry in other.entries.items():
        known = entries.get(identity)
        if known and not answers_equal(known.test.expected, entry.test.expected):
            raise BadInput(f"{name}: question {question_id} has a test with another answer than the books before it.")
        entries[identity] = _merge_entries(known, entry) if known else entry
    return Page(one.truth, entries)


def _merge_entries(one: BookEntry, other: BookEntry) -> BookEntry:
    passes = [step for step in (one.last_passed, other.last_passed) if step is not None]
    rewards = [reward for reward in (one.reward, other.reward) if reward is not None]
    return replace(
        one,
        frequency=one.frequency + other.frequency,
        first_seen=min(one.first_seen, other.first_seen),
        hits=one.hits + other.hits,
        last_failed=max(one.last_failed, other.last_failed),
        last_passed=max(passes, default=None),
        reward=max(rewards, default=None),
    )
