"""The command line: one readable sentence and an exit code for whatever is wrong, nothing written."""

import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys

import pytest

from codea1.config import RULES, SHARED_RESPONSE, SHARED_ROW
from codea1.config_file import SFT, SIMPLE, default_config, parse_arg, read_config, validate
from codea1.game.methods import METHODS
from codea1.lab.worlds.worlds import WORLDS
from codea1.learn.losses import AGGREGATIONS, KL_ESTIMATORS
from codea1.learn.optimizer import DECAYS
from codea1.learn.surrogates import SURROGATES
from codea1.models.attention import PLACE_BITS, RESPONSE_BITS
from codea1.models.config import PUBLISHED, REMAT_POLICIES
from codea1.runtime import errors, hosts
from codea1.runtime.errors import BadInput
from configs import code_a1, tiny
from tests.conftest import ROOT
from tests.host_processes import free_address, run

WRITTEN_OUT = {  # in codea1.config, which does not import them
    "model.remat": {*REMAT_POLICIES},
    "code.decay": {*DECAYS},
    "code.kl_estimator": {*KL_ESTIMATORS},
    "code.aggregation": {*AGGREGATIONS},
    "code.shape": {"", *PUBLISHED},
    "code.surrogate": {*SURROGATES},
}


def python(*arguments: str) -> subprocess.CompletedProcess:
    """A process that imports for itself; see `run` for one that need not."""
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--config=configs/tiny.py", "--config.game.alhpa=1"],
            "alhpa is not a field; did you mean config.game.alpha?",
        ),
        (
            ["--config=configs/tiny.py", "--config.code.lr=1e-4"],
            "lr is not a field; did you mean config.code.learning",
        ),
        (["--config=configs/tiny.py", "--steps=3"], "line flag 'steps'. Did you mean: --config.steps ?"),
        (["--config=configs/tiny.py", "--config.game.alpha=2.0"], "config.game.alpha is 2.0"),
        (["--config=configs/tiny.py:sede=1"], "'sede'"),
        ([], "--config is missing; the demo's is --config=tiny."),
        (["--config=configs/none.py"], "configs/none.py does not exist"),
        (["--config=configs/tiny.py", "--config.steps=many"], "many"),
    ],
)
def test_mistakes_on_the_command_line(arguments, said, tmp_path):
    code, _, printed = run("-m", "codea1.train", *arguments, f"--workdir={tmp_path / 'run'}")
    assert code == 2
    assert said in printed
    assert printed.count("\n") == 1
    assert "Traceback" not in printed
    assert not (tmp_path / "run").exists()


BEGIN = "from codea1.config_file import default_config\n\ndef get_config(arg=None):\n    c = default_config()\n"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("c.game.alhpa = 0.9", r"config\.game\.alhpa is not a field; did you mean config\.game\.alpha\?"),
        ("c.sampling = dict(top_k=3)", r"config\.sampling\.top_k is not a field\."),
        ("c.cod.learning_rate = 1.0", r"line 5, c\.cod\.learning_rate = 1\.0: .*'cod' Did you mean \"code\" instead"),
        ('c.steps = "3"', r"config\.steps is '3'; it must be of type int"),
        ("c.steps = 3.0", r"config\.steps is 3\.0; it must be of type int"),
        ("c.mesh = None", r"config\.mesh is None; it must be a section"),
        ('c.code.row_lengths = ("a",)', r"config\.code\.row_lengths is \('a',\); it must be a tuple of numbers"),
        ("c.sft.expert_span = (0.5,)", r"config\.sft\.expert_span is \(0\.5,\); it must be a tuple of 2"),
        ("del c.seed", r"lacks the field seed"),
        ("open('/none')", r"No such file or directory: '/none'"),
        ("return c[", r"SyntaxError"),
    ],
)
def test_mistakes_in_a_config_file_are_one_sentence(lines, said, tmp_path):
    file = tmp_path / "config.py"
    file.write_text(f"{BEGIN}    {lines}\n    return c\n")
    with pytest.raises(BadInput, match=said) as mistake:
        read_config([f"--config={file}"])
    assert "\n" not in str(mistake.value)


def test_what_is_no_config_file_is_told(tmp_path):
    for name, text, said in (
        ("a.json", "{}", r"a\.json is not Python"),
        ("a.py", "steps = 3", r"a\.py must define get_config"),
        ("b.py", BEGIN.replace("arg=None", "") + "    return c", r"b\.py: .*takes 0 positional arguments"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(BadInput, match=said):
            read_config([f"--config={tmp_path / name}:seed=1"])


@pytest.mark.parametrize(
    ("error", "code"), [("BadInput", 2), ("StorageFailed", 74), ("StorageOutage", 75), ("HostsLate", 75)]
)
def test_what_went_wrong_is_one_sentence_and_an_exit_code(error, code):
    script = (
        "from codea1.runtime import command, errors\n"
        f"def main():\n    raise errors.{error}('it is full.')\ncommand.run(main)"
    )
    done = python("-c", script)
    assert (done.returncode, done.stderr) == (code, "error: it is full.\n")


def test_a_terminal_that_has_not_all_characters_ends_no_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = python("-c", "from codea1.runtime import command\ncommand.run(lambda: print('a \u2192 b'))")
    assert (done.returncode, done.stdout, done.stderr) == (0, "a \\u2192 b\n", "")


def test_wide_numbers_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAX_ENABLE_X64", "True")
    done = python("-c", "from codea1.runtime import command\ncommand.run(print)")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: JAX_ENABLE_X64 is set, and nothing here computes in 64 bits: unset it.\n"


def test_help_is_what_a_program_does_and_the_flags_of_this_project():
    done = python("-m", "codea1.train", "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Trains a Code LLM and a Test LLM against each other")
    assert "--config:" in done.stdout
    assert "--workdir:" in done.stdout
    assert "--logtostderr" not in done.stdout


# All in one process, each program in a fork of it: to start Python takes longer than what they say.
MISTAKES = """
import json, os, runpy, sys
import codea1.config
for program, *arguments in json.loads(sys.argv[1]):
    if os.fork():
        os.wait()
        continue
    sys.argv = [program, *arguments]
    try:
        runpy.run_module(f"codea1.{program}", run_name="__main__")
    except SystemExit as end:
        slow = {"jax", "optax", "orbax", "flax", "transformers", "matplotlib", "scipy", "grain"} & set(sys.modules)
        print(program, end.code, *sorted(slow), flush=True)
    os._exit(0)
"""
PROGRAMS = (
    "train sft evaluate report explain export compile_tpu "
    "fsck benchmark "
    "lab.commands.book lab.commands.dump_tests lab.commands.convert lab.commands.study lab.commands.worlds"
)


def test_a_mistake_is_reported_before_what_takes_seconds_is_imported():
    cases = [[program, "--no_such_flag"] for program in PROGRAMS.split()]
    for program in ("train", "sft", "compile_tpu"):
        cases += [[program], [program, "--config=configs/none.py"]]
        cases += [[program, "--config=configs/tiny.py", f"--config.game.{field}"] for field in ("alhpa=1", "alpha=2.0")]
    cases += [["train", "--config=configs/tiny.py"], ["sft", "--config=configs/tiny.py"]]  # no --workdir
    command = [sys.executable, "-c", MISTAKES, json.dumps(cases)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"{program} 2" for program, *_ in cases], done.stderr
    assert done.stderr.count("error: ") == len(cases)
    assert "Traceback" not in done.stderr


def test_the_names_that_a_config_writes_out_are_those_there_are():
    for name, names in WRITTEN_OUT.items():
        assert RULES[name].range.must == f"be one of {', '.join(sorted(names))}"


def test_a_program_that_takes_a_word_wants_one(tmp_path):
    for arguments, said in (
        (["--step=1"], "RUN is missing"),
        ([str(tmp_path), "more", "--step=1"], "'more' is not a flag"),
        ([str(tmp_path), "--step=1"], f"{tmp_path} is not a run folder"),
    ):
        code, _, printed = run("-m", "codea1.explain", *arguments)
        assert code == 2
        assert said in printed
        assert printed.count("\n") == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("game.alpha", 1.5),
        ("game.reward", "generous"),
        ("game.book_policy", "oldest"),
        ("game.num_solutions", 1),
        ("code.kl_estimator", "k4"),
        ("code.mini_batches", 7),
        ("code.overlong_buffer", 5000),
        ("method", "silver"),
        ("steps", 0),
        ("profile.first_step", 112),
        ("seed", -1),
        ("seed", 2**64),
        ("code.learning_rate", float("inf")),
        ("test.adam_eps", float("inf")),
        ("code.adam_b1", 1.0),
        ("sft.adam_b2", 1.0),
        ("test.warmup_steps", 112),
        ("sft.warmup_steps", 361),
    ],
)
def test_impossible_values_are_named(key, value):
    config = default_config()
    config.update_from_flattened_dict({key: value})
    with pytest.raises(BadInput, match=key.replace(".", r"\.")):
        validate(config)


def test_a_policy_learns_after_its_critic_has_warmed_up_and_a_trial_keeps_its_warm_up():
    config = default_config()
    config.steps, config.code.max_grad_norm, config.seed = 3, float("inf"), 2**64 - 1
    validate(config)
    config.code.advantage, config.code.critic.warmup_steps = "gae", 3
    with pytest.raises(BadInput, match=r"code\.critic\.warmup_steps is 3; it must not exceed 2: "):
        validate(config)


def test_config_arguments_keep_the_type_of_their_default():
    parsed = parse_arg("seed=3,book=False,rate=0.5,name=x", seed=0, book=True, rate=1.0, name="")
    assert (parsed.seed, parsed.book, parsed.rate, parsed.name) == (3, False, 0.5, "x")


@pytest.mark.parametrize("text", ["seed=x", "unknown=1", "book=no", "seed"])
def test_bad_config_arguments_are_named(text):
    with pytest.raises(BadInput, match=text.partition("=")[0]):
        parse_arg(text, seed=0, book=True)


@pytest.mark.parametrize("index", [0, 1])
def test_hosts_that_do_not_come_are_a_reason_to_start_again(index):
    flags = f"--coordinator_address={free_address()}", "--num_processes=2", f"--process_id={index}"
    code, _, printed = run("tests/late_hosts.py", *flags)
    assert code == errors.RESTART_EXIT_CODE, printed
    assert "error: the other hosts did not come within 1 s" in printed
    assert "Traceback" not in printed


def test_rows_of_a_critic_hold_one_sequence():
    config = default_config()
    config.code.share_prompts = True
    validate(config)
    config.questions_per_step, config.code.mini_batches = 2, 8
    with pytest.raises(BadInput, match=r"code\.mini_batches is 8; it must divide the 2 prompts"):
        validate(config)
    config = default_config()
    config.code.share_prompts, config.code.advantage = True, "gae"
    with pytest.raises(BadInput, match=r"code\.share_prompts"):
        validate(config)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("code.row_lengths", (20000,), "hold numbers less than 8192, unless share_prompts is True"),
    ],
)
def test_what_could_not_be_used_is_refused(field, value, said):
    config = default_config()
    config.update_from_flattened_dict({field: value})
    with pytest.raises(BadInput, match=re.escape(f"config.{field} is {value!r}; it must {said}")):
        validate(config)


def test_a_weight_of_importance_needs_ratios_to_the_trainers_log_probs():
    config = default_config()
    config.code.importance_cap = 2.0
    validate(config)
    config.code.old_log_probs = "sampler"
    with pytest.raises(BadInput, match=r"code\.importance_cap"):
        validate(config)


def test_rows_that_share_prompts_are_as_long_as_the_kernel_can_tell():
    assert (SHARED_ROW, SHARED_RESPONSE + 1) == (1 << PLACE_BITS, 1 << RESPONSE_BITS)
    config = default_config()
    config.test.share_prompts = True
    validate(config)
    config.test.row_lengths = (20000,)
    with pytest.raises(BadInput, match="rows of 20000 and responses of 4096 tokens exceed 16384 or 8191"):
        validate(config)
    config.test.row_lengths, config.test.max_prompt_length = (), 512
    config.test.max_response_length = SHARED_RESPONSE
    validate(config)
    config.test.max_response_length = 16384
    with pytest.raises(BadInput, match="be False: rows of 16896 and responses of 16384 tokens exceed 16384 or 8191"):
        validate(config)


def test_shipped_configs_set_nothing_that_decides_nothing():
    shipped = [("tiny", f"world={w},recipe={r}") for w in WORLDS for r in tiny.RECIPES]
    shipped += [("code_a1", each) for each in code_a1.SLICES]
    for (file, arg), method in itertools.product(shipped, (*METHODS, SIMPLE, SFT)):
        suites = ",static_tests=suites.jsonl" if method == "static_tests" else ""
        validate(importlib.import_module(f"configs.{file}").get_config(f"{arg},method={method}{suites}"))


def test_a_method_is_chosen_where_all_that_it_changes_is_set():
    words = ["--config", "tiny", "--config.game.hidden_reward", "--config.steps", "7"]  # a bool takes no word
    assert (read_config(words).game.hidden_reward, read_config(words).steps) == (True, 7)
    for same in (["--config=tiny:method=golden"], ["--config=tiny:method=golden", "--config.method=golden"]):
        assert read_config(same).game.alpha == default_config().game.alpha
    said = r"method is 'golden'; it must be 'code_a1', as in its file: --config=FILE:method=golden sets all that"
    with pytest.raises(BadInput, match=said):
        read_config(["--config=tiny", "--config.method=golden"])
    with pytest.raises(BadInput, match=r"method is 'silver'; it must be one of black_box, code_a1"):
        read_config(["--config=tiny", "--config.method=silver"])


@pytest.mark.parametrize(
    ("key", "value", "others"),
    [
        ("game.alpha", 0.9, {"method": "golden"}),
        ("game.selection", "random", {"method": "golden"}),
        ("game.trained_solutions", 2, {"method": "golden"}),
        ("game.book_cap", 9, {"game.mistake_book": False}),
        ("code.critic.gae_lambda", 0.5, {}),
        ("code.normalize_by_std", False, {"code.advantage": "gdpo"}),
        ("code.dual_clip", 3.0, {"code.surrogate": "gspo"}),
        ("test.kl_estimator", "k1", {"test.kl_coefficient": 0.0}),
        ("test.lora.alpha", 9.0, {}),
    ],
)
def test_a_setting_that_decides_nothing_is_refused(key, value, others):
    config = default_config()
    config.update_from_flattened_dict(others)
    validate(config)
    config.update_from_flattened_dict({key: value})
    with pytest.raises(BadInput, match=rf"config\.{re.escape(key)} is .*: it is read only where"):
        validate(config)


@pytest.mark.parametrize("flags", [["--process_id=2"], ["--process_id=0", "--coordinator_address=host"], []])
def test_hosts_that_cannot_be_are_bad_input(flags):
    code, _, printed = run("tests/late_hosts.py", "--coordinator_address=127.0.0.1:1", "--num_processes=2", *flags)
    assert code == errors.BAD_INPUT_EXIT_CODE, printed
    assert "error: the other hosts cannot be joined" in printed
    assert "Traceback" not in printed


def test_the_launcher_restarts_after_the_same_code():
    text = (ROOT / "launch" / "common.sh").read_text()
    assert re.findall(r"^RESTART_EXIT_CODE=(\d+)$", text, re.MULTILINE) == [str(errors.RESTART_EXIT_CODE)]


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
@pytest.mark.skipif(hosts.has_tpu_chips(), reason="this machine has a TPU")
def test_libtpu_without_chips_is_left_alone_and_still_compiles():
    code = """
import jax
from codea1.runtime import command
from codea1.lab.aot.topology import topology

def main():
    print(jax.devices()[0].platform, topology("v5e-4").devices[0].platform)

command.run(main)
"""
    environment = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["cpu", "tpu"], "")


@pytest.mark.parametrize(
    ("platform", "code", "said"),
    [
        ("cuda", 75, "error: JAX finds no device of JAX_PLATFORMS=cuda; start again where there is one."),
        ("tpu", 75, "error: JAX finds no device of JAX_PLATFORMS=tpu: Unable to initialize backend 'tpu': "),
        ("gpuu", 2, "error: JAX knows no device of JAX_PLATFORMS=gpuu: Unable to initialize backend 'gpuu': "),
    ],
)
def test_a_platform_without_a_device_is_one_sentence_and_asks_for_a_restart(platform, code, said):
    if platform == "tpu" and importlib.util.find_spec("libtpu") is None:
        pytest.skip("libtpu is not installed")
    program = "import jax\nfrom codea1.runtime import command\ncommand.run(jax.devices)"
    environment = os.environ | {"JAX_PLATFORMS": platform}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert said in done.stderr
