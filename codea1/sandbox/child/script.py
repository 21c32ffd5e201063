"""A sandbox child's life with a benchmark's check script, whose `candidate` is a proxy for another child.

The script and the program never share a process: arguments and results travel in the exact encoding. Other functions of
the program that the script calls are proxies too. What cannot be encoded comes back as an `Inert` object, and what is
too large to send at once as a `Large` one. An exception that the program raises is raised again in the script, as a
subclass of `CandidateRaised` and of the builtin that it is or is derived from; but not of StopIteration, with which a
program would end a loop of the script's.

Standard library only: this runs inside the sandbox.
"""

import builtins
import contextlib
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from codea1.sandbox import frames
from codea1.sandbox.child.candidate import describe, new_module, seed_randomness
from codea1.values import decode_exact, decode_fields, encode_exact
from codea1.values.encoding import MAX_BYTES
from codea1.values.entry_points import CHECKERS, builtin_among, kinds_raised
from codea1.values.verdict import Verdict

_ENDS_LOOPS = (StopIteration, StopAsyncIteration)
_ALL_ANSWERS = 1 << 40  # a script may call many times; each answer is bounded on its own


class CandidateRaised(Exception):
    """The program raised; `str()` is the type and message it raised with."""


class CandidateLost(BaseException):
    """The program's process is gone or broke the protocol, so that the script cannot go on."""


class Inert:
    """A result that is not plain data: it is something, but equals nothing and does nothing."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"<{self.kind}>"

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__


class Large(Inert):
    """A list or tuple that is too large to send at once: it has a length, and `==` fetches it piece by piece."""

    __slots__ = ("_candidate", "_compared", "_length", "_number", "_type")

    def __init__(self, candidate: "Candidate", number: int, type_: type, length: int) -> None:
        super().__init__(f"a {type_.__name__} of {length}")
        self._candidate, self._number = candidate, number
        self._type, self._length = type_, length
        self._compared: tuple[object, bool] | None = None  # the last operand of `==`: scripts compare twice

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        if self._compared is None or self._compared[0] is not other:
            is_equal = (
                type(other) is self._type
                and isinstance(other, list | tuple)
                and len(other) == self._length
                and all(self._piece_equals(other, start) for start in range(0, self._length, frames.PIECE_ITEMS))
            )
            self._compared = (other, is_equal)
        return self._compared[1]

    __hash__ = object.__hash__

    def _piece_equals(self, other: list | tuple, start: int) -> bool:
        piece = other[start : start + frames.PIECE_ITEMS]
        with contextlib.suppress(ValueError):  # marshal knows fewer types
            if self._candidate.piece(self._number, start, marshalled=True) == frames.marshal_piece(piece):
                return True
        exact = self._candidate.piece(self._number, start, marshalled=False)
        return exact is not None and self._candidate.decoded(exact) == piece


class Printed(str):
    """What a program printed, where a checker says what equals it."""

    _checker: Callable[[str, str], bool]

    def __new__(cls, printed: str, checker: Callable[[str, str], bool]) -> "Printed":
        self = super().__new__(cls, printed)
        self._checker = checker
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self._checker(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class Candidate:
    """What a check script gets as `candidate`: calls it and the call happens in the program's process."""

    def __init__(self, fd: int, entry_point: str) -> None:
        self.__name__ = entry_point
        self._fd = fd
        self._requests = 0
        self._large = 0
        self.lost: CandidateLost | None = None  # a script may catch it, and is wrong from then on

    def load(self, program: str) -> str:
        """Sends the program; returns "" or what loading it raised."""
        request = frames.pack_program(program, frames.Reply.IN_PIECES, seed=0, output_bytes=_ALL_ANSWERS)
        answer = self._exchange(request, frames.LOAD)
        if answer.kind == frames.LOADED:
            return ""
        return answer.payload.decode("utf-8", "replace") or "an exception without a name"

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.call(self.__name__, *args, **kwargs)

    def call(self, name: str, /, *args: object, **kwargs: object) -> object:
        """Calls any function of the program."""
        answer = self._numbered(frames.pack_call(self._requests, name, encode_exact((args, kwargs))))
        if answer.kind == frames.VALUE:
            value = self.decoded(answer.payload)
            return Printed(value, CHECKERS[name]) if name in CHECKERS and isinstance(value, str) else value
        if answer.kind == frames.PIECES:
            is_tuple, length = self.decoded(answer.payload, bool, int)
            self._large += 1
            return Large(self, self._large - 1, tuple if is_tuple else list, length)
        text = answer.payload.decode("utf-8", "replace")
        if answer.kind in (frames.OPAQUE, frames.TOO_LARGE):
            return Inert(text)
        if answer.kind == frames.ERROR:
            raise _raised(text)
        raise self.broken()

    def broken(self) -> CandidateLost:
        """Gives the program up for what no honest child sends."""
        self.lost = CandidateLost("broke the protocol")
        return self.lost

    def decoded(self, payload: bytes, *types: type) -> Any:
        """Decodes what the program claims it returned; a tuple of exactly these types, where there are some."""
        try:
            return decode_fields(payload, *types) if types else decode_exact(payload)
        except ValueError:
            raise self.broken() from None

    def piece(self, number: int, start: int, *, marshalled: bool) -> bytes | None:
        """Fetches a piece of a large value; None when it cannot be had that way."""
        answer = self._numbered(frames.pack(self._requests, frames.FETCH, encode_exact((number, start, marshalled))))
        return answer.payload if answer.kind == frames.VALUE else None

    def _numbered(self, request: bytes) -> frames.Frame:
        answer = self._exchange(request, self._requests)
        self._requests += 1
        return answer

    def _exchange(self, request: bytes, index: int) -> frames.Frame:
        if self.lost is None:
            try:
                frames.write(self._fd, request)
                answer = frames.read(self._fd, max_payload=MAX_BYTES)
                if answer is not None and answer.index == index:
                    return answer
                self.lost = CandidateLost("ended") if answer is None else self.broken()
            except OSError:
                self.lost = CandidateLost("ended")
            except frames.ProtocolViolation:
                self.lost = self.broken()
        raise self.lost


def _raised(text: str) -> CandidateRaised:
    """Makes the exception for what the program raised, so that a script's ``except ValueError`` sees a ValueError."""
    kinds, (_, colon, message) = kinds_raised(text), text.partition(": ")
    text, base = f"{kinds[0]}{colon}{message}", builtin_among(kinds)  # without the bases
    kind: type[CandidateRaised] = CandidateRaised
    if base is not None and issubclass(base, Exception) and not issubclass(base, _ENDS_LOOPS):
        try:
            kind = type(base.__name__, (CandidateRaised, base), {})
            return kind(text)
        except TypeError:  # a builtin with a layout or constructor of its own, such as UnicodeDecodeError
            pass
    return CandidateRaised(text)


def serve(job_fd: int, job: frames.Frame, candidate_fd: int) -> None:
    """Runs one check script against the program behind `candidate_fd` and sends one VERDICT frame to `job_fd`."""
    script, program, entry_point = decode_exact(job.payload)
    verdict, detail = _judge(script, program, Candidate(candidate_fd, entry_point))
    payload = encode_exact((verdict.value, detail[: frames.MAX_WORDS]))
    frames.write(job_fd, frames.pack(0, frames.VERDICT, payload))


def _names(code: Any) -> set[str]:
    """Returns the names of globals and attributes in a code object and those inside of it."""
    inside = [_names(constant) for constant in code.co_consts if type(constant) is type(code)]
    return set(code.co_names).union(*inside)


def _judge(script: str, program: str, candidate: Candidate) -> tuple[Verdict, str]:
    """Returns the verdict and words on it; "candidate ..." and "script ..." tell whose doing it is."""
    raised: BaseException | None = None
    try:
        load_error = candidate.load(program)
        if load_error:
            return Verdict.ERROR, f"candidate raised on load: {load_error}"
        seed_randomness(0)
        code = compile(script, "<check_script>", "exec", dont_inherit=True)
        namespace = new_module("check_script")
        # Some scripts call what the program has besides, and some the candidate by its name, whatever `check` is given.
        # What the script defines or imports itself, and Python's own functions, stay what they are.
        # A program behind a preamble is a text in another.
        begun = re.findall(r"""(?:^|\\n|['"])(?:async )?def[ \t]+(\w+)""", program, re.MULTILINE)
        defined = {*begun} - vars(builtins).keys()
        called = {name for name in _names(code) & defined if not name.startswith("__")}
        namespace |= {name: partial(candidate.call, name) for name in called}
        namespace[candidate.__name__] = candidate
        exec(code, namespace)
        namespace["check"](candidate)
    except BaseException as error:
        raised = error
    if candidate.lost is not None:  # whatever the script made of it
        return Verdict.ERROR, f"candidate {candidate.lost}"
    if raised is None:
        return Verdict.PASS, ""
    if isinstance(raised, CandidateRaised):
        return Verdict.ERROR, f"candidate raised {raised}"
    words = describe(raised).decode("utf-8", "replace")
    return (Verdict.FAIL, words) if isinstance(raised, AssertionError) else (Verdict.ERROR, f"script raised {words}")
