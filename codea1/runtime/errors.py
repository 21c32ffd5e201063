"""What a program tells in one sentence, without a traceback, and the exit code that it then ends with.

Without JAX: commands that need no device start without it.
"""

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")

BAD_INPUT_EXIT_CODE = 2
# A disk or bucket that fails until somebody mends it: sysexits.h's EX_IOERR.
STORAGE_EXIT_CODE = 74
# A program that ends with this code, sysexits.h's EX_TEMPFAIL, says: start me again with the same workdir. The scripts
# of launch/ do.
RESTART_EXIT_CODE = 75


class BadInput(Exception):
    """A mistake in what the user gave: a config, a file, a row, a folder.

    The message is one sentence that names the file, row, key or question and says what is wrong. Programs print it
    without a traceback and exit with code 2.
    """


class AgreedBadInput(BadInput):
    """Bad input that every host knows of: all leave together. Its sentence is empty where another host tells it."""


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
TOLD = tuple(_EXIT_CODES)  # the kinds that end a program by a sentence and an exit code


def exit_code(error: Exception) -> int:
    """Returns the exit code of an error that is one of TOLD."""
    return next(code for kind, code in _EXIT_CODES.items() if isinstance(error, kind))


def tell(error: Exception) -> None:
    """Prints the error's sentence to stderr; nothing where it is empty, because another host prints it."""
    if str(error):
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)


def with_exit_code(main: Callable[P, int | None]) -> Callable[P, int]:
    """Wraps the `main` of a command with flags of argparse, so that it returns its exit code.

    0 where `main` returns None, 130 after Control-C; the code of an error that is one of TOLD, after its sentence on
    stderr.
    """

    @functools.wraps(main)
    def told(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            return main(*args, **kwargs) or 0
        except TOLD as error:
            tell(error)
            return exit_code(error)
        except KeyboardInterrupt:
            return 130

    return told
