"""One of the hosts of a run that tell each other things until one of them is lost.

  lost_host.py --lost=INDEX --what=kill|stop|throw|exhaust|late FLAGS OF jax.distributed

kill: SIGKILL; stop: as by ^Z; throw: an exception of its own; exhaust: XLA's error where memory is used up; late: a
library aborts when Python is gone.
"""

import ctypes
import os
import signal
import sys
import time
from functools import partial

import jax
from absl import flags

from codea1.runtime import command, hosts
from codea1.runtime.phases import LIMITS, doing, watchdog

LOST = flags.DEFINE_integer("lost", 1, "index of the host")
WHAT = flags.DEFINE_enum("what", "kill", ["kill", "stop", "throw", "exhaust", "late"], "what happens to it")
HEARTBEAT = flags.DEFINE_integer("heartbeat", 100, "seconds without one after which JAX takes a host for dead")
LIMIT = flags.DEFINE_float("limit", 5.0, "the watchdog's, of a collective")
HOSTS = command.define_hosts()


class Late:
    """Ends the process from a thread of its own, as C++ does, once Python forgets its modules."""

    def __init__(self) -> None:
        terminate = ctypes.CDLL("libstdc++.so.6")._ZSt9terminatev
        self.start = ctypes.CDLL(None).pthread_create, ctypes.byref(ctypes.c_ulong()), terminate, time.sleep

    def __del__(self) -> None:
        create, thread, terminate, sleep = self.start
        create(thread, None, terminate, None)
        sleep(3)


def main() -> None:
    jax.distributed.initialize = partial(jax.distributed.initialize, heartbeat_timeout_seconds=HEARTBEAT.value)
    all_hosts = HOSTS()
    all_hosts.exchange("here")  # what it compiles takes its time
    LIMITS["collective"] = LIMIT.value
    if WHAT.value == "late":
        sys.modules["late"] = Late()
        return
    with watchdog(1.0, all_hosts.index, hosts.end_for_lost), doing("step 1"):
        if all_hosts.index == LOST.value:
            if WHAT.value == "throw":
                raise KeyError("its own")
            if WHAT.value == "exhaust":
                raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 byte.")
            os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[WHAT.value])
        all_hosts.exchange("still here")


if __name__ == "__main__":
    command.run(main)
