"""Writes one player of a run as a folder that `transformers` and vLLM, or PEFT, load; see docs/models.md."""

import contextlib
import os

import jax
from flax import nnx

from codea1.data.tokenizer import copy_tokenizer
from codea1.game.methods import METHODS
from codea1.lab import model_writer
from codea1.lab.model_writer import merged
from codea1.models import peft, qwen2
from codea1.models.config import SpecialIds, require_divisible
from codea1.models.files import ModelFolder
from codea1.models.lora import split
from codea1.players.base import Start, require_base
from codea1.players.functions import player_model
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput, StorageFailed
from codea1.runtime.hosts import Hosts
from codea1.sharding import TRAIN_RULES, laid_out, make_mesh, param_shardings
from codea1.storage.faults import reason
from codea1.training.stored_config import config_of


def export(
    run: RunFolder,
    player: str,
    step: str,
    output: str | os.PathLike[str],
    dtype: str,
    hosts: Hosts,
    merge: bool = False,
    base: str = "",
    allow_changed_model: bool = False,
) -> None:
    """Writes the parameters of one player at one checkpoint, with its tokenizer.

    Adapters are written alone, in float32, for PEFT; or with `merge` the whole model, in which they are added to the
    kernels of their base.

    Args:
      base: what the adapters call their base, for PEFT; by default the absolute path or URL of its folder.
      allow_changed_model: exports with files of the folder that the player started from as they are now.

    Raises BadInput: there is no such checkpoint, the folder that the player started from has gone or is another, there
    is nothing to merge, or `output` holds something or cannot be written.
    """
    folder = ModelFolder(output)
    with hosts.agreed():
        config = config_of(run)
        roles = METHODS[config.method].roles
        if player not in roles:
            raise BadInput(f"{run.path} has no {player} policy: its method is {config.method}.")
        player = roles[player]
        if player == config.frozen:
            raise BadInput(f"the {player} policy of {run.path} is frozen: it still is {config.policy(player).model}.")
        hosts.of_main(lambda: _require_empty(folder))
        checkpoints = Checkpoints.reader(run.checkpoints)
        number = hosts.of_main(lambda: checkpoints.named(step, files="arrays/"))
        start = Start(config.policy(player).model)
        tokenizer = start.tokenizer()
        mesh = make_mesh(1, -1, 1)  # cut over all devices there are, whatever the run had
        shape = player_model(player, config, start.model(), mesh)
        require_divisible(shape, mesh)
        if (merge or base) and not shape.lora_rank:
            flag = "--merge" if merge else "--base"
            raise BadInput(f"{flag} is for adapters: all weights of the {player} policy of {run.path} have learned.")
        hosts.of_main(lambda: require_base(config, player, checkpoints, number, allow_changed=allow_changed_model))
    _, abstract = qwen2.abstract(shape)
    shardings = param_shardings(abstract, mesh, TRAIN_RULES)
    wanted, _ = split(laid_out(nnx.to_pure_dict(abstract), shardings))
    params = checkpoints.restore_part(number, {player: {"params": wanted}})[player]["params"]
    if merge:
        _, of_base = split(shardings)
        whole = start.checkpoint().place(of_base, "float32")  # so that sums are rounded once
        merging = jax.jit(merged, static_argnums=2, donate_argnums=0, out_shardings=of_base)
        params = merging(whole, params, shape.lora_alpha / shape.lora_rank)
    is_alone = shape.lora_rank > 0 and not merge
    dtype = "float32" if is_alone else dtype
    params = jax.tree.map(lambda x: x.astype(dtype), params)
    with contextlib.ExitStack() as on_failure:
        if hosts.is_main:
            on_failure.callback(folder.remove)
            copy_tokenizer(start.tokenizer_folder, folder)
        if is_alone:
            checksum = hosts.of_main(start.checksum)
            of_base = peft.Base(start.base.place, checksum)
            model_writer.save_adapters(folder.url, params, alpha=shape.lora_alpha, base=of_base, name=base)
        else:
            model_writer.save(folder.url, shape, params, ids=SpecialIds(tokenizer.stop_ids, tokenizer.pad_id))
        on_failure.pop_all()  # it is whole: nothing is removed
    if hosts.is_main:
        prefix = "the adapters of " if is_alone else ""
        print(f"wrote {folder}: {prefix}the {player} policy of {run.path} after step {number}, in {dtype}")


def _require_empty(folder: ModelFolder) -> None:
    names = folder.names()
    if names and "config.json" not in names:
        raise BadInput(f"--output {folder} holds {names[0]} but no model; remove what an export left that was cut off.")
    if names:
        raise BadInput(f"--output {folder} holds a model already.")
    try:
        folder.write(".probe", [b""])
        folder.remove()
    except StorageFailed as error:
        raise BadInput(f"--output {folder} cannot be written: {reason(error.__cause__ or error)}.") from None
