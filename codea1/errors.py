"""What a program tells in one sentence, without a traceback: a mistake of the user's, or a storage that fails."""


class BadInput(Exception):
    """A mistake in what the user gave: a config, a file, a row, a folder.

    The message is one sentence that names the file, row, key or question and says what is wrong. Programs print it
    without a traceback and exit with code 2.
    """


class MissingFile(BadInput):
    """A file that the user names and that is not there."""


class StorageFailed(OSError):
    """A disk or a bucket that fails, whatever was tried again. The message is one sentence that names what and why."""


class StorageOutage(StorageFailed):
    """The same, of a storage that may work again later: the run can be started again as it is."""
