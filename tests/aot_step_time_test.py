"""The time of a step: the engine's own scheduler on a clock, without devices."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from codea1.config import default_config
from codea1.lab.aot.compilation import CompilerResult
from codea1.lab.aot.cost import REACHED, Cost
from codea1.lab.aot.kernels import Bundles, KernelTimes, count_bundles
from codea1.lab.aot.step_time import SampledLengths, lognormal, of_run, simulate
from codea1.lab.aot.work import CHIPS
from codea1.models.attention import Packing, splash_block
from codea1.models.config import SpecialIds, tiny_model
from codea1.models.kv_cache import PageTable, page_bytes
from codea1.players.functions import PlayerFunctions
from codea1.runs.folder import RunFolder
from codea1.runs.samples import Samples
from codea1.runtime.errors import BadInput
from codea1.sharding import make_mesh

CHIP = CHIPS["v5e"]


def config(**rollout: int) -> ConfigDict:
    c = default_config()
    c.questions_per_step, c.game.num_solutions, c.game.num_suites, c.game.trained_solutions = 3, 2, 4, 2
    c.rollout.slots = 8
    for player in (c.code, c.test):
        player.max_prompt_length, player.max_response_length, player.micro_batch_size = 32, 64, 4
        player.prompt_lengths, player.row_lengths, player.mini_batches = (), (48,), 2
    c.rollout.update(rollout)
    return c


def players(c: ConfigDict) -> dict[str, PlayerFunctions]:
    mesh = make_mesh(1, 1, 1, jax.devices()[:1])
    ids = SpecialIds((1,), 0)
    return {name: PlayerFunctions(name, c, mesh, tiny_model(vocab_size=64), ids) for name in ("code", "test")}


def results(own: PlayerFunctions, cycles: dict[str, tuple[float, float]]) -> dict[str, CompilerResult]:
    """Functions that cost so many cycles, and so many for each further turn, by kind; others cost nothing."""
    found = {}
    for function in (*own.generation, *own.learning):
        once, turn = cycles.get(function.kind, (0.0, 0.0))
        found[function.name] = CompilerResult(0, 0, 0, 0, {}, 0.0, Cost(once), Cost(turn))
    return found


def step(cycles, lengths: dict[str, SampledLengths], **rollout: int):
    c = config(**rollout)
    own = players(c)
    found = {name: results(each, cycles) for name, each in own.items()}
    return simulate(c, own, found, lengths, CHIP, no_kernels)


def no_kernels(wanted):
    raise AssertionError(f"on a CPU there are none, and {wanted} were wanted")


def equal(response: int) -> dict[str, SampledLengths]:
    return {
        "code": SampledLengths(np.full(3, 10), np.full((3, 2), response)),
        "test": SampledLengths(np.full(6, 20), np.full((6, 4), response)),
    }


def test_decoding_takes_its_steps_and_a_chunk_what_it_begins_with():
    clock, _ = step({"decode": (7.0, 2.0)}, equal(response=40))
    # Six samples decode at once, in chunks of 16, 16 and 8 steps; then 24 in three rounds of eight slots.
    chunks, steps = {"code": 3, "test": 9}, {"code": 40, "test": 120}
    for role in chunks:
        cycles = 7 * chunks[role] + 2 * (steps[role] - chunks[role])
        assert clock.seconds(f"{role}: decode") == pytest.approx(cycles / CHIP.clock)


def test_several_replicas_make_all_steps_of_a_chunk():
    c = config()
    own = players(c)
    for each in own.values():
        each.engine.decoding = dataclasses.replace(each.engine.decoding, replicas=2)
    found = {name: results(each, {"decode": (7.0, 2.0)}) for name, each in own.items()}
    clock, _ = simulate(c, own, found, equal(response=40), CHIP, no_kernels)
    # Three chunks of 16 steps, where 40 tokens are drawn.
    assert clock.seconds("code: decode") == pytest.approx(3 * (7 + 15 * 2) / CHIP.clock)


def test_a_guessing_chunk_ends_when_a_slot_that_guesses_all_right_has_no_room():
    alone = {role: SampledLengths(np.full(1, 10), np.full((1, 2), 61)) for role in ("code", "test")}
    clock, _ = step({"decode": (7.0, 2.0)}, alone, slots=32, guesses=3)
    # 64 tokens of it are 16 steps, in which these draw 20 and 30 tokens: 61 are three such chunks, or two, and a step.
    for role, chunks, last in (("code", 3, 1), ("test", 2, 1)):
        cycles = 7 * (chunks + 1) + 2 * (16 * chunks + last - (chunks + 1))
        assert clock.seconds(f"{role}: decode") == pytest.approx(cycles / CHIP.clock)


def test_stragglers_decode_until_the_last_token():
    lengths = equal(response=5)
    lengths["code"].responses[1, 1] = 60
    clock, _ = step({"decode": (1.0, 1.0)}, lengths)
    assert clock.seconds("code: decode") == pytest.approx(60 / CHIP.clock)


def test_each_prompt_is_prefilled_and_copied_to_its_samples():
    clock, _ = step({"copy_pages": (1.0, 1.0)}, equal(response=5))
    assert clock.seconds("test: prefill") == pytest.approx(24 / CHIP.clock)  # one turn a sample
    clock, _ = step({"prefill": (1.0, 0.0)}, equal(response=5))
    assert clock.seconds("test: prefill") == pytest.approx(6 / CHIP.clock)  # one prompt at a time, in eight slots


def test_the_update_runs_each_micro_batch_and_scores_what_is_needed():
    c = config()
    lengths = equal(response=30)
    lengths["test"].responses[:] = 20  # fits rows of 48
    clock, trained = step({"accumulate": (10.0, 0.0), "apply": (1.0, 0.0), "score": (100.0, 0.0)}, lengths)
    assert c.code.old_log_probs == "trainer"
    assert c.code.kl_coefficient > 0
    # Two mini-batches of 12 suites, in micro-batches of eight rows of 48; those of the second are scored twice.
    assert clock.seconds("test: update") == pytest.approx((2 * 2 * 10 + 2) / CHIP.clock)
    assert clock.seconds("test: log-probs") == pytest.approx((2 * 100 + 2 * 200) / CHIP.clock)
    # Solutions: three in each, of 40 tokens.
    assert clock.seconds("code: update") == pytest.approx((2 * 1 * 10 + 2) / CHIP.clock)
    assert trained == {"code": 6 * 40, "test": 24 * 40}


def test_shared_prompts_are_one_row_of_each_group():
    c = config()
    c.test.share_prompts = True
    own = players(c)
    found = {name: results(each, {"accumulate": (10.0, 0.0)}) for name, each in own.items()}
    clock, trained = simulate(c, own, found, equal(response=10), CHIP, no_kernels)
    # Three groups in each mini-batch, of 19 + 4 x 11 positions, in four rows of 96; code: three rows of 48.
    assert clock.seconds("test: update") == pytest.approx(2 * 10 / CHIP.clock)
    assert clock.seconds("code: update") == pytest.approx(2 * 10 / CHIP.clock)
    assert trained == {"code": 6 * 20, "test": 6 * 20 + 24 * 10}


def test_one_policy_in_both_roles_learns_once_from_the_samples_of_both():
    c = config()
    c.method = "self_play"
    own = {"code": players(c)["code"]}
    cycles = {"accumulate": (10.0, 0.0), "apply": (1.0, 0.0), "score": (100.0, 0.0), "prefill": (1.0, 0.0)}
    lengths = equal(response=30)
    lengths["test"].responses[:] = 20
    clock, trained = simulate(c, own, {"code": results(own["code"], cycles)}, lengths, CHIP, no_kernels)
    # Two mini-batches of 15 of the six solutions and 24 suites, in two micro-batches of eight rows of 48.
    assert clock.seconds("code: update") == pytest.approx((2 * 2 * 10 + 2) / CHIP.clock)
    assert clock.seconds("code: log-probs") == pytest.approx((2 * 100 + 2 * 200) / CHIP.clock)
    assert (clock.seconds("test: update"), clock.seconds("test: prefill")) == (0.0, pytest.approx(6 / CHIP.clock))
    assert trained == {"code": 6 * 40 + 24 * 40}


def on_tpu(own: PlayerFunctions, **mesh: int) -> PlayerFunctions:
    own.model = dataclasses.replace(own.model, platform="tpu")
    own.mesh = SimpleNamespace(shape={"replica": 1, "fsdp": 1, "tensor": 1} | mesh)
    return own


def kernels(own: PlayerFunctions, found: Bundles, chip: str = "v5e") -> KernelTimes:
    return KernelTimes(own, CHIPS[chip], lambda wanted: dict.fromkeys(wanted, found))


def test_whole_rows_are_priced_by_the_blocks_that_the_busiest_chip_computes():
    own = on_tpu(players(config())["code"], fsdp=2, tensor=2)
    of_pair = own.model.num_heads // 2 * own.model.num_layers / CHIP.clock
    own.engine.sizes = dataclasses.replace(own.engine.sizes, prompt_lengths=(640,))
    assert splash_block(640) == 128
    times = kernels(own, Bundles(forward=3, backward=100))
    assert times.whole_rows((2, 640)) == pytest.approx(15 * 3 * of_pair)
    assert times.whole_rows((2, 640), forward=2, backward=1) == pytest.approx(15 * 106 * of_pair)
    # In the second row a prompt takes three blocks, and queries read those before theirs; the others read their own.
    prompts = np.full((2, 640), -1, np.int32)
    prompts[1, :300] = 0
    packing = Packing(np.zeros_like(prompts), prompts, np.zeros_like(prompts))
    own.row_shapes = (dataclasses.replace(own.row_shapes[0], length=640),)
    times = kernels(own, Bundles(forward=3, backward=100))
    assert times.whole_rows((2, 640), packing) == pytest.approx((1 + 2 + 3 + 1 + 1) * 3 * of_pair)


def test_the_forward_kernel_alone_uses_both_cores_of_a_chip():
    own = on_tpu(players(config())["code"])
    own.engine.sizes = dataclasses.replace(own.engine.sizes, prompt_lengths=(128,))
    times = kernels(own, Bundles(forward=1, backward=1), chip="v5p")
    forward, both = times.whole_rows((1, 128)), times.whole_rows((1, 128), backward=1)
    assert both == pytest.approx(3 * forward)


def test_decoding_reads_what_is_shared_once_at_the_longer_of_bundles_and_bytes():
    own = on_tpu(players(config())["code"])
    size = own.engine.sizes.page
    own.engine.sizes = dataclasses.replace(own.engine.sizes, slots=(6,), shards=2)
    # In the first shard a group shares five pages, and has one to three others each; in the second each has its own.
    positions_WS = np.array([[6 * size - 1, 7 * size, 5 * size], [0, 2 * size - 2, 2 * size - 1]])
    members_WGR = np.full((2, 1, 8), -1, np.int32)
    members_WGR[0, 0] = [1, 0, 2, 1, 1, 1, 1, 1]
    num_shared_B = np.array([5, 5, 5, 0, 0, 0], np.int32)
    table = PageTable(np.zeros((6, 9), np.int32), num_shared_B=num_shared_B, members_WGR=members_WGR)
    found = Bundles(call=1, group=10, shared_block=10**6, row=100, own_block=10**8)
    expected = 1 + (10 + 2 * 10**6) + 3 * 100 + (1 + 2 + 1) * 10**8
    layers = own.model.num_layers
    assert kernels(own, found).decode(table, positions_WS, 1) == pytest.approx(layers * expected / CHIP.clock)
    read = (5 + 1 + 3 + 1) * page_bytes(own.model, 1) / (REACHED * CHIP.hbm_bandwidth)
    assert kernels(own, Bundles()).decode(table, positions_WS, 1) == pytest.approx(read)
    # With four queries the second shard's second row comes to a third page.
    own.engine.sizes, own.engine.guesses = dataclasses.replace(own.engine.sizes, slots=(3,), shards=1), 3
    alone = PageTable(table.pages_BM[3:], num_shared_B=num_shared_B[3:], members_WGR=np.full((1, 1, 8), -1, np.int32))
    for queries, turns in ((1, 1 + 1 + 1), (4, 1 + 2 + 2)):
        seconds = kernels(own, Bundles(own_block=10**8)).decode(alone, positions_WS[1:], queries)
        assert seconds == pytest.approx(layers * turns * 10**8 / CHIP.clock)


def test_bundles_are_counted_by_loop():
    listing = """     0   :  { %s1 = smov 1 }
   0x1   :  { %s2 = smov 2 }
   0x2 LB: > { %s3 = smov 3 }
   0x3 LB: >> { %s4 = smov 4 }
   0x4 PB: >> { %s5 = smov 5 }
   0x5 PF: > { %s6 = smov 6 }
     %s6 = no bundle
0x1006   :  { %s2 = smov 2 }
0x1007 LB: > { %s3 = smov 3 }
"""
    assert count_bundles(listing) == [2, 2, 2, 1]


def test_a_function_that_was_not_compiled_is_named():
    c = config()
    own = players(c)
    with pytest.raises(BadInput, match="a step calls publish, which was not compiled"):
        simulate(c, own, {"code": {}, "test": {}}, equal(response=5), CHIP, no_kernels)


def test_lengths_are_drawn_about_their_means_and_some_reach_the_limit():
    c = config()
    c.questions_per_step = 2000
    drawn = lognormal("test", c, (16, 20), 0.4, 0.4, 0.01)
    assert drawn.prompts.shape == (4000,)
    assert drawn.responses.shape == (4000, 4)
    assert drawn.prompts.mean() == pytest.approx(16, rel=0.05)
    assert (drawn.responses == 64).mean() == pytest.approx(0.01, abs=0.004)


def test_lengths_are_those_of_a_runs_last_step(tmp_path):
    folder = RunFolder.open(str(tmp_path), {})
    with pytest.raises(BadInput, match="no samples of the test player"):
        of_run("test", config(), folder)
    row = {"player": "test", "question_id": "q", "solution": 0, "prompt_ids": [1] * 7, "token_ids": [1] * 9}
    Samples(folder).write(1, [{**row, "token_ids": [1] * 50}])
    Samples(folder).write(2, [row, {**row, "token_ids": [1] * 100}, {**row, "player": "code"}])
    drawn = of_run("test", config(), folder)
    assert set(drawn.prompts) == {7}
    assert set(drawn.responses.ravel()) == {9, 64}  # no more than the config's limit
