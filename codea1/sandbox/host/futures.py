"""Futures made of futures, for code that must not wait."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
S = TypeVar("S")


def then(source: Future[S], function: Callable[[S], T]) -> Future[T]:
    """The future of `function(result of source)`; an exception of either is its exception.

    `function` runs in whichever thread completes `source` and must not wait.
    """
    target: Future[T] = Future()

    def complete(done: Future[S]) -> None:
        try:
            target.set_result(function(done.result()))
        except BaseException as error:
            target.set_exception(error)

    source.add_done_callback(complete)
    return target


def chain(source: Future[S], function: Callable[[S], Future[T]]) -> Future[T]:
    """The future of what `function(result of source)` is the future of; an exception of any is its exception.

    `function` runs in whichever thread completes `source` and must not wait.
    """
    target: Future[T] = Future()

    def go_on(done: Future[S]) -> None:
        try:
            fulfil(target, function(done.result()))
        except BaseException as error:
            target.set_exception(error)

    source.add_done_callback(go_on)
    return target


def gather(futures: Sequence[Future[T]]) -> Future[list[T]]:
    """The future of all results in order; the first exception in order is its exception."""
    target: Future[list[T]] = Future()
    left = len(futures)
    lock = threading.Lock()

    def complete(_: Future[T] | None = None) -> None:
        nonlocal left
        with lock:
            left -= 1
            if left > 0:
                return
        try:
            target.set_result([future.result() for future in futures])
        except BaseException as error:
            target.set_exception(error)

    if not futures:
        complete()
    for future in futures:
        future.add_done_callback(complete)
    return target


def fulfil(promised: Future[T], source: Future[T]) -> None:
    """Completes `promised` as `source` completes."""

    def complete(done: Future[T]) -> None:
        try:
            promised.set_result(done.result())
        except BaseException as error:
            promised.set_exception(error)

    source.add_done_callback(complete)
