"""One round of the game, from questions to rewards: who is asked what, what is executed, what the book learns.

Nothing waits for a batch: a finished solution is asked about and graded, and a finished suite is graded, while others
are still being sampled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from codea1.game.answers import parse_suite
from codea1.game.asserts import golden_tests
from codea1.game.ground_truth import MarkedAssert
from codea1.game.methods import Rules
from codea1.game.mistake_book import BookChange, MistakeBook
from codea1.game.prompts import code_messages, test_messages
from codea1.game.question import Question
from codea1.game.rewards import INFRA, RewardPolicy
from codea1.game.round import GradedTest, QuestionRecord, Round, SampleRecord, SolutionRecord, SuiteRecord
from codea1.game.tests import Test
from codea1.players.player import Player
from codea1.rollout.engine import Request, Sample
from codea1.runtime.futures import Steps, run
from codea1.runtime.hosts import Hosts
from codea1.runtime.phases import Stopwatch
from codea1.runtime.shares import Shares
from codea1.sandbox.host.grading import LOST, Grader, Grading, require_judged
from codea1.training.samples import trains
from codea1.values.verdict import Verdict


@dataclass(frozen=True)
class _GradedSuite:
    """What the sandbox found out about one suite."""

    marked: list[MarkedAssert]
    verdicts: list[Verdict]  # of the tests among them, in order


def play_round(
    step: int,
    questions: Sequence[Question],
    players: Mapping[str, Player],
    grader: Grader,
    book: MistakeBook,
    rules: Rules,
    hosts: Hosts,
    watch: Stopwatch,
) -> Round:
    """Plays one step with `players`, by role; `book` learns from it. Returns the Round with its rewards.

    Every host plays the whole round, but has only its share of the questions graded, and takes the other verdicts from
    the others. Of the Mistake Book it holds its own shards: what is to be replayed is told to all hosts before, and
    each question's host learns from what all of them know after.

    A question whose prompt does not fit has no solutions, and a program that makes the test prompt too long has no
    suites; both are counted in the round's statistics.

    Raises BadInput as `require_judged` does where the sandbox masks every program's reward; the book has not learned
    of the round then.
    """
    round_ = Round(step, [QuestionRecord(each, signature=rules.policy.signature(each)) for each in questions])
    shares = Shares(hosts, [question.id for question in questions])
    history = _history(round_, book, rules, hosts)
    with watch.phase("rollout_code"):
        solved = _ask_for_solutions(round_, players["code"], rules, grader, history, shares)
    if "test" in players:
        with watch.phase("rollout_test"):
            _ask_for_suites(round_, solved, players["test"], rules, grader, shares)
    with watch.phase("sandbox_wait"):
        shares.collect()
    _pay(round_, rules)
    with hosts.agreed():
        reasons = [each.lost or LOST if each.reward.masked == INFRA else "" for each in round_.solutions]
        require_judged(reasons, f"programs of step {step}")
    if rules.history_size:
        _teach(round_, book, hosts)
    if "test" in players:
        round_.select(rules.trained_solutions)
    return round_


def give_advantages(round_: Round, players: Mapping[str, Player]) -> None:
    """Compares the samples of a round, role by role, under the settings of their player; who trains is selected."""
    _compare(round_.code_groups(), players["code"])
    if "test" in players:
        _compare(round_.test_groups(), players["test"])


def _history(round_: Round, book: MistakeBook, rules: Rules, hosts: Hosts) -> dict[str, list[Test]]:
    """The tests that are replayed of each question, as the host that holds them tells the others."""
    ids = [record.question.id for record in round_.questions]
    if not rules.history_size:
        return {id: [] for id in ids}
    own = {id: book.retrieve(id, rules.history_size, round_.step) for id in ids if book.holds(id)}
    return {id: tests for told in hosts.exchange(own) for id, tests in told.items()}


def _teach(round_: Round, book: MistakeBook, hosts: Hosts) -> None:
    """Each host's part of the book learns; the round notes the whole book's change and size."""
    round_.update(book)
    if book.bound.max_total:
        places = [place for told in hosts.exchange(book.places()) for place in told]
        round_.evict(book, book.bound.total_surplus(places))
    changes, sizes = zip(*hosts.exchange((round_.book_change, round_.book_size)), strict=True)
    round_.book_change, round_.book_size = sum(changes, BookChange()), sum(sizes)


def _ask_for_solutions(
    round_: Round, player: Player, rules: Rules, grader: Grader, history: Mapping[str, list[Test]], shares: Shares
) -> list[tuple[QuestionRecord, SolutionRecord]]:
    by_id = {record.question.id: record for record in round_.questions}
    prompts = {id: player.prompt_ids(code_messages(rules.templates, record.question)) for id, record in by_id.items()}
    requests = [
        Request(id, prompt_ids, first_sample=0, num_samples=rules.num_solutions)
        for id, prompt_ids in prompts.items()
        if player.fits(prompt_ids)
    ]
    solved = []
    for sample in player.generate(requests, step=round_.step, role="code"):
        record = by_id[sample.question_id]
        answer = _sample_record(player, sample)
        solution = SolutionRecord(sample.index, answer, rules.policy.read_program(answer.text))
        record.solutions.append(solution)
        tests = golden_tests(record.question) if rules.golden else history[sample.question_id]
        shares.add(
            record.question.id,
            start=partial(grader.grade, solution.program.source, tests),
            use=partial(_take_grading, solution, tests, rules),
        )
        solved.append((record, solution))
    for record in round_.questions:
        record.solutions.sort(key=lambda solution: solution.index)
    return solved


def _ask_for_suites(
    round_: Round,
    solved: Sequence[tuple[QuestionRecord, SolutionRecord]],
    player: Player,
    rules: Rules,
    grader: Grader,
    shares: Shares,
) -> None:
    asked: dict[tuple[str, int], tuple[QuestionRecord, SolutionRecord]] = {}
    requests = []
    for record, solution in solved:
        shown = solution.program.source if rules.method.sees_solution else None
        prompt_ids = player.prompt_ids(test_messages(rules.templates, record.question, shown, rules.num_tests))
        solution.test_prompt_fits = player.fits(prompt_ids)
        if solution.test_prompt_fits:
            asked[record.question.id, solution.index] = (record, solution)
            first = solution.index * rules.num_suites
            requests.append(Request(record.question.id, prompt_ids, first_sample=first, num_samples=rules.num_suites))
    for sample in player.generate(requests, step=round_.step, role="test"):
        m, n = divmod(sample.index, rules.num_suites)
        record, solution = asked[sample.question_id, m]
        answer = _sample_record(player, sample)
        suite = SuiteRecord(n, answer, parse_suite(answer.text, record.question.entry_point))
        solution.suites.append(suite)
        if len(solution.suites) == rules.num_suites:
            solution.suites.sort(key=lambda suite: suite.index)
            shares.add(
                record.question.id,
                start=partial(run, _grade_suites(record, solution, rules.policy, grader)),
                use=partial(_take_graded_suites, solution),
            )


def _grade_suites(
    record: QuestionRecord, solution: SolutionRecord, policy: RewardPolicy, grader: Grader
) -> Steps[list[_GradedSuite]]:
    """Asks the ground truth first, then, when its answers are there, the solution: a process each for all suites.

    Which tests share a process depends on the samples alone and never on when they finished, because a program that
    keeps state between calls can tell.
    """
    parsed = [suite.parsed for suite in solution.suites]
    calls = list(dict.fromkeys(call for suite in parsed for call in policy.calls(suite)))
    answers = yield grader.ground_truth(record.question.ground_truth, calls)
    known = dict(zip(calls, answers, strict=True))
    marked = [policy.mark(suite, known, record.signature) for suite in parsed]
    grading = yield grader.grade(
        solution.program.source, [item.test for items in marked for item in items if item.kept]
    )
    verdicts = iter(grading.verdicts)
    return [_GradedSuite(items, list(islice(verdicts, sum(item.kept for item in items)))) for items in marked]


def _take_grading(solution: SolutionRecord, tests: Sequence[Test], rules: Rules, grading: Grading) -> None:
    solution.program_valid, solution.lost = grading.program_valid, grading.lost
    graded = [GradedTest(test, verdict) for test, verdict in zip(tests, grading.verdicts, strict=True)]
    if rules.golden:
        solution.golden = graded
    else:
        solution.history = graded


def _take_graded_suites(solution: SolutionRecord, graded: Sequence[_GradedSuite]) -> None:
    for suite, each in zip(solution.suites, graded, strict=True):
        suite.marked, suite.verdicts = each.marked, each.verdicts


def _pay(round_: Round, rules: Rules) -> None:
    for solution in round_.solutions:
        if rules.golden:
            solution.pay_from_golden_tests()
        else:
            solution.pay_from_suites(rules.policy)


def _compare(groups: Sequence[Sequence[SolutionRecord | SuiteRecord]], player: Player) -> None:
    records = [(index, record) for index, group in enumerate(groups) for record in group]
    for _, record in records:
        if not record.masked:
            record.shaped_reward = player.shaped_reward(record.reward.total, len(record.sample.token_ids))
    advantages = player.advantages(
        [record.shaped_reward for _, record in records],
        [index for index, _ in records],
        [len(record.sample.token_ids) if trains(record, player) else 0 for _, record in records],
    )
    for (_, record), advantage in zip(records, advantages, strict=True):
        record.advantage = float(advantage)


def _sample_record(player: Player, sample: Sample) -> SampleRecord:
    return SampleRecord(
        prompt=player.tokenizer.transcript(sample.prompt_ids),
        prompt_ids=sample.prompt_ids,
        text=player.tokenizer.decode(sample.token_ids),
        token_ids=sample.token_ids,
        log_probs=tuple(float(value) for value in sample.log_probs),
        finish_reason=sample.finish_reason,
    )
