"""The one exception that means: the user gave something that cannot work."""


class BadInput(Exception):
    """A mistake in what the user gave: a config, a file, a row, a folder.

    The message is one sentence that names the file, row, key or question and says what is wrong. Programs print it
    without a traceback and exit with code 2.
    """
