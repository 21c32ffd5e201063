"""One whole training step of the demo's `recipe=aimed`, from verdicts to new parameters, beside its equations.

The equations are written out here in numpy and float64. Of the code they share the network alone: log-probs of given
tokens and the gradients of these, in float32.
"""

import dataclasses
from dataclasses import dataclass
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from ml_collections import ConfigDict

from bench.micro_run import make_player, mesh_of
from codea1.config_file import validate
from codea1.game.calls import Call, CallTest
from codea1.game.mistake_book import Evidence, MistakeBook
from codea1.game.question import Question
from codea1.game.round import Round
from codea1.lab import model_writer
from codea1.models import qwen2
from codea1.rollout.engine import Sample
from codea1.runtime.hosts import Hosts, stable_hash
from codea1.sandbox.host.grading import Grading, GroundTruthAnswer
from codea1.training.setup import game_rules
from codea1.training.step import Step
from codea1.values import decode_exact, encode_exact
from codea1.values.verdict import Verdict
from configs import tiny
from tests.game_round_test import make
from tests.player_test import MODEL, norm
from tests.training_step_test import done, program

M, N, K, TRAINED, ALPHA, MUTANT_WEIGHT = 6, 4, 4, 4, 0.3, 0.5  # the recipe's
RATES, KL = {"code": 3e-4, "test": 4e-4}, {"code": 0.03, "test": 0.01}
LONGEST = {"code": (20, 28), "test": (48, 68)}  # tokens of prompts and of responses
STEP, STEPS, WARMUP = 8, 120, 5
# Not the recipe's: length costs the Code LLM, truncated suites train nobody, and Adam's epsilon is so large that what
# float32 leaves of a gradient of 0 is not scaled up.
OVERLONG, ADAM_EPS = 8, 1e-4

LATE, LOST = 77, 99  # inputs for which the sandbox has no time left, and on which it fails
BROKEN = "n +"  # cannot be loaded
PROGRAMS = ("n", "n + (n != 4)", "n + 1 + (n > 8)", "n + 1 + 0 // (n - 6)", BROKEN, "n + 1")
MUTANTS = ("n + 1 + (n == 3)", "n", "n + (n < 7)", "0")  # the first and the third pay
Suite = list[tuple[int, int]]  # asserts: an input n, and what is stated of f(n), which is n + 1


@dataclass
class Game:
    """What is sampled for a question, and the inputs in its Mistake Book."""

    programs: list[str]
    suites: list[list[Suite]]  # [M][N]
    book: list[int]


def made_games() -> dict[str, Game]:
    rng = np.random.default_rng(3)

    def suite() -> Suite:  # of inputs that may come twice, some beyond K
        inputs = rng.choice([*range(1, 12), LATE], rng.integers(1, K + 3)).tolist()
        return [(n, n + 1 + int(rng.random() < 0.25)) for n in inputs]

    games = {id: Game(list(PROGRAMS), [[suite() for _ in range(N)] for _ in range(M)], []) for id in "pq"}
    games["p"].book = [4, 7, 9]
    games["p"].suites[1][2] = [(3, 4), (LOST, 5), (4, 5)]  # what is lost is a test that states a wrong answer
    games["p"].suites[2] = [games["p"].suites[2][0]] * N  # all paid alike
    for m in range(1, M):  # their spreads tie
        games["q"].programs[m], games["q"].suites[m] = "n", games["q"].suites[1][:: (-1) ** m]
    return games


def verdict(expression: str, n: int) -> Verdict:
    """What the sandbox says of f(n) == n + 1 on the program that returns `expression`."""
    if n in (LATE, LOST):
        return Verdict.NOT_RUN if n == LATE else Verdict.INFRA
    try:
        return Verdict.PASS if eval(expression, {"n": n}) == n + 1 else Verdict.FAIL
    except (ArithmeticError, SyntaxError):
        return Verdict.ERROR


class Sandbox:
    """A grader that gives these verdicts."""

    def ground_truth(self, source: str, calls: list[Call]):
        return done([GroundTruthAnswer(True, encode_exact(input_of(call) + 1), "", 0.0) for call in calls])

    def grade(self, source: str, tests: list[CallTest], checker: str, ground_truth: str):
        expression = source.removeprefix(program(""))
        verdicts = [verdict(expression, input_of(test.call)) for test in tests]
        return done(Grading(expression != BROKEN, verdicts, [""] * len(tests), 0.0))


def input_of(call: Call) -> int:
    return decode_exact(call.arguments)[0][0]


@jax.jit
def log_probs(params, tokens_BT):
    """Log-probs [B, T] of rows of tokens, 0 at the first."""
    model = nnx.merge(qwen2.abstract(MODEL)[0], params)
    hidden, *_ = model(tokens_BT, jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape))
    of_all = jax.nn.log_softmax(model.logits(hidden)[:, :-1])
    return jnp.pad(jnp.take_along_axis(of_all, tokens_BT[:, 1:, None], axis=-1)[..., 0], ((0, 0), (1, 0)))


@jax.jit
def pulled_back(params, tokens_BT, slopes_BT):
    """The gradient of what depends on log-probs by these slopes."""
    return jax.vjp(lambda p: log_probs(p, tokens_BT), params)[1](slopes_BT)[0]


def as_float64(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


class Play:
    """The step as it is trained, but for answers and verdicts; and what was there before it."""

    stop_ids, pad_id, transcript, num_textless = (1,), 0, staticmethod(str), len  # it is its players' tokenizer

    def __init__(self, config: ConfigDict) -> None:
        self.games, self.rng = made_games(), np.random.default_rng(1)
        self.samples: dict[tuple[str, str, int], Sample] = {}  # by role, question and index
        self.texts: dict[tuple[int, ...], str] = {}
        config = validate(config)
        self.players = {role: make_player(role, config, mesh_of(config), self) for role in LONGEST}
        self.reference, self.before = {}, {}
        for role, player in self.players.items():  # they have moved away from their reference policies
            self.reference[role], moved = as_float64(player.params), jax.tree.map(lambda p: 1.1 * p, player.params)
            self.before[role] = as_float64(moved)
            player.restore({role: dataclasses.replace(player.state, params=moved)})
            player.generate = self.generate
        book, questions = MistakeBook(), []
        for id, game in self.games.items():
            questions.append(Question(id, None, id, id, program("n + 1"), "f", mutants=tuple(map(program, MUTANTS))))
            book.update(id, questions[-1].ground_truth_digest, 1, Evidence([[make(n, n + 1) for n in game.book]]))
        feed, rules = SimpleNamespace(batch=lambda _: questions), game_rules(config)
        self.step = step = Step(STEP, self.players, rules, feed, Sandbox(), book, Hosts())
        round_ = Round(STEP)
        while asked := step.next_questions(round_):  # as codea1.train has it
            solutions = step.solve(asked)
            graded = step.grade(asked, step.retrieve(asked), solutions, step.attack(solutions))
            round_ += step.update_book(step.pay(graded))
        compared = step.compare(round_)
        for player in self.players.values():
            step.learn(player, compared)

    def generate(self, requests, stream: str, **_):
        """Yields what the games say, in any order; log-probs are near the policy's, and some responses truncated."""
        role = stream.partition("/")[0]
        longest = LONGEST[role][1]
        for request in requests:
            game = self.games[request.question_id]
            for index in self.rng.permutation(request.num_samples) + request.first_sample:
                lines = [program(game.programs[index % M])]
                if role == "test":
                    lines = [f"assert f({n}) == {stated}" for n, stated in game.suites[index // N][index % N]]
                length, finish = (longest, "length") if index % 7 == 3 else (self.rng.integers(6, longest), "stop")
                ids = tuple(self.rng.integers(2, MODEL.vocab_size, length).tolist())
                self.texts[ids] = "\n".join(["```python", *lines, "```"])
                sample = Sample(request.question_id, int(index), request.prompt_ids, ids, np.zeros(0), finish)
                tokens, mask = laid_out([sample], role)
                near = log_probs(self.before[role], tokens)[mask] + np.float32(self.rng.normal(0, 0.3, length))
                sample = dataclasses.replace(sample, log_probs=np.asarray(near))
                self.samples[role, sample.question_id, sample.index] = sample
                yield sample

    def encode_chat(self, messages: object) -> list[int]:
        rng = np.random.default_rng(stable_hash(str(messages)))
        return rng.integers(2, MODEL.vocab_size, rng.integers(3, 20)).tolist()

    def decode(self, ids: tuple[int, ...]) -> str:
        return self.texts[ids]


def laid_out(samples: list[Sample], role: str) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and response mask, [B, T], a sequence a row."""
    tokens, mask = (np.zeros((len(samples), sum(LONGEST[role])), kind) for kind in (np.int32, bool))
    for row, sample in enumerate(samples):
        start, end = len(sample.prompt_ids), len(sample.prompt_ids) + len(sample.token_ids)
        tokens[row, :end] = [*sample.prompt_ids, *sample.token_ids]
        mask[row, start:end] = True
    return tokens, mask


@pytest.fixture(scope="module")
def play(tmp_path_factory) -> Play:
    folder, rng = tmp_path_factory.mktemp("model"), np.random.default_rng(0)
    shapes = nnx.to_pure_dict(qwen2.abstract(MODEL)[1])
    model_writer.save(folder, MODEL, jax.tree.map(lambda x: np.float32(0.4 * rng.normal(size=x.shape)), shapes))
    c = tiny.get_config(f"world=blind,recipe=aimed,steps={STEPS}")
    c.questions_per_step = 2
    for role in LONGEST:
        c[role].model, c[role].adam_eps = str(folder), ADAM_EPS
    c.code.overlong_buffer, c.test.learn_truncated = OVERLONG, False
    validate(c)
    return Play(c)


def right(suite: Suite) -> list[int]:
    """The inputs that come for the first time among the first K asserts, with a right answer."""
    return [n for place, (n, stated) in enumerate(suite[:K]) if stated == n + 1 and n not in dict(suite[:place])]


def fails(expression: str, tests: list[int]) -> int:
    return sum(verdict(expression, n) in (Verdict.FAIL, Verdict.ERROR) for n in tests)


def pass_rate(expression: str, tests: list[int]) -> float:
    return np.mean([verdict(expression, n) is Verdict.PASS for n in tests]) if tests else np.nan


def code_reward(game: Game, m: int) -> float:
    """R_C = mean over suites of (Pass_hist + Pass_new) / 2, or Pass_new without history; NaN where masked."""
    if any(LOST in dict(suite) for suite in game.suites[m]):
        return np.nan
    history = pass_rate(game.programs[m], game.book)
    return np.mean([np.nanmean([history, pass_rate(game.programs[m], list(dict(suite)))]) for suite in game.suites[m]])


def terms(game: Game, m: int) -> list[tuple[float, float]]:
    """Val = v / K and Adv = (1 - w) f / K + w (paid mutants killed / paid mutants) of each suite; NaN where masked."""
    found = []
    for suite in game.suites[m]:
        tests, expression = right(suite), game.programs[m]
        of_program = fails(expression, tests) / K if expression != BROKEN else 0.0
        of_mutants = np.mean([fails(mutant, tests) > 0 for mutant in MUTANTS[::2]])
        adversarial = (1 - MUTANT_WEIGHT) * of_program + MUTANT_WEIGHT * of_mutants
        found.append((np.nan, np.nan) if LOST in dict(suite) else (len(tests) / K, adversarial))
    return found


def chosen(rewards_MN: np.ndarray) -> list[int]:
    """TOPVAR: the solutions whose suites' rewards deviate most, the first of equal ones."""
    spreads = np.nanstd(np.sort(rewards_MN), axis=1)
    return sorted(sorted(range(M), key=lambda m: -spreads[m])[:TRAINED])


def compared(rewards: np.ndarray) -> np.ndarray:
    """(r - mean) / (std + 1e-6) over the last axis, of what is not masked, with the unbiased std; 0 where masked."""
    deviations = rewards - np.nanmean(rewards, axis=-1, keepdims=True)
    deviations[np.nanmax(rewards, axis=-1) == np.nanmin(rewards, axis=-1)] = 0.0
    return np.nan_to_num(deviations / (np.nanstd(rewards, axis=-1, ddof=1, keepdims=True) + 1e-6))


class Expected:
    """What the step should have come to, by question, m and n."""

    def __init__(self, play: Play) -> None:
        length = {key: len(sample.token_ids) for key, sample in play.samples.items()}
        games = play.games.values()
        self.r_c = np.array([[code_reward(game, m) for m in range(M)] for game in games])
        lengths = np.array([[length["code", id, m] for m in range(M)] for id in play.games])
        self.shaped = self.r_c - np.clip((lengths - (LONGEST["code"][1] - OVERLONG)) / OVERLONG, 0, 1)
        self.a_c = compared(self.shaped)
        val, adv = np.moveaxis(np.array([[terms(game, m) for m in range(M)] for game in games]), -1, 0)
        self.r_t = ALPHA * val + (1 - ALPHA) * adv
        self.selected = np.array([[m in chosen(rewards) for m in range(M)] for rewards in self.r_t])
        lengths = np.array([[[length["test", id, m * N + n] for n in range(N)] for m in range(M)] for id in play.games])
        # GDPO: each term is compared in its group; the weighed sums are standard scores of the suites that train.
        self.trains = self.selected[..., None] & ~np.isnan(self.r_t) & (lengths < LONGEST["test"][1])
        sums = ALPHA * compared(val) + (1 - ALPHA) * compared(adv)
        scores = (sums - sums[self.trains].mean()) / (sums[self.trains].std() + 1e-6)
        self.a_t = np.where(np.isnan(self.r_t), 0.0, scores)


@pytest.fixture(scope="module")
def expected(play) -> Expected:
    return Expected(play)


def recorded(play: Play, role: str, name: str) -> np.ndarray:
    """A field of the records of solutions [2, M], or of suites [2, M, N]; NaN for None."""
    records = list(play.step.round.solutions if role == "code" else play.step.round.suites)
    return np.array([getattr(each, name) for each in records], float).reshape((2, M) if role == "code" else (2, M, N))


def test_rewards_selection_and_advantages(play, expected):
    np.testing.assert_allclose(recorded(play, "code", "total"), expected.r_c, rtol=1e-12)
    np.testing.assert_allclose(recorded(play, "code", "shaped_reward"), expected.shaped, rtol=1e-12)
    np.testing.assert_allclose(recorded(play, "test", "total"), expected.r_t, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(recorded(play, "test", "selected"), np.stack([expected.selected] * N, axis=-1))
    np.testing.assert_allclose(recorded(play, "code", "advantage"), expected.a_c, rtol=1e-9)
    np.testing.assert_allclose(recorded(play, "test", "advantage"), expected.a_t, rtol=1e-9, atol=1e-12)


def test_what_the_games_must_hold_is_in_them(expected):
    assert np.isnan(expected.r_c).sum() == np.isnan(expected.r_t).sum() == 1
    spreads = np.sort(np.std(np.sort(expected.r_t[1]), axis=1))[::-1]
    assert spreads[TRAINED - 1] == spreads[TRAINED]  # which of them trains is the tie's to say
    assert len(set(expected.r_t[0, 2])) == 1  # suites paid alike
    assert (expected.selected[..., None] & ~expected.trains).sum() > 1  # a masked one, and truncated ones


def token_losses(own, old, reference, advantages, kl_coefficient):
    """Loss by token, and its derivative by `own`: dual-clip PPO plus KL by k3, e^-d - 1 + d, d = own - reference."""
    ratio, d = np.exp(own - old), own - reference
    unclipped, clipped = -advantages * ratio, -advantages * np.clip(ratio, 0.8, 1.28)
    loss, slope = np.maximum(unclipped, clipped), np.where(unclipped >= clipped, unclipped, 0.0)
    too_large = (advantages < 0) & (loss > -10 * advantages)
    loss, slope = np.where(too_large, -10 * advantages, loss), np.where(too_large, 0.0, slope)
    assert (np.exp(-d) - 1 + d < 10).all()  # where it is not bounded
    return loss + kl_coefficient * (np.exp(-d) - 1 + d), slope + kl_coefficient * (1 - np.exp(-d))


@pytest.mark.parametrize("role", LONGEST)
def test_mini_batches_loss_gradient_and_parameters(play, expected, role):
    trains = expected.trains if role == "test" else ~np.isnan(expected.r_c)
    per_question = M * N if role == "test" else M
    keys = [(role, id, index) for id in play.games for index in range(per_question)]
    samples = [play.samples[key] for key, is_in in zip(keys, trains.ravel(), strict=True) if is_in]
    tokens, mask = laid_out(samples, role)
    advantages = (expected.a_t if role == "test" else expected.a_c)[trains][:, None] * mask
    old = np.zeros(mask.shape)
    old[mask] = np.concatenate([sample.log_probs for sample in samples])
    reference = as_float64(log_probs(play.reference[role], tokens))
    done = STEP - 1 - WARMUP
    rate = RATES[role] * ((1 + np.cos(np.pi * done / (STEPS - WARMUP))) / 2 if role == "code" else 1)
    params, losses, norms = play.before[role], [], []
    mean, square = (jax.tree.map(np.zeros_like, params) for _ in range(2))
    order = np.random.default_rng([0, stable_hash(role), STEP]).permutation(len(samples))
    for number, part in enumerate(np.array_split(order, 2), 1):
        inside, loss, slope = mask[part], np.zeros(mask[part].shape), np.zeros(mask[part].shape)
        own = as_float64(log_probs(params, tokens[part]))
        per_token = (x[inside] for x in (own, old[part], reference[part], advantages[part]))
        loss[inside], slope[inside] = token_losses(*per_token, KL[role])
        losses.append(loss.sum() / inside.sum())  # the mean over the tokens of the mini-batch
        gradient = as_float64(pulled_back(params, tokens[part], slope / inside.sum()))
        norms.append(norm(gradient))
        gradient = jax.tree.map(lambda g: g * min(1.0, 1.0 / norms[-1]), gradient)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
        square = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g**2, square, gradient)

        def stepped(p, m, v, number=number):
            direction = m / (1 - 0.9**number) / (np.sqrt(v / (1 - 0.99**number)) + ADAM_EPS)
            return p - rate * (direction + 0.01 * p)

        params = jax.tree.map(stepped, params, mean, square)
    metrics, state = play.step.metrics, play.players[role].state
    assert metrics[f"{role}/train_sequences"] == len(samples)
    np.testing.assert_allclose(metrics[f"{role}/loss"], np.mean(losses), rtol=1e-4)
    np.testing.assert_allclose(metrics[f"{role}/grad_norm"], np.mean(norms), rtol=1e-4)
    assert metrics[f"{role}/clip_fraction_high"] > 0 < metrics[f"{role}/clip_fraction_low"]
    for found, wanted in ((state.opt_state[0].mu, mean), (state.opt_state[0].nu, square)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6), found, wanted)
    moved = [jax.tree.map(np.subtract, each, play.before[role]) for each in (jax.device_get(state.params), params)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=rate / 100), *moved)
