"""How every command starts and ends: flags read, hosts joined, errors printed in one sentence.

Nothing here imports JAX, and commands import what needs it in their `main`: a wrong flag is reported at once.
"""

import faulthandler
import os
import runpy
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from io import TextIOWrapper
from typing import Any, NoReturn

from absl import flags, logging

from codea1.runtime import hosts
from codea1.runtime.errors import (
    BAD_INPUT_EXIT_CODE,
    FAILED_EXIT_CODE,
    REPORTED,
    RESTART_EXIT_CODE,
    AgreedBadInput,
    BadInput,
    GivenUp,
    StorageFailed,
    exit_code,
    print_error,
    runtime_exit_code,
)
from codea1.runtime.jax_environment import set_up_jax
from codea1.runtime.removed import COMMANDS, removed_name
from codea1.runtime.settings import NO_FIELDS, Fields, nearest, split_changes


def dispatch(program: str, package: str, about: str | None, commands: Mapping[str, str]) -> None:
    """Runs the command that the first argument names, a module of `package`; without one prints what there are.

    Args:
      program: how the user calls this.
      about: printed before the list.
      commands: what each is for, by its name.
    """
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print(about)
        for command, what in commands.items():
            print(f"  {command:12} {what}")
        print(f"\n{program} COMMAND --help says more.")
    elif name == "--version":
        print(f"codea1 {version('codea1')}")
    elif name not in commands:
        gone = removed_name(program, name, COMMANDS)
        print(f"error: {gone or f'{program} has no command {name!r}; {program} --help lists them.'}", file=sys.stderr)
        sys.exit(BAD_INPUT_EXIT_CODE)
    else:
        sys.argv[:2] = [f"{program} {name}"]
        runpy.run_module(f"{package}.{name}", run_name="__main__", alter_sys=True)


def run(main: Callable[..., None], argument: str = "", many: bool = False, config_fields: Fields = NO_FIELDS) -> None:
    """Parses the flags, calls `main` and exits.

    0 when done; where an error of `errors.REPORTED` is raised, its sentence goes to stderr, and its exit code is used.

    Args:
      argument: name of the positional argument that `main` gets, such as "RUN"; "": there is none.
      many: whether there may be several of them.
      config_fields: defaults of what --config.FIELD can set, by dotted name.
    """
    logging.set_verbosity(logging.WARNING)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a locale without UTF-8, or a name that is none, ends no command
            stream.reconfigure(errors="backslashreplace")
    faulthandler.enable(2)  # a library that crashes says in which call
    # Policies write programs that Python parses with warnings.
    warnings.simplefilter("ignore", SyntaxWarning)
    if {"-h", "--help"} & set(sys.argv[1:]):
        ours = (module for module in flags.FLAGS.flags_by_module_dict() if "codea1" in module)  # and no library's
        print(sys.modules["__main__"].__doc__, *map(flags.FLAGS.module_help, ours), sep="\n")
        sys.exit(0)
    try:
        rest = _parse_flags(flags.FLAGS, sys.argv, config_fields)[1:]
        if argument and not rest:
            raise BadInput(f"{argument} is missing.")
        if len(rest) > bool(argument) and not many:
            raise BadInput(f"{rest[-1]!r} is not a flag of this command.")
        set_up_jax()
        main(*rest)
    except SystemExit as end:
        _part(int(end.code or 0))
    except REPORTED as error:
        print_error(error)
        if isinstance(error, AgreedBadInput | GivenUp):
            _part(exit_code(error))
        # Where one array cannot be written, the threads of Orbax wait ten minutes for its end, and Python for theirs.
        _leave(exit_code(error), at_once=isinstance(error, StorageFailed))
    except KeyboardInterrupt:
        _leave(130)
    except Exception as error:
        _end_for(error)
    else:
        if _has_joined():
            _part(0)


def _end_for(error: Exception) -> NoReturn:
    """Ends the process for an error that nothing expected: an exception, or one of the XLA runtime."""
    code, during = runtime_exit_code(error), vars(error).get("during", "the start")
    first_line = str(error).partition("\n")[0]
    frames = traceback.walk_tb(error.__traceback__)
    if any(frame.f_globals.get("__name__") == "jax._src.xla_bridge" for frame, _ in frames):
        _end_without_devices(first_line)
    if code == RESTART_EXIT_CODE:
        hosts.end_for_lost(during)
        print_error(Exception(f"{first_line} (during {during}); the same command goes on."))
        _leave(RESTART_EXIT_CODE, at_once=True)
    traceback.print_exception(error)
    if code == FAILED_EXIT_CODE:
        out_of_memory = "RESOURCE_EXHAUSTED" in first_line
        remedy = "; lower micro_batch_size of the player, or rollout.slots" if out_of_memory else ""
        print_error(Exception(f"a restart would fail again during {during}{remedy}."))
    _leave(FAILED_EXIT_CODE)


def _end_without_devices(said: str) -> NoReturn:
    """Ends the process where JAX finds no device, which may pass: one is held by a process that ends, or comes back."""
    asked = os.environ.get("JAX_PLATFORMS")
    which = f"of JAX_PLATFORMS={asked}" if asked else "that it can use"
    because = ": " * bool(said) + said.partition(" (set JAX_PLATFORMS")[0].rstrip(".")  # of cuda nothing is said
    if "not in the list of known backends" in said:
        print_error(BadInput(f"JAX knows no device {which}{because}; it may be cpu, cuda or tpu, where installed."))
        _leave(BAD_INPUT_EXIT_CODE)
    print_error(Exception(f"JAX finds no device {which}{because}; start again where there is one."))
    _leave(RESTART_EXIT_CODE)


def _part(code: int) -> NoReturn:
    """Ends this process as all hosts end theirs, once each has done its work.

    Among several hosts not as Python ends: of what libraries then destroy some may abort, and by that time the handler
    that would say so (`codea1.runtime.roll_call`) has no Python to run in, and never returns.
    """
    if _has_joined():
        hosts.part()
        _exit(code)
    sys.exit(code)


def _leave(code: int, at_once: bool = False) -> NoReturn:
    """Ends this process, and with it those of the other hosts.

    An ordinary exit waits for the other hosts to end too, while they wait for this one in a collective. With `at_once`
    it does not wait for the threads of this process either.
    """
    if at_once or _has_joined():
        hosts.leave(code)
        _exit(code)
    sys.exit(code)


def _has_joined() -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and jax.distributed.is_initialized()


def _exit(code: int) -> NoReturn:
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None: closed by the parent process
        stream.flush()
    os._exit(code)


def _parse_flags(values: flags.FlagValues, words: Sequence[str], fields: Fields) -> list[str]:
    """Returns what is left of the command line; `codea1.config_file` reads --config.FIELD."""
    if "config" in values:
        _, words = split_changes(words, fields)
    try:
        return values(words)
    except flags.UnrecognizedFlagError as error:
        near = nearest(error.flagname, fields) if "Did you mean" not in str(error) else ""
        raise BadInput(f"{error}{f'. Did you mean: --config.{near} ?' if near else ''}") from None
    except flags.Error as error:
        raise BadInput(f"{str(error).rstrip('.')}.") from None


def define_hosts() -> Callable[[], hosts.Hosts]:
    """Defines the flags of `jax.distributed.initialize`; the returned function joins the hosts once flags are parsed.

    It must be called before any device is used; see `codea1.runtime.hosts.join`.
    """
    shared: dict[str, Any] = {"allow_override": True}  # one process may import several commands, and runs one of them
    address = flags.DEFINE_string("coordinator_address", None, "host 0's address and a free port, host:port", **shared)
    count = flags.DEFINE_integer("num_processes", None, "hosts of the run", lower_bound=1, **shared)
    index = flags.DEFINE_integer("process_id", None, "which of them this is, from 0", lower_bound=0, **shared)

    return lambda: hosts.join(address.value, count.value, index.value)


def define_changed_model() -> flags.FlagHolder[bool]:
    """Defines --allow_changed_model."""
    help = "use model folders that have changed since the checkpoint was saved, and record that"
    return flags.DEFINE_bool("allow_changed_model", False, help, allow_override=True)
