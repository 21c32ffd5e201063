"""What is compiled ahead of time is what a player compiles when it runs, and its memory is counted right."""

import jax
import pytest
from ml_collections import ConfigDict

from bench.micro_run import make_micro_config
from codea1.lab.aot.compilation import fingerprint
from codea1.lab.aot.jobs import Plan, bytes_per_device, largest
from codea1.players.player import Player
from codea1.runtime.compilations import compile_all, compiled_functions
from tests.player_functions_test import planned_of, player_of

GIB = 1 << 30


def changed(config: ConfigDict) -> ConfigDict:
    config.method = "golden"  # one player is enough
    config.code.max_prompt_length, config.test.max_prompt_length = 40, 80
    config.code.prompt_lengths = (16,)
    config.code.row_lengths = (32,)
    config.code.advantage = "gae"
    return config


@pytest.fixture
def config(micro_config):
    return changed(micro_config)


@pytest.fixture(scope="module")
def planned(model_folder, data_folder) -> Plan:
    return planned_of(changed(make_micro_config(model_folder, data_folder)))


@pytest.fixture(scope="module")
def player(model_folder, data_folder) -> Player:
    return player_of(changed(make_micro_config(model_folder, data_folder)))


def size_of(tree) -> int:
    return sum(x.nbytes for x in jax.tree.leaves(tree))


def test_what_is_planned_is_what_a_player_compiles(planned, player):
    compiled_functions.clear()  # other tests may have compiled functions that this one looks for
    for phase, functions in (("rollout", player.functions.generation), ("learn", player.functions.learning)):
        compiled = compile_all(functions)
        assert [job.function.name for job in planned.jobs if job.phase == phase] == [each.name for each in compiled]
    known = set(compiled_functions)
    for job in planned.jobs:
        assert job.function.compiled  # of another list, for the same devices
    assert set(compiled_functions) == known


def test_residents_are_as_large_as_the_arrays_of_a_player(planned, player):
    assert planned.residents["code: parameters and moments"] == size_of(player.states["code"])
    assert planned.residents["code: critic and its optimizer"] == size_of(player.states["code_critic"])
    assert planned.residents["code: reference"] == size_of(player.state.params)


@pytest.mark.parametrize("frozen", ["", "test"])
def test_two_players_of_adapters_have_one_base(micro_config, frozen):
    micro_config.frozen = frozen
    for player in (micro_config.code, micro_config.test):
        player.lora.rank = 4
    planned = planned_of(micro_config)
    player = player_of(micro_config)
    assert planned.residents["code: frozen base"] == size_of(player.base)
    assert planned.residents["code: reference"] == size_of(player.state.params)
    assert planned.residents["code: published weights"] == size_of(player.state.params)  # the base is there
    assert not {"test: frozen base", "test: parameters"} & planned.residents.keys()
    (accumulate,) = (job for job in planned.jobs if (job.player, job.function.kind) == ("code", "accumulate"))
    trained, base, gradients, _ = map(bytes_per_device, accumulate.function.arguments)
    assert (trained, base, gradients) == (size_of(player.state.params), size_of(player.base), trained)
    others = {name: size for name, size in planned.residents.items() if "pages" not in name and "published" not in name}
    others = sum(size for name, size in others.items() if name != "test: micro-batches")
    assert accumulate.others == others - trained - base


def test_the_largest_of_each_kind(planned):
    chosen = largest(planned)
    assert {job.function.kind for job in chosen} == {job.function.kind for job in planned.jobs}
    assert [job.function.name for job in chosen if job.function.kind == "score"] == ["score 2 x 64"]
    (decode,) = (job for job in chosen if job.function.kind == "decode")
    assert decode.function.name == "decode 8 slots"


def test_players_of_one_model_share_the_largest(config):
    config.method = "code_a1"
    planned = planned_of(config)
    chosen = {job.function.kind: job for job in largest(planned)}
    assert len(chosen) == len(largest(planned))
    assert chosen["decode"].player == chosen["prefill"].player == "test"  # its prompts are longer
    assert chosen["critic apply"].player == "code"  # the only one with a critic


def test_arguments_and_what_is_beside_them_are_all_there_is(planned):
    always = sum(
        size for name, size in planned.residents.items() if name.endswith(("moments", "optimizer", "reference"))
    )
    for job in planned.jobs:
        if job.function.kind in ("score", "accumulate", "apply"):
            own = bytes_per_device(job.function.arguments[0])
            assert job.others + own == always + planned.residents["code: micro-batches"], job.function.name


def test_equal_functions_have_equal_fingerprints_and_others_have_not(planned):
    functions = [job.function for job in planned.jobs if job.function.kind == "score"]
    first, again, other = (fingerprint(each.lower(), "v5e-4") for each in (functions[0], functions[0], functions[1]))
    assert first == again
    assert len({first, other, fingerprint(functions[0].lower(), "v6e-4")}) == 3
