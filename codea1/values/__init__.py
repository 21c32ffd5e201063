"""Plain data as bytes, in two encodings that realise two different equalities.

The *exact* encoding keeps types apart (``True``, ``1`` and ``1.0`` differ) and can be decoded: it carries arguments and
values between processes and is the identity of a test. The *canonical* encoding is one-way: two values have the same
canonical bytes if and only if Python's ``==`` holds between them (``1 == 1.0 == True``, ``{1, 2} == {2, 1}``, a
namedtuple equals its tuple), so a trusted process compares answers without ever looking inside them. Which arguments
are one input is a wider equality still: see `encode_input`.

Both walk values by exact type. A subclass of a builtin counts as its base only if it inherits the base's ``__eq__`` and
``__hash__``; an object that could answer ``==`` in its own way is not plain data. Three deliberate departures from
``==``: NaN never equals anything (also not itself inside a list), and ``OrderedDict`` and ``Counter`` are dicts.

This module and those it imports use the standard library only: they run inside the sandbox too.
"""

from codea1.values.decoding import answers_equal, canonical_of, decode_exact, decode_fields
from codea1.values.encoding import NotPlainData, TooLarge, contains_nan, encode_canonical, encode_exact, encode_input

__all__ = [
    "NotPlainData",
    "TooLarge",
    "answers_equal",
    "canonical_of",
    "contains_nan",
    "decode_exact",
    "decode_fields",
    "encode_canonical",
    "encode_exact",
    "encode_input",
]
