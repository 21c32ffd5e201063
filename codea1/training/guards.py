"""What a run needs around it: the same input on every host, a sandbox, a watchdog, the folder's lock, signals.

What needs JAX, which takes seconds to import, is imported once the flags and the config are checked.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codea1.config import Config
from codea1.game.methods import own_files
from codea1.runs.folder import RunFolder
from codea1.runs.lock import opened
from codea1.runs.restarts import count_restart, forget_restarts
from codea1.runtime.errors import RESTART_EXIT_CODE, BadInput, GivenUp, StorageFailed, exit_code
from codea1.runtime.hosts import Hosts, end_for_lost
from codea1.runtime.jax_environment import COMPILED
from codea1.runtime.phases import doing, watchdog
from codea1.runtime.signals import Stopped, StopRequest
from codea1.sandbox.host.pool import SandboxPool
from codea1.storage.objects import is_remote
from codea1.training.stored_config import with_paths

if TYPE_CHECKING:
    from codea1.training.run import Run
    from codea1.training.setup import Components


@dataclass(frozen=True)
class RunInputs:
    """What a run and a dry run are made of, the same on every host."""

    config: Config
    workdir: str  # "": there is none
    own_files: Mapping[str, tuple[str, bytes]]
    parts: "Components"
    sandbox: SandboxPool


@contextlib.contextmanager
def run_inputs(read_config: Callable[[], Config], workdir: str, hosts: Hosts) -> Iterator[RunInputs]:
    """Reads what a run is made of and starts its sandbox; a watchdog is over the whole block.

    Args:
      read_config: returns the validated config.
      workdir: folder of the run, which is tried out and keeps nothing; "": there is none.

    Raises:
      BadInput: the config, what it names, this machine's sandbox or the folder cannot be used.
      StorageFailed: the folder cannot be read or written.
    """
    with contextlib.ExitStack() as stack:
        with hosts.agreed():
            config = read_config()
            stack.enter_context(watchdog(config.watchdog.restart_after, hosts.index, end_for_lost))
            if config.sft.start:
                raise BadInput("config.sft.start is set: this config is for codea1.sft, not for codea1.train.")
            files = own_files(config.game.reward, config.game.prompts)
            if config.model.dtype == "auto":
                from codea1.players.dtype import auto_dtype

                dtype, why = hosts.of_main(lambda: auto_dtype(RunFolder.config_in(workdir) if workdir else None))
                config = config.with_changes({"model.dtype": dtype})
                if hosts.is_main:
                    print(f"config.model.dtype is auto, here {config.model.dtype}: {why}")
            if workdir:
                values = config.to_dict()
                paths = hosts.of_main(lambda: RunFolder.check(workdir, values, files).paths)
                config = with_paths(config, paths, is_resumed=True)
            from codea1.training.setup import assemble, sandbox_pool

            with hosts.agreed(), doing("storage"):  # what one host lacks is reported, not that digests differ
                parts = assemble(config)
            hosts.require_same("the configs", json.dumps(config.to_dict(), sort_keys=True).encode())
            hosts.require_same("the files of the reward and the prompts", repr(files).encode())
            hosts.require_same("the questions", repr((parts.train, parts.held_out)).encode())
            sandbox = stack.enter_context(sandbox_pool(config.sandbox))
        yield RunInputs(config, workdir, files, parts, sandbox)


@contextlib.contextmanager
def guarded(
    inputs: RunInputs, hosts: Hosts, allow_previous_step: bool = False, allow_changed_model: bool = False
) -> "Iterator[Run]":
    """Opens the run in its workdir, and closes it whatever happens.

    Where the run was asked to stop, the process ends with RESTART_EXIT_CODE after the last whole step is saved.

    Args:
      allow_previous_step: go on from an older step where the newest is damaged.
      allow_changed_model: go on with model folders that have changed since.

    Raises:
      BadInput: the folder cannot be used.
      StorageFailed: it cannot be read or written.
      GivenUp: the run was restarted too often without a new step.
    """
    with contextlib.ExitStack() as stack:

        def open_locked() -> RunFolder:
            return stack.enter_context(opened(inputs.workdir, inputs.config.to_dict(), inputs.own_files))

        folder = hosts.of_main(open_locked)
        with hosts.agreed():
            folder.require_visible()
        from codea1.runtime.compilations import keep_compiled_in
        from codea1.training.run import Run

        if is_remote(folder.path) and os.environ.get("JAX_COMPILATION_CACHE_DIR") == COMPILED:
            keep_compiled_in(folder.compiled)  # the disk of a preempted VM is gone

        def end_well() -> None:
            if hosts.is_main:
                forget_restarts(folder)

        # Not before: what drives a TPU may take signals when it starts.
        stop = stack.enter_context(StopRequest(end_well))
        if sentence := hosts.of_main(lambda: count_restart(folder)):
            raise GivenUp(sentence if hosts.is_main else "")
        try:
            allowed = allow_previous_step, allow_changed_model
            with Run(inputs.config, inputs.parts, inputs.sandbox, folder, hosts, stop, *allowed) as run:
                yield run
        except Exception as error:
            if isinstance(error, Stopped) or exit_code(error) != RESTART_EXIT_CODE:
                with contextlib.suppress(StorageFailed):
                    end_well()
            if isinstance(error, Stopped):
                sys.exit(RESTART_EXIT_CODE)
            raise
        end_well()
