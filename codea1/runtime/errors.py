"""The errors that end a command with one sentence instead of a traceback, and their exit codes."""

import contextlib
import re
import sys
from typing import TextIO

FAILED_EXIT_CODE = 1
BAD_INPUT_EXIT_CODE = 2
# A disk or bucket that fails until a person repairs it: sysexits.h's EX_IOERR.
STORAGE_EXIT_CODE = 74
# sysexits.h's EX_TEMPFAIL: the same command continues where this one ended. The scripts of launch/ start it again.
RESTART_EXIT_CODE = 75


class BadInput(Exception):
    """A mistake in what the user gave: a config, a file, a row, a folder.

    The message is one sentence that names the file, row, key or question and says what is wrong. Commands print it
    without a traceback and exit with code 2.
    """


class AgreedBadInput(BadInput):
    """Bad input that every host knows of: all exit together. Its sentence is empty where another host prints it."""


class MissingFile(BadInput):
    """A file that the user names and that is not there."""


class StorageFailed(OSError):
    """A disk or a bucket that fails, whatever was tried again. The message is one sentence that names what and why."""


class StorageOutage(StorageFailed):
    """The same, of a storage that may work again later: the run can be started again as it is."""


class GivenUp(Exception):
    """The run failed too often at one step. All hosts know and exit together; one of them has the sentence."""


class HostsLate(Exception):
    """The other hosts are not there: one is still installing, or was taken away. A restart of all may help."""


_EXIT_CODES = {  # the first that fits
    BadInput: BAD_INPUT_EXIT_CODE,
    GivenUp: FAILED_EXIT_CODE,
    HostsLate: RESTART_EXIT_CODE,
    StorageOutage: RESTART_EXIT_CODE,
    StorageFailed: STORAGE_EXIT_CODE,
}
REPORTED = tuple(_EXIT_CODES)  # the kinds that end a command with a sentence and an exit code


def exit_code(error: Exception) -> int:
    """Returns the exit code of a command that an error ends."""
    reported = (code for kind, code in _EXIT_CODES.items() if isinstance(error, kind))
    return next(reported, runtime_exit_code(error) or FAILED_EXIT_CODE)


# What an error of the XLA runtime begins with (absl's status codes), and what broken connections are called, which come
# as UNKNOWN and INTERNAL. It is a JaxRuntimeError, or a ValueError where JAX dispatches asynchronously.
_STATUS = re.compile(r"([A-Z]+(?:_[A-Z]+)+|ABORTED|CANCELLED|INTERNAL|UNAVAILABLE|UNIMPLEMENTED|UNKNOWN): ")
_CONNECTION = re.compile(r"\bgloo\b|\bnccl|connection (closed|reset|refused)|socket closed|remote process exited", re.I)
_PASSING = ("UNAVAILABLE", "ABORTED", "CANCELLED", "DEADLINE_EXCEEDED", "DATA_LOSS")


def runtime_exit_code(error: BaseException) -> int | None:
    """Returns the exit code of an error of the XLA runtime, None of any other.

    RESTART_EXIT_CODE: a peer, a device or a connection was lost. FAILED_EXIT_CODE: it would come again, as memory that
    is exhausted, and what does not compile.
    """
    if not isinstance(error, RuntimeError | ValueError) or not (status := _STATUS.match(str(error))):
        return None
    if status[1] == "RESOURCE_EXHAUSTED":
        return FAILED_EXIT_CODE
    passes = status[1] in _PASSING or _CONNECTION.search(str(error))
    return RESTART_EXIT_CODE if passes else FAILED_EXIT_CODE


def visible(text: str) -> str:
    """Returns `text` with every character that is not printable, but line ends and tabs, as Python escapes it.

    So no escape sequence reaches a terminal, no direction mark hides what a program says ("Trojan Source",
    CVE-2021-42574), and lone surrogates, which no file takes, are written out.
    """
    return "".join(
        char if char in "\n\t" or char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def print_error(error: Exception) -> None:
    """Prints the error's sentence to stderr; nothing where it is empty, because another host prints it."""
    if str(error):
        say(f"error: {' '.join(str(error).split())}", sys.stderr)


def say(sentence: str, file: TextIO | None = None) -> None:
    """Prints to the process's stderr at once; what cannot be written, to a terminal that is closed, is lost."""
    with contextlib.suppress(OSError):
        print(visible(sentence), file=file or sys.__stderr__, flush=True)
