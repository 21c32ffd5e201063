"""One of two hosts with two devices each that tell each other things."""

import os
import signal

import jax
import numpy as np
import pytest
from absl import flags
from jax.sharding import NamedSharding, PartitionSpec

from codea1 import sharding
from codea1.runtime import command, hosts
from codea1.runtime.errors import BadInput
from codea1.runtime.signals import Stopped, StopRequest

HOSTS = command.define_hosts()
CASES = ((0,), False, "bad"), ((1,), False, "host 1: bad"), ((0, 1), False, "bad"), ((1,), True, "host 1: bad")


def meet(both: hosts.Hosts, *culprits: int, inner: bool = False) -> None:
    with both.agreed():
        if both.index in culprits:
            raise BadInput("bad")
        if inner:
            both.of_main(lambda: None)


def main() -> None:
    both, index = HOSTS(), flags.FLAGS.process_id
    assert (both.index, both.count, both.is_main, jax.device_count()) == (index, 2, index == 0, 4)

    # Arrays cut over both come back whole.
    mesh = sharding.make_mesh(1, 2, 2)
    x = np.arange(24).reshape(4, 6)
    for spec in (PartitionSpec("fsdp", "tensor"), PartitionSpec(), PartitionSpec(None, "tensor")):
        np.testing.assert_array_equal(sharding.to_host([jax.device_put(x, NamedSharding(mesh, spec))])[0], x)

    # Of other sizes on the two hosts, and of more than one slice.
    sizes = 3, 2 * hosts._SLICE_BYTES + 5
    assert both.exchange(bytes([index]) * sizes[index]) == [bytes(3), b"\1" * sizes[1]]
    assert both.exchange(("text", index, float("inf"))) == [("text", 0, float("inf")), ("text", 1, float("inf"))]
    assert both.of_main(lambda: index) == 0

    both.require_same("the seeds", b"7")
    with pytest.raises(hosts.AgreedBadInput) as error:
        both.require_same("the seeds", bytes([index]))
    assert str(error.value) == ("the seeds on host 1 differ from those on host 0." if both.is_main else "")

    # Whoever meets bad input, both leave, and host 0 tells it; also where the other is inside an agreement of its own.
    for culprits, inner, told in CASES:
        with pytest.raises(hosts.AgreedBadInput) as error:
            meet(both, *culprits, inner=inner)
        assert str(error.value) == (told if both.is_main else "")

    meet(both)
    assert both.exchange(index) == [0, 1]

    # A signal to one stops both at the same safe point. JAX has not taken it for itself.
    assert [both.any(index == culprit) for culprit in (0, 1, 2)] == [True, True, False]
    with StopRequest() as stop:
        stop.can_exit_now = False
        for _ in range(7):  # only every fourth asks the others
            stop.safe_point(both)
            if index == 1 and stop._passed == 5:
                os.kill(os.getpid(), signal.SIGTERM)
                assert stop._asked.wait(20)
        with pytest.raises(Stopped):
            stop.safe_point(both)


if __name__ == "__main__":
    command.run(main)
