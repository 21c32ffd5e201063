"""What a file of a run may say: anybody can have written it, and readers report what does not belong there."""

import re
from typing import Any

# Of a metric or a split: no markup, and nothing that steers a terminal.
NAME = re.compile(r"[\w@./ +()=,:'-]+", re.ASCII)
_LARGEST = {int: 1 << 63, float: 1e300}  # numbers that NumPy takes as such, and sums


def fits(value: Any, form: Any) -> bool:
    """Returns whether a value of JSON is of a form.

    A form is a type (float: any number that is finite and not huge), a text, None for null, ... for a field that is not
    there, a tuple of forms of which one is enough, [the form of all entries], {str: that of all fields}, or
    {name: form} of an object, which may have more.
    """
    match form:
        case tuple():
            return any(fits(value, option) for option in form)
        case list():
            return isinstance(value, list) and all(fits(item, form[0]) for item in value)
        case dict():
            fields = dict.fromkeys(value, form[str]) if str in form and isinstance(value, dict) else form
            return isinstance(value, dict) and all(fits(value.get(name, ...), part) for name, part in fields.items())
        case type() if type(value) in _LARGEST:
            return form in (float, type(value)) and abs(value) < _LARGEST[type(value)]
        case type():
            return isinstance(value, form)
    return type(value) is type(form) and value == form
