"""The whole game in one file, to read and to change: a Code LLM and a Test LLM learn from each other by GRPO.

The Code LLM answers questions with programs. The Test LLM reads a program and writes suites of asserts that shall break
it. A ground truth answers every call, a sandbox runs the programs, and two rewards come of it: R_C for passing tests,
R_T for right tests that the program fails. Each policy learns from those of its samples that did better or worse than
others of their group. So tests get harder as programs get better.

After the warm start of `make train`, `python -m codea1.lab.minimal --start=runs/tiny/sft` plays it.

Read `play` first: one step, Algorithm 1 of Code-A1 (arXiv 2603.15611) in eight parts, which call what stands above. It
computes what `codea1.train` does with `--config.game.reward=official`, number for number (tests/minimal_test.py). Left
out is what long runs need: checkpoints, hosts, validation, grading while others are sampled, other methods and rewards.
"""

import dataclasses
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from absl import flags
from jax.sharding import Mesh

from codea1.data.feed import QuestionFeed
from codea1.data.loader import load_questions
from codea1.data.tokenizer import load_tokenizer
from codea1.game.answers import ParsedSuite, extract_python_block, parse_suite
from codea1.game.calls import Call, CallTest
from codea1.game.prompts import TINY, Message, code_messages, test_messages
from codea1.game.question import Question
from codea1.learn.batch import RowLayout, TrainSample, abstract_batch, mini_batches, row_shapes, to_mesh
from codea1.learn.log_probs import make_score
from codea1.learn.losses import ObjectiveConfig
from codea1.learn.optimizer import AdamWConfig
from codea1.learn.update import PolicyLoss, Update, abstract_state, init_state
from codea1.models import qwen2
from codea1.models.huggingface import Checkpoint
from codea1.rollout.engine import Engine, Request, Sample
from codea1.runtime import command
from codea1.runtime.hosts import stable_hash
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.sharding import TRAIN_RULES, data_parallel, make_mesh, param_shardings
from codea1.values.entry_points import same_answer
from codea1.values.verdict import Verdict

NUM_LOADED = 240  # questions: few, so that each comes back and meets its Mistake Book
NUM_QUESTIONS = 12  # in a step; the paper asks 256, with M = N = K = 8, and trains on one solution's suites
NUM_SOLUTIONS = 6  # M, of a question
NUM_SUITES = 4  # N, for a solution
NUM_TESTS = 4  # K, asked for in a suite
NUM_REPLAYED = 8  # tests of the Mistake Book that every solution of their question runs
NUM_TRAINED = 4  # solutions of a question whose suites train the Test LLM
ALPHA = 0.5  # weight of validity in R_T; the rest is for tests that the program fails
OPTIMIZER = AdamWConfig(beta2=0.99, weight_decay=0.01)
Book = defaultdict[str, Counter[CallTest]]  # by question: tests, and how often they were failed more than passed


@dataclass(frozen=True)
class Learner:
    """How one policy samples and learns. Lengths are in tokens."""

    max_prompt: int
    max_response: int
    learning_rate: float
    kl_coefficient: float  # the price of moving away from the policy that it was, without which it drifts


CODE = Learner(20, 28, learning_rate=3e-4, kl_coefficient=0.03)
TEST = Learner(48, 68, learning_rate=4e-4, kl_coefficient=0.01)


class Policy:
    """A language model that answers and learns."""

    def __init__(self, name: str, folder: str, learner: Learner, mesh: Mesh, seed: int) -> None:
        """Loads the model of a folder. Its draws depend on `seed` and `name`, which is "code" or "test"."""
        self._name, self._learner, self._mesh, self._seed = name, learner, mesh, seed
        self.tokenizer, checkpoint = load_tokenizer(folder), Checkpoint(folder)
        options: dict[str, Any] = {"dtype": "float32", "remat": "none", "platform": mesh.devices.flat[0].platform}
        model = dataclasses.replace(checkpoint.config, param_dtype="float32", **options)  # or small steps would be lost
        graphdef, declared = qwen2.abstract(model)
        layout = param_shardings(declared, mesh, TRAIN_RULES)
        self._reference = checkpoint.place(layout, "float32")  # the policy as it was
        self._state = init_state(self._reference, OPTIMIZER)  # a copy that learns, and AdamW's moments
        lengths: dict[str, Any] = {"max_prompt_length": learner.max_prompt, "max_response_length": learner.max_response}
        ends, pad = self.tokenizer.stop_ids, self.tokenizer.pad_id
        self._engine = Engine(graphdef, model, mesh, slots=96, stop_ids=ends, pad_id=pad, **lengths)
        longest, chunk = learner.max_prompt + learner.max_response, 1024  # tokens whose logits there are at once
        shapes = row_shapes((), longest, max_rows=8, multiple=data_parallel(mesh))
        self._layout = RowLayout(shapes, "token-mean", learner.max_response, pad)
        self._score = make_score(graphdef, chunk, mesh)
        loss = PolicyLoss(graphdef, ObjectiveConfig(kl_coefficient=learner.kl_coefficient), chunk)
        batches = [abstract_batch(shape, mesh, ref=True) for shape in shapes]
        self._update = Update(loss, OPTIMIZER, abstract_state(self._reference, OPTIMIZER), batches)

    def answer(self, chats: Iterable[tuple[str, int, list[Message]]], count: int, step: int) -> Iterator[Sample]:
        """Yields samples, in no order, of chats: (id of the question, number of its first sample, messages)."""
        prompts = [(id, tuple(self.tokenizer.encode_chat(chat)), first) for id, first, chat in chats]
        requests = [Request(id, ids, n, count) for id, ids, n in prompts if len(ids) <= self._learner.max_prompt]
        return self._engine.generate(
            self._state.params, requests, seed=self._seed, stream=f"{self._name}/train", step=step, temperature=1.0
        )

    def learn(self, samples: "Sequence[Solution | Suite]", step: int) -> None:
        """Makes two optimizer steps, each on a random half of the samples.

        PPO's loss: a token's advantage times the clipped ratio of its probability to that with which it was drawn. The
        ratio is 1 until the first step has moved the policy. To this comes the KL divergence from the reference.
        """
        drawn = [(graded.sample, graded.advantage) for graded in samples if graded.reward is not None]
        rows = [TrainSample(s.prompt_ids, s.token_ids, s.log_probs, advantage) for s, advantage in drawn]
        seed = [self._seed, stable_hash(self._name), step]
        for half in mini_batches(rows, 2, np.random.default_rng(seed), self._layout):
            batches = []  # what is in memory at once; the gradients of all are summed
            for batch in half.batches:
                batch = to_mesh(batch, self._mesh)
                log_probs_BT, _ = self._score(self._reference, batch.tokens_BT, np.float32(1.0), None)
                batches.append(dataclasses.replace(batch, ref_log_probs_BT=log_probs_BT))
            self._state, _ = self._update(self._state, batches, self._learner.learning_rate)


@dataclass(eq=False)
class Suite:
    """A sample of the Test LLM, and what becomes of it."""

    sample: Sample
    parsed: ParsedSuite
    tests: list[CallTest] = field(default_factory=list)  # that run on the solution
    verdicts: list[Verdict] = field(default_factory=list)  # of these
    num_invalid: int = 0  # asserts that cost validity
    validity: float = 0.0  # Val
    reward: float | None = None  # R_T; None: the sandbox failed, and nothing is learned
    advantage: float = 0.0


@dataclass(eq=False)
class Solution:
    """A sample of the Code LLM, and what becomes of it."""

    question: Question
    sample: Sample
    program: str
    replayed: list[CallTest]  # from the Mistake Book
    history: list[Verdict] = field(default_factory=list)  # of these
    suites: list[Suite] = field(default_factory=list)
    is_valid: bool = False  # it could be loaded
    is_correct: bool = False  # by the question's hidden check script, which pays no sample
    is_lost: bool = False  # the sandbox failed
    reward: float | None = None  # R_C; None as in a suite, or there are no suites
    advantage: float = 0.0


def grade(solution: Solution, grader: Grader) -> None:
    """Has the ground truth answer the calls of a solution's suites, and runs the solution on those and the old ones."""
    question, suites, program = solution.question, solution.suites, solution.question.module(solution.program)
    right, asked = question.module(question.ground_truth), [item for suite in suites for item in suite.parsed.asserts]
    calls = [test.call for test in solution.replayed] + [item.call for item in asked if item.call is not None]
    answers = dict(zip(calls, grader.ground_truth(right, calls).result(), strict=True))  # the time bounds the program's
    on_history = grader.grade(program, solution.replayed, question.checker, right).result()
    solution.is_valid, solution.history = bool(on_history.program_valid), on_history.verdicts
    checked = grader.check(program, question.check_script or "", question.entry_point).result()
    solution.is_correct = checked.verdict is Verdict.PASS
    for suite in suites:
        seen: set[Call] = set()
        for item in (item for item in suite.parsed.asserts if not item.dropped):  # as is what calls nothing
            if item.call is None or item.call in seen or not answers[item.call].usable:  # or the ground truth raises
                suite.num_invalid += 1
                continue
            seen.add(item.call)
            truth = answers[item.call].value
            # A wrong answer costs validity. Its input may be a good one all the same, and runs with the right answer.
            suite.num_invalid += item.answer is None or not same_answer(item.call.entry_point, item.answer, truth)
            suite.tests.append(CallTest(item.call, truth))
    tests = [test for suite in suites for test in suite.tests]
    on_suites = grader.grade(program, tests, question.checker, right).result()
    verdicts = iter(on_suites.verdicts)
    for suite in suites:
        suite.verdicts = [next(verdicts) for _ in suite.tests]
    solution.is_lost = any((on_history.lost, on_suites.lost, *(a.reason == "infra" for a in answers.values())))


def num_failed(verdicts: Sequence[Verdict]) -> int:
    """Counts the tests that were not passed; one that a slow program kept from running is one of them."""
    return sum(verdict is not Verdict.PASS for verdict in verdicts)


def code_reward(solution: Solution) -> float:
    """Returns R_C, the mean over suites n of (Pass_hist + Pass_new,n) / 2, or of the part that there are tests for."""
    shares = []
    for suite in solution.suites:
        rates = [(len(part) - num_failed(part)) / len(part) for part in (solution.history, suite.verdicts) if part]
        shares.append(sum(rates) / len(rates) if rates and solution.is_valid else 0.0)
    return sum(shares) / len(shares)


def test_reward(suite: Suite, solution: Solution) -> float:
    """Returns R_T = alpha Val + (1 - alpha) Adv, minus the share of characters that cannot be printed.

    Val is the share of right asserts of the K asked for. Adv is the share Fail_new of them that the program fails, or,
    with replayed tests, (Fail_new - Fail_hist + 1) / 2. A program that does not load fails all, and pays for nothing.
    """
    suite.validity = max(0.0, min(len(suite.tests) / NUM_TESTS, 1 - suite.num_invalid / NUM_TESTS))
    adversarial = num_failed(suite.verdicts[:NUM_TESTS]) / NUM_TESTS
    if suite.verdicts and solution.history:
        adversarial = (adversarial - num_failed(solution.history) / len(solution.history) + 1) / 2
    paid = ALPHA * suite.validity + (1 - ALPHA) * adversarial if solution.is_valid else 0.0
    return paid - suite.parsed.nonprintable_ratio


def update_book(tests: Counter[CallTest], solutions: Sequence[Solution]) -> Counter[CallTest]:
    """Returns a question's tests after a step: a pass takes 1, at 0 a test is mastered and leaves, a failure adds 1."""
    valid = [solution for solution in solutions if solution.is_valid]  # a program that does not load proves nothing
    replayed = [pair for s in valid for pair in zip(s.replayed, s.history, strict=True)]
    new = [pair for s in valid for suite in s.suites for pair in zip(suite.tests, suite.verdicts, strict=True)]
    tests.subtract(test for test, verdict in replayed if verdict is Verdict.PASS)
    tests = +tests  # those above 0
    tests.update(test for test, verdict in new if verdict in (Verdict.FAIL, Verdict.ERROR, Verdict.TIMEOUT))
    return tests


def compare(group: Sequence[Solution | Suite]) -> None:
    """Gives each sample its advantage in its group, (R - mean) / (std + 1e-6): GRPO, which needs no value model."""
    graded = [sample for sample in group if sample.reward is not None]
    rewards = np.array([sample.reward for sample in graded])
    if len(set(rewards)) > 1:  # or else there is nothing to learn, and rounding would be divided by nearly 0
        for sample, advantage in zip(graded, (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6), strict=True):
            sample.advantage = float(advantage)


def play(step: int, asked: list[Question], code: Policy, test: Policy, book: Book, grader: Grader) -> list[Solution]:
    """Plays one step and returns its solutions, with all that became of them."""
    by_id = {question.id: question for question in asked}
    groups: dict[str, list[Solution]] = {id: [] for id in by_id}
    # 1. What programs failed most is replayed. The Book stays in that order, which later decides between equals.
    for id in groups:
        book[id] = Counter(dict(book[id].most_common()))
    # 2. M solutions of each question.
    chats = [(question.id, 0, code_messages(TINY, question)) for question in asked]
    for sample in sorted(code.answer(chats, NUM_SOLUTIONS, step), key=lambda sample: sample.index):
        id, program = sample.question_id, extract_python_block(code.tokenizer.decode(sample.token_ids)).source
        groups[id].append(Solution(by_id[id], sample, program, replayed=list(book[id])[:NUM_REPLAYED]))
    # 3. N suites for each solution, which the Test LLM is shown: this is the program to break.
    solutions = [solution for group in groups.values() for solution in group]
    shown = [test_messages(TINY, s.question, s.program, NUM_TESTS) for s in solutions]
    chats = [(s.question.id, s.sample.index * NUM_SUITES, chat) for s, chat in zip(solutions, shown, strict=True)]
    for sample in sorted(test.answer(chats, NUM_SUITES, step), key=lambda sample: sample.index):
        solution, text = groups[sample.question_id][sample.index // NUM_SUITES], test.tokenizer.decode(sample.token_ids)
        solution.suites.append(Suite(sample, parse_suite(text, solution.question.entry_point)))
    # 4. Verdicts.
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda solution: grade(solution, grader), solutions))
    # 5. Rewards, but for those on whom the sandbox failed.
    for solution in solutions:
        if solution.suites and not solution.is_lost:
            solution.reward = code_reward(solution)
            for suite in solution.suites:
                suite.reward = test_reward(suite, solution)
    # 6. The Mistake Book.
    for id, group in groups.items():
        book[id] = update_book(book[id], group)
    # 7. Advantages: the solutions of a question are compared with each other, and so are the suites of a solution.
    for group in groups.values():
        compare(group)
    for solution in solutions:
        compare(solution.suites)
    # 8. Both learn. Suites train where their rewards differ most (TOPVAR): equals teach nothing, and cost as much.
    code.learn(solutions, step)
    chosen: list[Suite] = []
    for group in groups.values():
        spread = {s: np.std(sorted(suite.reward or 0.0 for suite in s.suites) or [0.0]) for s in group}
        selected = sorted(group, key=lambda solution: spread[solution], reverse=True)[:NUM_TRAINED]
        chosen += [suite for solution in group if solution in selected for suite in solution.suites]
    test.learn(chosen, step)
    return solutions


def run(start: str, source: str, data_folder: str, steps: int, seed: int) -> None:
    """Has two policies that start from one model play on the questions of a source, and prints means of each step."""
    mesh, book = make_mesh(1, -1, 1), Book(Counter)  # over all devices of this host
    code, test = Policy("code", start, CODE, mesh, seed), Policy("test", start, TEST, mesh, seed)
    feed = QuestionFeed(load_questions(source, "train", NUM_LOADED, data_folder), NUM_QUESTIONS, seed)
    with SandboxPool(isolation="auto") as pool:
        grader = Grader(pool)
        for step in range(1, steps + 1):
            started = time.monotonic()
            solutions = play(step, feed.batch(step - 1), code, test, book, grader)
            suites = [suite for solution in solutions for suite in solution.suites]
            metrics: dict[str, Sequence[float]] = {
                "R_C": [solution.reward for solution in solutions if solution.reward is not None],
                "correct": [solution.is_correct for solution in solutions],
                "R_T": [suite.reward for suite in suites if suite.reward is not None],
                "validity": [suite.validity for suite in suites],
                "passes new": [verdict is Verdict.PASS for suite in suites for verdict in suite.verdicts],
                "passes replayed": [verdict is Verdict.PASS for solution in solutions for verdict in solution.history],
                "book": [sum(map(len, book.values()))],
                "seconds": [time.monotonic() - started],
            }
            means = [f"{name} {np.mean(values):.3f}" for name, values in metrics.items() if values]
            print(f"step {step}", *means, flush=True)


if __name__ == "__main__":
    START = flags.DEFINE_string("start", "runs/tiny/sft", "workdir of codea1.sft: both policies start from its model")
    SOURCE = flags.DEFINE_string("questions", "procedural/blind", "their source, as config.data.train.source")
    FOLDER = flags.DEFINE_string("folder", "data", "where worlds are prepared")
    STEPS = flags.DEFINE_integer("steps", 60, "training steps", lower_bound=1)
    SEED = flags.DEFINE_integer("seed", 0, "of everything random", lower_bound=0, upper_bound=2**64 - 1)
    command.run(lambda: run(f"{START.value}/model", SOURCE.value, FOLDER.value, STEPS.value, SEED.value))
