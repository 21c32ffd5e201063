"""The shipped configs: each is possible, and cuts its parameters as the golden table says."""

import json
import re
from dataclasses import replace

import pytest

from codea1.config import DEFAULT
from codea1.lab.aot.jobs import models
from codea1.lab.aot.report import markdown
from codea1.lab.aot.topology import shipped_configs
from codea1.lab.aot.work import trained_weights
from codea1.models.config import PUBLISHED
from codea1.runtime.errors import BadInput
from codea1.runtime.settings import leaves
from codea1.slices import SLICES, num_chips, split
from configs import code_a1
from tests import golden_shardings
from tests.conftest import ROOT

CONFIGS = dict(shipped_configs())
PODS = ROOT / "results" / "pods_compiled.md"
OF_ADAPTERS = [name for name in CONFIGS if name.startswith("code_a1") and ",lora=" in name]
PAPERS_RUNS = [name for name in CONFIGS if name.startswith("code_a1") and ",lora=" not in name]

# What the paper's runs were made with: keys of the reference implementation's code/rl/config/3B_A1.yaml, which says the
# same as 1.5B_A1.yaml and 7B_A1.yaml; `trainer_a1.py`, `reward.py` and `verl` are its code.
PAPER = {
    "method": "code_a1",
    "frozen": "",
    "questions_per_step": 256,  # data.train_batch_size
    "steps": 111,  # total_epochs 3, of 9,688 // 256 = 37 batches; the paper's figures end there
    "validation.every": 10,  # test_freq
    "checkpoint.every": 50,  # save_freq
    "game.num_solutions": 8,  # M: rollout.n
    "game.num_suites": 8,  # N: other.actor_rollout_ref.rollout.n
    "game.num_tests": 8,  # K: the prompt asks for 8, and reward.py divides by 8
    "game.alpha": 0.5,  # reward_kwargs.alpha; paper: R_T = alpha Val + (1 - alpha) Adv
    "game.reward": "official",  # reward_manager acg_llm
    "game.mistake_book": True,  # mistake_book
    "game.history_size": 8,  # trainer_a1.py, retrieve: k=8
    "game.book_cap": 0,  # trainer_a1.py: neither the tests of a question nor all together are bounded
    "game.book_total_cap": 0,
    "game.book_policy": "frequency",  # trainer_a1.py, retrieve: by frequency
    "game.trained_solutions": 1,  # other.update_n
    "game.max_rounds": 1,  # trainer_a1.py: groups with equal rewards stay, none is asked for instead
    "code.max_prompt_length": 4096,  # data.max_prompt_length
    "test.max_prompt_length": 8192,  # other.data.max_prompt_length
    "model.dtype": "bfloat16",  # rollout.dtype
    "model.remat": "full",  # enable_gradient_checkpointing
}
OF_EACH_PLAYER = {
    "max_response_length": 4096,  # data.max_response_length
    "temperature": 1.0,  # rollout.temperature, with top_p 1 and top_k -1
    "learning_rate": 1e-6,  # optim.lr
    "warmup_steps": 10,  # optim.lr_warmup_steps
    "decay": "cosine",  # optim.warmup_style; verl, torch_functional.py: half a cosine to 0 over all steps
    "adam_b1": 0.9,  # these and epsilon: defaults of verl and of torch.optim.AdamW
    "adam_b2": 0.999,
    "adam_eps": 1e-8,
    "weight_decay": 0.1,  # optim.weight_decay
    "max_grad_norm": 1.0,  # grad_clip
    "mini_batches": 2,  # ppo_mini_batch_size 128 of 256 questions; ppo_epochs 1
    "old_log_probs": "trainer",  # trainer_a1.py: the trainer computes them again for the whole batch
    "advantage": "grpo",  # algorithm.adv_estimator
    "normalize_by_std": True,  # verl, core_algos.py: the default
    "surrogate": "ppo",  # policy_loss.loss_mode "vanilla"
    "clip_low": 0.2,  # clip_ratio_low
    "clip_high": 0.28,  # clip_ratio_high
    "dual_clip": 10.0,  # clip_ratio_c
    "kl_estimator": "k3",  # kl_loss_type low_var_kl
    "kl_coefficient": 0.001,  # kl_loss_coef
    "entropy_coefficient": 0.0,  # entropy_coeff
    "importance_cap": 0.0,  # verl, core_algos.py: no such weight
    "aggregation": "token-mean",  # loss_agg_mode
    "overlong_buffer": 0,  # reward.py only logs its overlong ratio
    "learn_truncated": True,  # trainer_a1.py leaves nothing out
}


def test_parameters_are_cut_as_before():
    stored = json.loads(golden_shardings.PATH.read_text())
    assert golden_shardings.tables() == stored, "if it was meant: python -m tests.golden_shardings"


@pytest.mark.parametrize("name", CONFIGS)
def test_a_shipped_config_is_possible(name: str):
    config = CONFIGS[name]
    slices, of_one = split(config.mesh.topology)
    assert of_one in SLICES
    assert config.mesh.replica == slices


@pytest.mark.parametrize("name", ["the default", *PAPERS_RUNS])
def test_hyper_parameters_are_the_papers(name: str):
    config = CONFIGS.get(name, DEFAULT)
    wanted = PAPER | {f"{who}.{key}": value for who in ("code", "test") for key, value in OF_EACH_PLAYER.items()}
    flat = dict(leaves(config.to_dict()))
    assert {key: flat[key] for key in wanted} == wanted
    assert {who: config.trained_sequences(who) for who in ("code", "test")} == {"code": 2048, "test": 2048}


def test_each_size_has_the_model_of_its_size_for_both_players():
    # 3B_A1.yaml: both players start from Qwen2.5-Coder-Instruct of one size.
    assert {name.split("size=")[1].split(",")[0] for name in PAPERS_RUNS} == {"0.5b", "1.5b", "3b", "7b"}
    for name in (*PAPERS_RUNS, *OF_ADAPTERS):
        size = name.split("size=")[1].split(",")[0]
        for player in (CONFIGS[name].code, CONFIGS[name].test):
            family = "Qwen3" if size == "30b-a3b" else "Qwen2.5"
            assert player.shape == f"{family.lower()}-coder-{size}"
            assert player.model.endswith(f"/{family}-Coder-{size.upper()}-Instruct")


def test_documented_memory_and_times_are_the_compilers():
    """configs/*.py repeat the table of results/pods_compiled.md."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PODS.read_text().splitlines()]
    compiled = {row[0]: (row[4], row[5], row[7].removesuffix(" s")) for row in rows if row[0] in CONFIGS}
    said = {
        f"code_a1:size={size},{f'lora={rank},' if rank else ''}topology={slice}": (learn, rollout, step)
        for size, rank, slice, learn, rollout, step in re.findall(
            r"^  (\S+b) +(?:(\d+) +)?((?:\d+x)?v\S+) +(\d+%) +(\d+%) +(\d+)$",
            (ROOT / "configs" / "code_a1.py").read_text(),
            re.MULTILINE,
        )
    }
    assert said == {name: compiled[name] for name in (*PAPERS_RUNS, *OF_ADAPTERS)}
    colab = " ".join((ROOT / "configs" / "colab.py").read_text().split())
    learn, rollout, step = (each.removesuffix("%") for each in compiled["colab"])
    assert f"at most {learn} % of the chip's memory while one learns and {rollout} % while one answers" in colab
    assert f"the least time of a step is {step} s by roofline, a lower bound" in colab


def test_the_committed_table_says_what_todays_report_says_of_itself():
    assert PODS.read_text().splitlines()[: len(own := markdown([]).splitlines())] == own


def test_documented_costs_follow_from_least_steps_and_prices():
    text = (ROOT / "docs" / "pods.md").read_text()
    prices = dict(re.findall(r"([\d.]+) for (v\w+)", text.split("**Dollars**")[1].split("- **")[0]))
    rows = re.findall(r"^\| (\d\S*b), (?:lora=(\d+), )?(v\S+) \| (\d.*) \|$", text, re.MULTILINE)
    table = PODS.read_text()
    assert len(rows) == 10
    for size, rank, slice, cells in rows:
        said = [float(cell) for cell in cells.split("|")]
        name = f"code_a1:size={size},{f'lora={rank},' if rank else ''}topology={slice}"
        (seconds,) = map(float, re.findall(rf"^\| {name} .*\| (\d+) s \|", table, re.MULTILINE))
        config = CONFIGS[name]
        hours, chips = config.steps * seconds / 3600, num_chips(slice)
        (price,) = (float(price) for price, kind in prices.items() if slice.startswith(kind))
        run = [chips, seconds, hours, hours * chips, hours * chips * price]
        model = replace(PUBLISHED[config.code.shape], lora_rank=config.code.lora.rank)
        checkpoint = 2 * 3 * 4 * trained_weights(model) / 1e9
        kept = config.checkpoint.keep_last + config.checkpoint.keep_best
        programs = config.steps * config.questions_per_step * config.game.num_solutions
        tokens = programs * (650 + config.game.num_suites * 1250)
        assert said == pytest.approx([*run, checkpoint, kept * checkpoint + tokens * 6.8e-9], rel=0.025), name


def test_the_papers_runs_keep_the_papers_settings():
    paper = DEFAULT.with_changes({"game.assert_forms": "equality"})
    for name in (*PAPERS_RUNS, *OF_ADAPTERS):
        config = CONFIGS[name]
        assert config.game == paper.game
        for player in ("code", "test"):
            papers, here = paper.policy(player).to_dict(), config.policy(player).to_dict()
            changed = {key for key in papers if here[key] != papers[key]}
            layout = {"micro_batch_size", "prompt_lengths", "row_lengths", "share_prompts"}
            adapters = {"lora", "learning_rate"} if name in OF_ADAPTERS else set()
            assert changed <= {"model", "shape", *layout, *adapters}


def test_players_of_adapters_start_from_one_base_and_learn_ten_times_as_fast():
    for config in (CONFIGS[name] for name in (*OF_ADAPTERS, "colab")):
        assert len({each.base for each in models(config).values()}) == 1
        for player in (config.code, config.test):
            assert player.lora.rank == 32
            assert player.learning_rate == pytest.approx(10 * OF_EACH_PLAYER["learning_rate"])
            assert player.kl_coefficient == OF_EACH_PLAYER["kl_coefficient"]
    full, adapted = (code_a1.get_config(f"size=7b,{each}topology=v5e-64,method=simple") for each in ("", "lora=8,"))
    assert adapted.code.learning_rate == pytest.approx(10 * full.code.learning_rate)


def test_a_size_on_a_slice_that_is_not_shipped_is_refused_with_those_that_are():
    with pytest.raises(BadInput, match=r"size=7b on topology=v5e-16 .*size=7b,topology=v5e-64"):
        code_a1.get_config("size=7b,topology=v5e-16")
    with pytest.raises(BadInput, match=r"size=14b,lora=32 on topology=v5e-8 .*size=14b,lora=32,topology=v5e-16"):
        code_a1.get_config("size=14b,lora=32,topology=v5e-8")
