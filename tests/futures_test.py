"""Steps that wait for futures."""

from concurrent.futures import Future

import pytest

from codea1.runtime.futures import Awaiting, every, start


def total(sources: list[Future]) -> Awaiting[int]:
    first = yield sources[0]
    rest = yield from every(sources[1:])
    return first + sum(rest)


def test_steps_wait_for_each_future_and_promise_what_they_return():
    sources = [Future() for _ in range(3)]
    promised = start(total(sources))
    for value in (2, 1, 0):  # in whatever order they come
        assert not promised.done()
        sources[value].set_result(value)
    assert promised.result() == 3


def test_a_target_is_what_is_fulfilled():
    target, done = Future(), Future()
    done.set_result(5)
    assert start(total([done]), target) is target
    assert target.result() == 5


def test_an_exception_is_raised_where_its_future_is_awaited():
    def careful(source: Future) -> Awaiting[str]:
        try:
            yield source
        except KeyError:
            return "caught"
        return "passed"

    sources = [Future(), Future()]
    promised = [start(careful(sources[0])), start(total(sources[1:]))]
    for source in sources:
        source.set_exception(KeyError("x"))
    assert promised[0].result() == "caught"
    with pytest.raises(KeyError):
        promised[1].result()


def test_a_thousand_steps_that_are_done_need_no_stack():
    done = Future()
    done.set_result(1)
    assert start(total([done] * 10_000)).result() == 10_000
