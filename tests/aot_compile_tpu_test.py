"""The TPU compiler on small shapes, one slice of each generation; a config that is too large is told so."""

import dataclasses
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache
from rich.console import Console

from bench.micro_run import mesh_of
from codea1.config_file import validate
from codea1.lab import model_writer
from codea1.lab.aot import compilation
from codea1.lab.aot import report as reports
from codea1.lab.aot.compilation import Collectives, CompilerResult, compile_lowered
from codea1.lab.aot.jobs import bytes_per_device, models, plan
from codea1.lab.aot.report import Report, advice_for
from codea1.lab.aot.topology import shipped_configs, topology
from codea1.lab.aot.work import CHIPS, num_weights
from codea1.lab.sft.corpus import corpus_texts
from codea1.lab.sft.tokenizer import make_tokenizer
from codea1.models.config import Qwen2Config
from codea1.models.flops import adapter_weights
from codea1.players.functions import functions_of_players
from codea1.runtime.compilations import Function
from codea1.runtime.errors import BadInput
from codea1.runtime.extras import is_installed
from codea1.sharding import make_mesh
from codea1.slices import num_chips
from configs import code_a1
from tests.conftest import ROOT

needs_libtpu = pytest.mark.skipif(not is_installed("libtpu"), reason="libtpu, the TPU compiler, is not installed")
ALL_KINDS = ("accumulate", "apply", "decode", "prefill", "publish")


@pytest.fixture(autouse=True, scope="module")
def no_compilation_cache() -> Iterator[None]:
    """JAX's cache cannot read what is for chips that are not there."""
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # it has decided already whether it is used
    yield
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model folder without weights."""
    folder = tmp_path_factory.mktemp("shape")
    tokenizer = make_tokenizer(corpus_texts(seed=0, num_chats=100), vocab_size=512)
    shape = Qwen2Config(
        vocab_size=512, hidden_size=256, intermediate_size=256, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=128
    )
    (folder / "config.json").write_text(json.dumps(model_writer.config_content(shape, "bfloat16")))
    tokenizer.save(folder)
    return folder


@pytest.fixture
def config(micro_config, folder):
    micro_config.method = "golden"
    micro_config.code.model = str(folder)
    micro_config.code.max_prompt_length = 128
    micro_config.code.max_response_length = 128
    micro_config.model.dtype = "bfloat16"
    micro_config.model.remat = "full"
    micro_config.mesh.tensor = 2
    return micro_config


def compiled(config, name: str, tmp_path, kinds: tuple[str, ...], monkeypatch) -> Report:
    """A report of the largest function of some kinds alone."""
    chosen = reports.largest
    monkeypatch.setattr(reports, "largest", lambda plan: [job for job in chosen(plan) if job.function.kind in kinds])
    return reports.report("test", validate(config), topology(name), tmp_path, "largest")


@needs_libtpu
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("v5e-4", ("accumulate", "prefill", "publish")),
        pytest.param("v6e-4", ("accumulate",), marks=pytest.mark.long),
        pytest.param("v5p-8", ("accumulate",), marks=pytest.mark.long),
    ],
)
def test_a_small_shape_compiles(config, name, kinds, tmp_path, monkeypatch):
    report = compiled(config, name, tmp_path, kinds, monkeypatch)
    assert {row.kind for row in report.rows} == set(kinds)
    assert report.fits
    (update,) = (row.result for row in report.rows if row.kind == "accumulate")
    assert update.collectives  # gradients are summed over chips
    assert update.aliased_bytes == pytest.approx(update.output_bytes, rel=0.05)  # the sum is written over the old one
    assert Report.from_json(json.loads(json.dumps(dataclasses.asdict(report)))) == report


@needs_libtpu
def test_adapters_compile_and_their_gradients_alone_are_sent(config, tmp_path, monkeypatch):
    config.mesh.tensor, config.code.micro_batch_size, config.test.micro_batch_size = 1, 4, 4
    config.code.lora.rank = 8
    report = compiled(config, "v5e-4", tmp_path, ALL_KINDS, monkeypatch)
    assert {row.kind for row in report.rows} == {*ALL_KINDS}
    assert report.fits
    (update,) = (row.result for row in report.rows if row.kind == "accumulate")
    assert update.aliased_bytes == pytest.approx(update.output_bytes, rel=0.05)
    assert {*update.collectives} <= {"all-gather", "all-reduce", "reduce-scatter"}
    sums = sum(each.bytes for kind, each in update.collectives.items() if kind != "all-gather")
    model = dataclasses.replace(models(validate(config))["code"].config, lora_rank=8)
    assert sums <= 4 * adapter_weights(model) + 256  # of a layer, and a few numbers: the loop over layers is one


@needs_libtpu
@pytest.mark.long
@pytest.mark.parametrize("name", dict(shipped_configs()))
def test_a_shipped_config_compiles_with_the_memory_that_the_docs_name(name):
    """Hours for all together; what was compiled is remembered where codea1.compile_tpu does, too."""
    config = dict(shipped_configs())[name]
    cache = Path("~/.cache/codea1/compile_tpu").expanduser()
    report = reports.report(name, config, topology(config.mesh.topology), cache, "largest")
    (summary,) = reports.markdown([report]).split("| config |")[1].splitlines()[2:3]
    assert summary in (ROOT / "results" / "pods_compiled.md").read_text()


@pytest.mark.long
@needs_libtpu
def test_no_token_is_written_by_a_loop_and_no_weight_multiplied_in_windows():
    """What XLA for TPU made of a published shape until its scatter and its gathers were written out."""
    config = code_a1.get_config("size=0.5b,topology=v5e-8")
    for player in (config.code, config.test):
        player.max_prompt_length = player.max_response_length = 512
        player.prompt_lengths = player.row_lengths = ()
        player.micro_batch_size = 8
    config = validate(config)
    mesh = mesh_of(config, topology("v5e-8").devices)

    def compiled(kind: str) -> str:
        return (
            {job.function.kind: job.function for job in plan(config, mesh, models(config)).jobs}[kind]
            .lower()
            .compile()
            .as_text()
        )

    decode, update = compiled("decode"), compiled("accumulate")
    assert decode.count(" while(") == 2  # over tokens and over layers
    assert " scatter(" in decode
    assert "windowed_dot_general" not in update
    assert "collective-permute" not in update
    summed = [line for line in update.splitlines() if re.search(r" (all-reduce|reduce-scatter)(-start)?\(", line)]
    assert summed
    assert not [line for line in summed if "bf16" in line.partition("(%")[0]]


@needs_libtpu
@pytest.mark.parametrize("head_dim", [pytest.param(64, marks=pytest.mark.long), 128])
def test_generation_copies_no_cache(config, folder, head_dim, tmp_path, monkeypatch):
    shape = json.loads((folder / "config.json").read_text())
    (tmp_path / "shape").mkdir()
    for path in folder.iterdir():
        (tmp_path / "shape" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "shape" / "config.json").write_text(json.dumps(shape | {"head_dim": head_dim}))
    config.code.model = str(tmp_path / "shape")
    config.code.max_response_length = 12000
    config.rollout.slots = 128
    report = compiled(config, "v5e-4", tmp_path, ("decode", "copy_pages", "prefill"), monkeypatch)
    assert {row.kind for row in report.rows} == {"decode", "copy_pages", "prefill"}
    for row in report.rows:
        assert row.result.temporary_bytes < 0.25 * row.result.output_bytes, row.name
        assert all(each.bytes < 1e6 for each in row.result.collectives.values()), row.name


@needs_libtpu
def test_a_report_of_all_functions_is_shown_and_read_again(config, tmp_path, monkeypatch):
    one = CompilerResult(1, 2, 3, 4, {"all-gather": Collectives(1, 1 << 20)}, 1.0)
    monkeypatch.setattr(Function, "lower", lambda self: self.name)
    monkeypatch.setattr(compilation, "fingerprint", lambda lowered, topology: lowered)
    monkeypatch.setattr(compilation, "compile_lowered", lambda lowered: one)
    found = reports.report("test", validate(config), topology("v5e-4"), tmp_path, "all")
    table = reports.markdown([found])
    assert "| code: decode 8 slots | 0.00 |" in table
    assert "1 all-gather 1 MiB" in table
    assert "Least time of a step by the roofline" in table
    reports.show(found, console := Console(file=io.StringIO(), width=200))
    assert "Least time of a step by the roofline" in console.file.getvalue()
    content = json.loads(json.dumps(dataclasses.asdict(found)))
    assert Report.from_json(content) == found
    del content["estimate"]
    with pytest.raises(TypeError, match="estimate"):  # one of another version
        Report.from_json(content)


@needs_libtpu
def test_too_many_pages_do_not_fit_and_fewer_are_advised(config, tmp_path, monkeypatch):
    config.rollout.slots = 1 << 18
    report = compiled(config, "v5e-4", tmp_path, ("empty",), monkeypatch)
    assert not report.fits
    assert "OUT OF MEMORY" in report.verdict
    advice = advice_for(report)
    advised = int(advice[0].rpartition("try ")[2].rstrip("."))
    assert advice[0].startswith("config.rollout.cache_gib is 0, pages take ")
    config.rollout.cache_gib = float(advised)
    assert compiled(config, "v5e-4", tmp_path, ("empty",), monkeypatch).fits


@needs_libtpu
def test_a_run_that_the_compiler_refuses_is_told_what_to_change(config, tmp_path, monkeypatch):
    config.code.micro_batch_size = 1 << 16
    config.model.log_prob_chunk = 1 << 24
    config.model.remat = "none"
    report = compiled(config, "v5e-4", tmp_path, ("accumulate",), monkeypatch)
    assert not report.fits
    assert report.worst.result.refusal
    assert any("micro_batch_size" in sentence for sentence in advice_for(report))
    assert any("remat" in sentence for sentence in advice_for(report))


@needs_libtpu
@pytest.mark.parametrize(("name", "hbm"), [("v5e-4", "15.75G"), ("v6e-4", "31.25G"), ("v5p-8", "95.74G")])
def test_every_generation_is_compiled_for_and_its_limit_is_the_compilers(name, hbm):
    def result(rows: int) -> CompilerResult:
        sharding = jax.sharding.SingleDeviceSharding(topology(name).devices[0])
        x = jax.ShapeDtypeStruct((rows, 1 << 30), "bfloat16", sharding=sharding)
        return compile_lowered(jax.jit(lambda x: x + 1).lower(x))

    fitting = result(1)
    assert fitting.refusal == ""
    assert fitting.argument_bytes >= 2 << 30  # the compiler pads rows
    refused = result(64)
    assert hbm in refused.refusal
    assert refused.peak_bytes > CHIPS[name.partition("-")[0]].hbm_bytes
    assert f"{CHIPS[name.partition('-')[0]].hbm_bytes / 2**30:.2f}G" == hbm


@needs_libtpu
def test_residents_alone_may_be_too_much_and_nothing_is_compiled_twice(config, tmp_path, monkeypatch):
    report = compiled(config, "v5e-4", tmp_path, ("empty",), monkeypatch)
    monkeypatch.setattr(compilation, "compile_lowered", lambda lowered: pytest.fail("compiled again"))
    assert reports.report("test", validate(config), topology("v5e-4"), tmp_path, "largest") == report
    full = {**report.residents, "code: parameters and moments": 20 << 30}
    rows = [dataclasses.replace(row, others=20 << 30) for row in report.rows]
    advice = advice_for(dataclasses.replace(report, residents=full, rows=rows))
    assert "use a slice of 6 such chips or more" in advice[0]


@needs_libtpu
@pytest.mark.parametrize("name", ["v5e-16", "v6e-16", "v5p-32"])
def test_meshes_that_cut_an_axis_of_the_torus_are_made(name):
    sizes = {"replica": 1, "fsdp": 8, "tensor": 2}
    assert dict(make_mesh(**sizes, devices=topology(name).devices).shape) == sizes


@needs_libtpu
def test_each_of_several_slices_has_whole_replicas():
    found = topology("2xv5e-8")
    devices = found.devices
    for replica, tensor, expected in ((2, 2, [{0}, {1}]), (4, 1, [{0}, {0}, {1}, {1}])):
        rows = make_mesh(replica, -1, tensor, devices=devices).devices
        assert [{device.slice_index for device in row.flat} for row in rows] == expected
    with pytest.raises(BadInput, match=r"config.mesh.replica is 1; the 2 slices that there are must divide it"):
        make_mesh(1, -1, 2, devices=devices)


@needs_libtpu
def test_slices_send_each_other_gradients_once_a_step_and_nothing_while_a_chunk_decodes(config, tmp_path, monkeypatch):
    config.mesh.replica, config.mesh.tensor = 2, 1
    config.code.micro_batch_size = config.test.micro_batch_size = config.rollout.slots = 8
    report = compiled(config, "2xv5e-4", tmp_path, ALL_KINDS, monkeypatch)
    assert {row.kind for row in report.rows} == {*ALL_KINDS}
    sent = {row.kind: row.result.collectives.get("transfer between slices", Collectives(0, 0)) for row in report.rows}
    model = models(validate(config))["code"].config
    assert sent["apply"].bytes == pytest.approx(4 * num_weights(model) / 4, rel=0.1)  # a float32 of a chip's part
    assert sent["accumulate"].bytes < 4096  # a few sums
    assert sent["decode"].count <= 4  # what was drawn, to all hosts
    assert sent["prefill"].count == sent["publish"].count == 0


@needs_libtpu
def test_rows_that_the_mesh_does_not_divide_are_refused_with_the_nearest(config):
    config.code.micro_batch_size = 5
    checked, mesh = validate(config), mesh_of(validate(config), topology("v5e-8").devices)
    with pytest.raises(BadInput, match=r"code.micro_batch_size is 5; .*use 4"):
        functions_of_players(checked, mesh, models(checked))


@needs_libtpu
def test_the_command_needs_a_slice(tmp_path):
    command = [sys.executable, "-m", "codea1.compile_tpu", f"--out={tmp_path}", "--config=configs/tiny.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--topology is missing" in done.stderr


@pytest.mark.parametrize("name", ["v5e-17", "v7x-8", "v5litepod-16", "v5e:4", "16", "", "1xv5e-16", "2xv5e-17"])
def test_unknown_slices_are_refused(name):
    with pytest.raises(BadInput, match="is unknown; known are v5e-1, v5e-4"):
        topology(name)


@needs_libtpu
@pytest.mark.parametrize("name", ["v5e-1", "v5e-16", "v6e-8", "v5p-8", "v5p-32", "2xv5e-16"])
def test_names_of_slices_have_the_chips_they_say(name):
    devices = topology(name).devices
    assert len(devices) == num_chips(name)
    assert devices[0].platform == "tpu"


def test_shapes_with_shardings_are_counted_by_their_share():
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    shape = jax.ShapeDtypeStruct((8, 3), "bfloat16", sharding=sharding)
    assert bytes_per_device({"a": shape, "b": jax.ShapeDtypeStruct((5,), "float32")}) == 48 + 20
