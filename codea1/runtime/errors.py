"""The errors that end a command with one sentence instead of a traceback, and their exit codes."""

import contextlib
import sys
from typing import TextIO

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


class HostsLate(Exception):
    """The other hosts are not there: one is still installing, or was taken away. A restart of all may help."""


_EXIT_CODES = {  # the first that fits
    BadInput: BAD_INPUT_EXIT_CODE,
    HostsLate: RESTART_EXIT_CODE,
    StorageOutage: RESTART_EXIT_CODE,
    StorageFailed: STORAGE_EXIT_CODE,
}
REPORTED = tuple(_EXIT_CODES)  # the kinds that end a command with a sentence and an exit code


def exit_code(error: Exception) -> int:
    """Returns the exit code of an error that is one of REPORTED."""
    return next(code for kind, code in _EXIT_CODES.items() if isinstance(error, kind))


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
