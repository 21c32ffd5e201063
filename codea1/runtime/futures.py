"""Work that waits for futures without holding a thread, written from start to end as one generator."""

from collections.abc import Generator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
Awaiting = Generator[Future, Any, T]  # yields a future, is sent its result, and returns a T


def start(steps: Awaiting[T], target: Future[T] | None = None) -> Future[T]:
    """Returns the future of what `steps` returns, `target` where it is given.

    Each future that `steps` yields is awaited: its result is sent in, or its exception raised there. `steps` goes on in
    whichever thread completes the future, and must not block.
    """
    promised: Future[T] = Future() if target is None else target

    def resume(source: Future | None = None) -> None:
        try:
            while source is None or source.done():  # a loop, for a recursion could be as deep as there are steps
                error = source and source.exception()
                source = steps.throw(error) if error else steps.send(source and source.result())
        except StopIteration as stop:
            promised.set_result(stop.value)
        except BaseException as error:
            promised.set_exception(error)
        else:
            source.add_done_callback(resume)

    resume()
    return promised


def every(futures: Sequence[Future[T]]) -> Awaiting[list[T]]:
    """Awaits all futures and returns their results in order: `results = yield from every(futures)`."""
    results = []
    for future in futures:
        results.append((yield future))
    return results
