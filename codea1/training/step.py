"""One step of Algorithm 1: from a batch of questions to the updates of the players.

Every host plays the whole step, but grades only its share of the questions and receives the other verdicts from the
other hosts. Replayed tests run while other solutions are sampled, and the suites on a solution while other suites are;
suites are sampled once all solutions are there.
"""

import contextlib
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any

from codea1.data.feed import QuestionFeed
from codea1.game.answers import ParsedSuite, parse_suite
from codea1.game.asserts import golden_tests
from codea1.game.calls import CallTest
from codea1.game.marks import MarkedAssert
from codea1.game.methods import Rules
from codea1.game.mistake_book import BookChange, MistakeBook
from codea1.game.noise import noisy_answer
from codea1.game.opponents import deal
from codea1.game.prompts import code_messages, test_messages
from codea1.game.question import Question
from codea1.game.rewards import INFRA, Others
from codea1.game.round import GradedTest, QuestionRecord, Round, SampleRecord, SolutionRecord, SuiteRecord
from codea1.game.round_views import statistics
from codea1.learn.batch import TrainSample
from codea1.models.qwen2 import Params
from codea1.players.player import Player
from codea1.rollout.engine import Request, Sample
from codea1.runtime.futures import Awaiting, every, start
from codea1.runtime.hosts import Hosts
from codea1.runtime.phases import doing
from codea1.runtime.shares import Shares
from codea1.sandbox.host.grading import LOST, Grader, Grading, require_judged
from codea1.sharding import to_host
from codea1.training.profile import Stopwatch
from codea1.values.verdict import Verdict

Solved = tuple[QuestionRecord, SolutionRecord]


@dataclass(frozen=True)
class GradedSuite:
    """What becomes of a suite: its asserts, and in order the verdicts of those that ran on its solution."""

    parsed: ParsedSuite
    marked: list[MarkedAssert]
    verdicts: list[Verdict]


@dataclass(frozen=True)
class GradedOnOthers:
    """The verdicts of a suite's tests on programs besides its solution: by program, in order of the tests."""

    on_others: list[list[Verdict]]
    on_hidden: list[list[Verdict]]


@dataclass(frozen=True)
class PastPlayer:
    """What a player was at a checkpoint of the run: it answers some questions in its place, and does not learn."""

    checkpoint: int  # step
    params: Params


class Step:
    """What `codea1.train` does in one step, a method for each line of the algorithm, called in that order.

    All methods are collectives: every host calls them alike.
    """

    def __init__(
        self,
        number: int,
        players: Mapping[str, Player],
        rules: Rules,
        feed: QuestionFeed,
        grader: Grader,
        book: MistakeBook,
        hosts: Hosts,
        batches: int = 0,
    ) -> None:
        """Begins step `number` with the players of each role.

        `book` is this host's part of the Mistake Book; `batches` is how many batches of `feed` were asked before.
        """
        self.number = number
        self.batches = batches
        self.round = Round(number)  # of all questions asked so far
        self.metrics: dict[str, float] = {}
        self.skips_all: dict[str, bool] = {}  # by learner that made optimizer steps: whether none was applied
        self.watch = Stopwatch()
        self.has_changed_state = False  # of the book or a player
        self.past: dict[str, PastPlayer] = {}  # by role
        self._players, self._rules, self._feed = players, rules, feed
        self._grader, self._book, self._hosts = grader, book, hosts
        self._batch = Round(number)  # of the questions asked last
        self._of_past: dict[str, set[str]] = {}  # ids of its questions that past players answer, by role
        self._rounds_left = rules.max_rounds

    @contextlib.contextmanager
    def rollout(self) -> Iterator[None]:
        """Times what happens inside as the step's round."""
        with self.watch.phase("round"), doing("rollout"):
            yield
        self.past = {}  # frees the memory of their weights before others learn

    def next_questions(self) -> list[Question]:
        """Returns the questions to ask next: a batch of them, and none once the step has enough.

        With `max_rounds` above 1 it has enough when `questions_per_step` of them tell solutions apart.
        """
        asked = {record.question.id for record in self.round.questions}
        num_telling = sum(record.rewards_differ for record in self.round.questions)
        while self._rounds_left and num_telling < self._rules.questions_per_step:
            questions = [question for question in self._feed.batch(self.batches) if question.id not in asked]
            self.batches += 1
            self._rounds_left -= 1
            if questions:
                return questions
        return []

    def retrieve(self, questions: Sequence[Question]) -> dict[str, list[CallTest]]:
        """Returns each question's tests to be replayed, which the host that holds them sends to the others."""
        ids = [question.id for question in questions]
        if not self._rules.history_size:
            return {id: [] for id in ids}
        held = [id for id in ids if self._book.holds(id)]
        own = {id: self._book.retrieve(id, self._rules.history_size, self.number) for id in held}
        return {id: tests for part in self._hosts.exchange(own) for id, tests in part.items()}

    def sample_solutions(self, questions: Sequence[Question], history: Mapping[str, list[CallTest]]) -> list[Solved]:
        """Samples M solutions of each question from the Code LLM, and starts their replayed or golden tests.

        A question whose prompt does not fit has none, which the step's statistics count.
        """
        player, rules = self._players["code"], self._rules
        records = [QuestionRecord(each, signature=rules.reward.signature(each)) for each in questions]
        by_id = {record.question.id: record for record in records}
        self._batch = Round(self.number, records)
        if self.past:
            self._of_past = deal(list(by_id), list(self.past), rules.past_share, f"{rules.seed}/{self.number}")
        self._shares = Shares(self._hosts, list(by_id))
        self._takers: list[Callable[[Any], None]] = []  # of the results of what the shares grade, in order
        solved = []
        with self.watch.phase("rollout_code"):
            requests = (
                Request(id, prompt, first_sample=0, num_samples=rules.num_solutions)
                for id, record in by_id.items()
                if player.fits(prompt := player.prompt_ids(code_messages(rules.templates, record.question)))
            )
            for sample, answer in self._answers("code", requests):
                record = by_id[sample.question_id]
                program = rules.reward.read_program(answer.text, record.question.entry_point)
                solution = SolutionRecord(sample.index, answer, program, selected=answer.checkpoint is None)
                record.solutions.append(solution)
                solved.append((record, solution))
                # Even no tests are graded: that tells whether the program is valid.
                tests = golden_tests(record.question) if rules.runs_golden else history[record.question.id]
                self._takers.append(partial(_take_grading, solution, tests, rules))
                grade = partial(start, _grade_solution(record.question, solution, tests, rules, self._grader))
                self._shares.add(record.question.id, grade)
        for record in records:
            record.solutions.sort(key=lambda solution: solution.index)
        return solved

    def sample_suites(self, solutions: Sequence[Solved]) -> None:
        """Samples N suites for each solution from the Test LLM, and has a solution's suites graded when it has all.

        On other programs they are graded when the question has all, in one process a program. A solution that makes the
        prompt too long has no suites, which the step's statistics count.
        """
        if "test" not in self._players:
            return
        player, rules = self._players["test"], self._rules
        asked: dict[tuple[str, int], Solved] = {}
        left = Counter(record.question.id for record, _ in solutions)  # solutions whose suites are not all there
        graded: defaultdict[str, dict[int, Future[list[GradedSuite]] | None]] = defaultdict(dict)  # by question and m

        def requests() -> Iterator[Request]:
            for record, solution in solutions:
                id = record.question.id
                shown = solution.program.source if rules.method.sees_solution else None
                prompt = player.prompt_ids(test_messages(rules.templates, record.question, shown, rules.num_tests))
                solution.test_prompt_fits = player.fits(prompt)
                if solution.test_prompt_fits:
                    asked[id, solution.index] = record, solution
                    yield Request(id, prompt, solution.index * rules.num_suites, num_samples=rules.num_suites)
                else:
                    finish(record)

        def finish(record: QuestionRecord) -> None:
            """Counts a solution that has its suites or gets none, and after the last has other programs graded."""
            id = record.question.id
            left[id] -= 1
            others, hidden = _other_programs(record, rules)
            if not left[id] and graded[id] and (others or hidden):
                in_order = [future for _, future in sorted(graded[id].items()) if future]
                self._takers.append(partial(_take_others, record))
                checker = record.question.checker
                grade = partial(start, _grade_on_others(others, hidden, checker, in_order, rules, self._grader))
                self._shares.add(id, grade)

        with self.watch.phase("rollout_test"):
            for sample, answer in self._answers("test", requests()):
                m, n = divmod(sample.index, rules.num_suites)
                record, solution = asked[sample.question_id, m]
                solution.suites.append(SuiteRecord(n, answer))
                if len(solution.suites) < rules.num_suites:
                    continue
                solution.suites.sort(key=lambda suite: suite.index)
                self._takers.append(partial(_take_suites, solution.suites))
                grade = partial(start, _grade_suites(record, solution, rules, self._grader))
                graded[record.question.id][m] = self._shares.add(record.question.id, grade)
                finish(record)

    def _answers(self, role: str, requests: Iterable[Request]) -> Iterator[tuple[Sample, SampleRecord]]:
        """Yields all samples of a role as they finish, those of its past player after the others."""
        player, past, of_past = self._players[role], self.past.get(role), self._of_past.get(role, set())
        for_past: list[Request] = []

        def for_present() -> Iterator[Request]:
            for request in requests:
                if request.question_id in of_past:
                    for_past.append(request)
                else:
                    yield request

        who: list[tuple[int | None, Params | None, Iterable[Request]]] = [(None, None, for_present())]
        if past:
            who.append((past.checkpoint, past.params, for_past))
        for checkpoint, params, asked in who:
            for sample in player.generate(asked, step=self.number, role=role, params=params):
                yield sample, _sample_record(player, sample, checkpoint)

    def collect_verdicts(self) -> None:
        """Waits for every grading of all hosts, and writes verdicts into the records of solutions and suites."""
        with self.watch.phase("sandbox_wait"):
            results = self._shares.collect()
        for take, result in zip(self._takers, results, strict=True):
            take(result)

    def assign_rewards(self) -> None:
        """Gives every solution and suite its reward.

        Raises BadInput as `require_judged` does where the sandbox masks every program's reward, and where a host
        sampled or judged something else than the others.
        """
        for record in self._batch.questions:
            peers = tuple(solution.passes_golden for solution in record.solutions)
            for solution in record.solutions:
                if self._rules.golden:
                    solution.assign_golden_reward()
                else:
                    solution.assign_rewards(self._rules.reward, peers)
        with self._hosts.agreed():
            reasons = [
                each.lost or LOST if each.reward and each.reward.masked == INFRA else ""
                for each in self._batch.solutions
            ]
            require_judged(reasons, f"programs of step {self.number}")
        digest = hashlib.blake2b()
        records: list[SolutionRecord | SuiteRecord] = [*self._batch.solutions, *self._batch.suites]
        for record in records:
            digest.update(f"{record.sample.text} {record.total} ".encode("utf-8", "surrogatepass"))
        self._hosts.require_same(f"samples or rewards of step {self.number}", digest.digest())

    def update_book(self) -> None:
        """Updates each host's part of the Mistake Book; the round gets the change and the size of the whole book."""
        self.has_changed_state = True
        batch, book, hosts = self._batch, self._book, self._hosts
        if self._rules.history_size:
            batch.update_book(book)
            if book.bound.max_total:
                places = [place for part in hosts.exchange(book.places()) for place in part]
                batch.evict(book, book.bound.total_surplus(places))
            changes, sizes = zip(*hosts.exchange((batch.book_change, batch.book_size)), strict=True)
            batch.book_change, batch.book_size = sum(changes, BookChange()), sum(sizes)
        self.round.add(batch)

    def assign_advantages(self) -> None:
        """Selects the suites that train (TOPVAR), and compares every sample with its group, role by role."""
        if "test" in self._players:
            self.round.select(self._rules.trained_solutions, self._rules.selection, self._rules.seed)
        if self._rules.max_rounds > 1:
            self.round.train_on_first(self._rules.questions_per_step)
        _assign_advantages(self.round.code_groups(), self._players["code"], (1.0,))
        if "test" in self._players:
            _assign_advantages(self.round.test_groups(), self._players["test"], self._rules.reward.weights)
        self.metrics |= statistics(self.round)

    def learn(self, player: Player) -> None:
        """Makes the player's optimizer steps on its selected samples, of all roles that it plays."""
        assert player.state is not None
        with self.watch.phase("learn"), doing("update"):
            applied = int(to_host(player.state.step))
            learned = player.learn(train_samples(self.round, player), self.number)
            if "skipped" in learned:
                self.skips_all[player.name] = int(to_host(player.state.step)) == applied
            if "critic_skipped" in learned:
                self.skips_all[f"{player.name}_critic"] = learned["critic_skipped"] == 1
        self.metrics |= {f"{player.name}/{key}": value for key, value in learned.items()}


def _grade_solution(
    question: Question, solution: SolutionRecord, tests: Sequence[CallTest], rules: Rules, grader: Grader
) -> Awaiting[tuple[Grading, bool | None]]:
    """Grades a solution on tests, and by the question's check script where that is the hidden reward."""
    promised = grader.grade(question.module(solution.program.source), tests, question.checker)
    if not rules.hidden_reward or not question.check_script:
        return (yield promised), None
    run = yield grader.check(question.module(solution.program.source), question.check_script, question.entry_point)
    return (yield promised), None if run.verdict is Verdict.INFRA else run.verdict is Verdict.PASS


def _take_grading(
    solution: SolutionRecord, tests: Sequence[CallTest], rules: Rules, result: tuple[Grading, bool | None]
) -> None:
    grading, solution.passes_check = result
    solution.program_valid, solution.lost = grading.program_valid, grading.lost
    runs = [GradedTest(test, verdict) for test, verdict in zip(tests, grading.verdicts, strict=True)]
    if rules.runs_golden:
        solution.golden = runs
    else:
        solution.history = runs


def _grade_suites(
    record: QuestionRecord, solution: SolutionRecord, rules: Rules, grader: Grader
) -> Awaiting[list[GradedSuite]]:
    """Has the ground truth answer the calls of all suites, marks the asserts by its answers, and grades the solution.

    One grading runs the tests of all suites. Which tests share a process depends on the samples alone and never on when
    they finished, because a program that keeps state between calls could tell the difference.
    """
    reward, question = rules.reward, record.question
    parsed = [
        parse_suite(suite.sample.text, question.entry_point, all_forms=rules.all_forms) for suite in solution.suites
    ]
    calls = list(dict.fromkeys(call for suite in parsed for call in reward.calls(suite)))
    answers = yield grader.ground_truth(question.module(question.ground_truth), calls)
    if rules.wrong_answers:
        key_of = record.signature.key
        noise = rules.wrong_answers, rules.seed
        answers = [
            replace(each, value=noisy_answer(question, key_of(call, each.value)[0], each.value, *noise))
            if each.usable
            else each
            for call, each in zip(calls, answers, strict=True)
        ]
    known = dict(zip(calls, answers, strict=True))
    marked = [reward.mark(suite, known, record.signature) for suite in parsed]
    tests = [[test for item in items if (test := item.test)] for items in marked]
    program, in_order = question.module(solution.program.source), list(chain(*tests))
    verdicts = _by_suite(tests, (yield grader.grade(program, in_order, question.checker)))
    return [GradedSuite(*suite) for suite in zip(parsed, marked, verdicts, strict=True)]


def _take_suites(suites: Sequence[SuiteRecord], graded: Sequence[GradedSuite]) -> None:
    for suite, each in zip(suites, graded, strict=True):
        suite.parsed, suite.marked, suite.verdicts = each.parsed, each.marked, each.verdicts


def _other_programs(record: QuestionRecord, rules: Rules) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the programs besides a suite's solution that the reward reads, and those that only metrics read.

    They are as the sandbox loads them.
    """
    question = record.question
    others: Sequence[str] = {
        Others.NOTHING: (),
        Others.MUTANTS: question.paid_mutants,
        Others.SOLUTIONS: [each.program.source for each in record.solutions],  # all are there before any suite
    }[rules.reward.others]
    hidden = question.hidden_mutants if rules.hidden_reward else ()
    return tuple(map(question.module, others)), tuple(map(question.module, hidden))


def _grade_on_others(
    others: Sequence[str],
    hidden: Sequence[str],
    checker: str,
    graded: Sequence[Future[list[GradedSuite]]],
    rules: Rules,
    grader: Grader,
) -> Awaiting[list[GradedOnOthers]]:
    """Grades programs besides their solutions on the suites of a question's solutions.

    `others` run what the reward has `for_others`, hidden mutants the right tests among the first K of each suite. One
    grading runs the tests of all suites on a program: one that spends its CPU time before the last has NOT_RUN there.
    """
    marked = [suite.marked for suites in (yield from every(graded)) for suite in suites]
    for_others = [[test for item in rules.reward.for_others(items) if (test := item.stated)] for items in marked]
    for_hidden = [
        [test for item in items[: rules.num_tests] if item.is_right and (test := item.test)] for items in marked
    ]
    programs = [(program, for_others) for program in others] + [(program, for_hidden) for program in hidden]
    gradings = yield from every([grader.grade(program, list(chain(*suites)), checker) for program, suites in programs])
    ran = [_by_suite(suites, grading) for (_, suites), grading in zip(programs, gradings, strict=True)]
    paid, hidden_too = ran[: len(others)], ran[len(others) :]
    return [
        GradedOnOthers([verdicts[i] for verdicts in paid], [verdicts[i] for verdicts in hidden_too])
        for i in range(len(marked))
    ]


def _take_others(record: QuestionRecord, graded: Sequence[GradedOnOthers]) -> None:
    suites = [suite for solution in record.solutions for suite in solution.suites]
    for suite, each in zip(suites, graded, strict=True):
        suite.on_others, suite.on_hidden = each.on_others, each.on_hidden


def _by_suite(suites: Sequence[Sequence[CallTest]], grading: Grading) -> list[list[Verdict]]:
    verdicts = iter(grading.verdicts)
    return [list(islice(verdicts, len(tests))) for tests in suites]


def _assign_advantages(
    groups: Sequence[Sequence[SolutionRecord | SuiteRecord]], player: Player, weights: Sequence[float]
) -> None:
    """Writes shaped rewards and advantages into the records, under the settings of their player.

    `weights` are of their rewards' terms.
    """
    records = [(index, record) for index, group in enumerate(groups) for record in group]
    for _, record in records:
        if record.total is not None:
            record.shaped_reward = player.shaped_reward(record.total, len(record.sample.token_ids))
    advantages = player.advantages(
        [record.shaped_reward for _, record in records],
        [index for index, _ in records],
        [len(record.sample.token_ids) if _trains(record, player) else 0 for _, record in records],
        [each.reward.terms if each.reward else (math.nan,) * len(weights) for _, each in records],
        weights,
    )
    for (_, record), advantage in zip(records, advantages, strict=True):
        record.advantage = float(advantage)


def train_samples(round_: Round, player: Player) -> list[TrainSample]:
    """Returns what a player learns from, of all roles that it plays: each solution, then its suites."""
    records: list[SolutionRecord | SuiteRecord] = []
    for solution in round_.solutions:
        if "code" in player.roles:
            records.append(solution)
        if "test" in player.roles:
            records += solution.suites
    return [
        TrainSample(
            record.sample.prompt_ids,
            record.sample.token_ids,
            record.sample.log_probs,
            record.advantage,
            record.shaped_reward or 0.0,
        )
        for record in records
        if _trains(record, player)
    ]


def _trains(record: SolutionRecord | SuiteRecord, player: Player) -> bool:
    """Returns whether a sample is selected, has a reward and ended as its player learns from."""
    return record.selected and not record.masked and player.learns_from(record.sample.finish_reason)


def _sample_record(player: Player, sample: Sample, checkpoint: int | None) -> SampleRecord:
    return SampleRecord(
        prompt=player.tokenizer.transcript(sample.prompt_ids),
        prompt_ids=sample.prompt_ids,
        text=player.tokenizer.decode(sample.token_ids),
        token_ids=sample.token_ids,
        log_probs=tuple(float(value) for value in sample.log_probs),
        finish_reason=sample.finish_reason,
        checkpoint=checkpoint,
    )
