"""Is our RL right on a real model? The steps of a golden-tests run beside those of TRL's GRPO.

  python -m bench.real_trl update RUN --peers=PEERS/bin/python --output=OUT
  python -m bench.real_trl replay RUN --peers=PEERS/bin/python --output=OUT
  python -m bench.real_trl steps RUN --peers=PEERS/bin/python --output=OUT
  python -m bench.real_trl measure RUN --output=OUT

RUN is a run of codea1 with adapters, method golden and no KL term; PEERS has what bench/real_step.py names. `update`
compares one optimizer step: TRL samples a step's programs twice learned from, and its loss and gradients of the second
time, where ratios are not 1, must be those of codea1 for the same adapters, tokens, advantages and old log-probs.
`replay` compares REPLAYED whole steps: codea1 learns from what TRL sampled, and the adapters must move alike. `steps`
makes RUN's steps with TRL: the same questions in the same order, group size, rates, clipping, temperature, rank, alpha
and dtype; codea1 judges the programs in its sandbox, and says where an answer ends. `measure` asks RUN's validation
questions of both sides' adapters, of the steps that both keep, and says how far they moved from the start.
"""

import argparse
import dataclasses
import functools
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from safetensors.numpy import load_file

from codea1.game.answers import extract_program
from codea1.game.asserts import golden_tests
from codea1.game.grading import Judge
from codea1.game.prompts import code_messages
from codea1.game.rewards import golden_reward
from codea1.lab.model_writer import save_adapters
from codea1.lab.opened_run import OpenedRun, opened_run
from codea1.learn.batch import OldLogProbs, TrainSample, micro_batches, to_mesh
from codea1.learn.optimizer import ScheduleConfig, learning_rate
from codea1.learn.update import init_state
from codea1.models import peft
from codea1.players.base import Start
from codea1.players.player import Player
from codea1.rollout.engine import Request
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.samples import Samples
from codea1.runtime.hosts import Hosts
from codea1.values.verdict import Verdict

MARK = "real_trl "  # before what the peer says
SAMPLES = 4  # of each question of validation
REPLAYED, SMALL = 12, {"questions_per_step": 2, "tokens": 128}
PARITY, APART = 1e-4, 0.05  # of the norm of a tensor's gradients; of how far TRL moved, in float32


def train(run: OpenedRun, peers: str, output: Path, steps: int = 0, **changes: Any) -> Iterator[dict[str, Any]]:
    """Trains with TRL, for all steps of the run unless `steps` are given, and yields what it logs of every step."""
    c, own, player = run.config, run.config.code, run.parts.players["code"]
    schedule = ScheduleConfig(own.learning_rate, own.warmup_steps, c.steps, own.decay)
    end_of = player.functions.engine.end_of or (lambda ids, seen: 0)
    questions = {question.id: question for question in run.parts.train}
    samples = Samples(run.folder)
    asked = ((row["question_id"] for row in samples.read(step, tokens=False)) for step in samples.steps())
    order = [id for ids in asked for id in dict.fromkeys(ids)]
    steps = steps or len(order) // c.questions_per_step
    texts = {
        id: player.tokenizer.transcript(player.prompt_ids(code_messages(run.parts.rules.templates, q)))
        for id, q in questions.items()
    }
    setup = {
        "model": os.path.abspath(own.model),
        "rank": own.lora.rank,
        "alpha": own.lora.alpha,
        "output": str(output),
        "samples": c.game.num_solutions,
        "questions_per_step": c.questions_per_step,
        "tokens": own.max_response_length,
        "rates": [learning_rate(step, schedule) for step in range(1, steps + 2)],
        "seed": c.seed,
        "dtype": player.functions.model.dtype.name,
        "prompts": [(id, texts[id]) for id in order],
    }
    same = ("weight_decay", "max_grad_norm", "temperature", "clip_low", "clip_high", "dual_clip")
    setup |= {name: getattr(own, name) for name in same}
    setup |= {"steps": steps, "iterations": 1} | changes
    if not order or len(order) < steps * setup["questions_per_step"]:  # TRL would ask the same ones again
        raise SystemExit(f"{run.folder.samples}: {len(order)} questions, too few for {steps} steps of TRL")
    command = [peers, str(Path(__file__).with_name("real_trl_peer.py"))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": ""}, **pipes)
    send(process, setup)
    for line in process.stdout:
        told = json.loads(line.removeprefix(MARK)) if line.startswith(MARK) else {}
        if "grade" in told:
            send(process, rewards(run, questions, told["grade"]))
        elif "ends" in told:
            send(process, [end_of(ids, told["seen"]) for ids in told["ends"]])
        elif "reward" in told:
            yield told
    if process.wait():
        raise SystemExit(f"real_trl_peer.py ended with {process.returncode}")


def send(process: subprocess.Popen, what: Any) -> None:
    process.stdin.write(json.dumps(what) + "\n")
    process.stdin.flush()


def rewards(run: OpenedRun, questions: dict, texts: list[tuple[str, str]]) -> list[float]:
    """Returns the golden-tests rewards of the programs in texts."""
    started = []
    for id, text in texts:
        question = questions[id]
        program = extract_program(text, question.entry_point).source
        started.append(Judge(question, run.grader).grade(program, golden_tests(question)))
    gradings = [grading.result() for grading in started]
    return [golden_reward(grading.program_valid, grading.verdicts).total or 0.0 for grading in gradings]


def update(run: OpenedRun, peers: str, output: Path) -> None:
    """Compares loss and gradients of one optimizer step."""
    list(train(run, peers, output, steps=2, iterations=2, max_grad_norm=1e9, rates=[1e-4] * 3, **SMALL))
    player = run.parts.players["code"]
    samples, their_loss = captured(output / "trl_1")
    gradients, batches = accumulated(player, placed(player, output / "trl_1"), samples)
    sums = [sums for _, sums, _ in batches]
    loss, clipped = (
        sum(float(of[name]) for of in sums for name in names)
        for names in (["loss"], ["clip_fraction_high", "clip_fraction_low"])
    )
    tokens = sum(len(sample.token_ids) for sample in samples)
    print(f"{len(samples)} programs, {tokens} tokens, {clipped / tokens:.1%} of them clipped")
    print(f"loss {loss:.7f}, TRL {their_loss:.7f}")
    save_adapters(str(output / "ours"), gradients, alpha=1.0, base=peft.Base("none", None))
    theirs, ours = load_file(output / "trl_1" / "grads"), load_file(output / "ours" / peft.WEIGHTS)
    assert theirs.keys() == ours.keys()
    errors = {name: np.linalg.norm(ours[name] - g) / np.linalg.norm(g) for name, g in theirs.items()}
    worst = max(errors, key=errors.get)
    print(f"{len(errors)} gradients, the worst differs by {errors[worst]:.1e} of its norm, {worst}")
    if not errors[worst] <= PARITY:
        raise SystemExit(f"more than {PARITY:g}")


def placed(player: Player, folder: Path) -> Any:
    return player.functions.place_adapters(Start(str(folder)))


def captured(folder: Path) -> tuple[list[TrainSample], float]:
    """Returns the samples and the loss of the step that TRL made from the adapters in folder."""
    told = json.loads((folder / "rows").read_text())
    samples = [TrainSample(prompt, ids, np.float32(old), advantage) for prompt, ids, old, advantage in told["rows"]]
    return samples, told["loss"]


def replay(run: OpenedRun, peers: str, output: Path) -> None:
    """Prints how far each of REPLAYED steps of TRL moves the adapters, and codea1 that learns from the same samples."""
    list(train(run, peers, output, steps=REPLAYED, **SMALL))
    player = run.parts.players["code"]
    start = placed(player, output / "trl_0")
    player.states[player.name] = init_state(start, player.functions.optimizer)
    for step in range(1, REPLAYED + 1):
        learned = player.learn(captured(output / f"trl_{step - 1}")[0], step)
        ours, theirs = player.state.params, placed(player, output / f"trl_{step}")
        pairs = {"moved": (ours, start), "TRL": (theirs, start), "apart": (ours, theirs)}
        norms = {name: float(optax.global_norm(jax.tree.map(jnp.subtract, *pair))) for name, pair in pairs.items()}
        print(json.dumps({"step": step, "grad_norm": learned["grad_norm"], **norms}), flush=True)
    if not norms["apart"] <= APART * norms["TRL"]:
        raise SystemExit(f"more than {APART:g} of their way apart")


def accumulated(player: Player, adapters: Any, samples: list[TrainSample]) -> tuple[Any, list[tuple]]:
    """Returns the gradients that the player's update has of samples, and of each micro-batch it, sums and log-probs."""
    zeros, *accumulate, _ = player.functions.update.functions
    by_shape = {function.arguments[-1].tokens_BT.shape: function for function in accumulate}
    gradients, done = zeros(adapters), []
    for batch in micro_batches(samples, player.functions.layout):
        assert np.all(batch.old_source_B1 == OldLogProbs.SAMPLER)
        function = by_shape[batch.tokens_BT.shape]
        gradients, sums, log_probs_BT = function(adapters, player.base, gradients, to_mesh(batch, player._mesh))
        done.append((batch, sums, log_probs_BT))
    return gradients, done


def measured(run: OpenedRun, adapters: Any) -> dict[str, float]:
    """Returns how adapters do on the questions of validation, and how far they are from the base, in nats per token."""
    player = run.parts.players["code"]
    questions = {question.id: question for question in run.parts.held_out["validation"]}
    player.states[player.name] = dataclasses.replace(player.state, params=adapters)
    prompts = {id: player.prompt_ids(code_messages(run.parts.rules.templates, q)) for id, q in questions.items()}
    found: dict[str, float] = {}
    for name, temperature, count in (("greedy", 0.0, 1), ("pass@1", 1.0, SAMPLES)):
        requests = [Request(id, prompt, 0, count) for id, prompt in prompts.items()]
        samples = list(player.generate(requests, stream="real_trl", temperature=temperature))
        started = []
        for sample in samples:
            question = questions[sample.question_id]
            program = extract_program(player.tokenizer.decode(sample.token_ids), question.entry_point).source
            started.append(Judge(question, run.grader).check(program))
        found[name] = 100 * float(np.mean([check.result().verdict is Verdict.PASS for check in started]))
    found["length"] = float(np.mean([len(sample.token_ids) for sample in samples]))
    taught = [TrainSample(sample.prompt_ids, sample.token_ids, sample.log_probs) for sample in samples]
    _, batches = accumulated(player, jax.tree.map(jnp.zeros_like, adapters), taught)
    moved = [(batch.old_log_probs_BT - np.asarray(own))[batch.response_mask_BT] for batch, _, own in batches]
    return found | {"kl": float(np.concatenate(moved).mean())}


def steps(run: OpenedRun, peers: str, output: Path) -> None:
    """Trains with TRL, and writes what it logs of each step, beside its adapters and samples."""
    with (output / "trl.jsonl").open("w") as file:
        for row in train(run, peers, output):
            print(json.dumps(row), file=file, flush=True)


def measure(path: str, output: Path) -> None:
    """Writes what both sides do on validation, after each step that both keep, to measured.jsonl."""
    with opened_run(path, "0", Hosts()) as run, (output / "measured.jsonl").open("w") as file:
        player = run.parts.players["code"]
        checkpoints = Checkpoints.reader(run.folder.checkpoints)
        rows = [("both", 0, player.state.params)]
        for step in (step for step in checkpoints.steps() if (output / f"trl_{step}").exists()):
            rows.append(("codea1", step, functools.partial(player.functions.restore_params, checkpoints, step)))
            rows.append(("TRL", step, functools.partial(placed, player, output / f"trl_{step}")))
        for side, step, adapters in rows:
            row = {"side": side, "step": step, **measured(run, adapters() if callable(adapters) else adapters)}
            print(json.dumps(row), flush=True)
            print(json.dumps(row), file=file, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["update", "replay", "steps", "measure"])
    parser.add_argument("run")
    parser.add_argument("--peers")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=given.what == "measure")  # which reads what `steps` wrote there
    if given.what == "measure":
        measure(given.run, given.output)
        return
    with opened_run(given.run, "0", Hosts()) as run:
        {"update": update, "replay": replay, "steps": steps}[given.what](run, given.peers, given.output)


if __name__ == "__main__":
    main()
