"""One of two hosts, the second of which is stopped as by ^Z before the first has heard all from it."""

import os
import signal

from codea1.runtime import command
from codea1.runtime.phases import Watchdog, doing

HOSTS = command.define_hosts()


def main() -> None:
    hosts = HOSTS()
    hosts.exchange("here")  # what it compiles takes its time
    with Watchdog({"collective": 5.0, "restart_after": 1.0}, hosts.index), doing("step 1"):
        if not hosts.is_main:
            os.kill(os.getpid(), signal.SIGSTOP)
        hosts.exchange("still here")


if __name__ == "__main__":
    command.run(main)
