"""One step of Algorithm 1: from a batch of questions to the updates of the players.

Every host plays the whole step, but grades only its share of the questions and receives the other verdicts from the
other hosts. Replayed tests run while other solutions are sampled, and the suites on a solution while other suites are;
suites are sampled once all solutions are there.
"""

import contextlib
import hashlib
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from codea1.data.feed import QuestionFeed
from codea1.game.calls import CallTest
from codea1.game.grading import Attack, Solution, grade_round
from codea1.game.methods import Rules
from codea1.game.mistake_book import BookChange, MistakeBook
from codea1.game.prompts import code_messages, test_messages
from codea1.game.question import Question
from codea1.game.reward_files import FunctionReward
from codea1.game.rewards import INFRA
from codea1.game.round import Round, SampleRecord, SolutionRecord, SuiteRecord, statistics
from codea1.learn.batch import TrainSample
from codea1.players.player import Player
from codea1.rollout.engine import Request, Sample
from codea1.runtime.hosts import Hosts, Shares
from codea1.runtime.phases import Stopwatch, doing
from codea1.sandbox.host.grading import LOST, Grader, require_judged
from codea1.sharding import to_host

T = TypeVar("T")
History = Mapping[str, Sequence[CallTest]]  # by question: its tests that are replayed


class Kept(Iterable[T], Generic[T]):
    """What an iterator yields, which may be read again while it is still being yielded, and after."""

    def __init__(self, source: Iterator[T]) -> None:
        self._all = source

    def __iter__(self) -> Iterator[T]:
        self._all, items = itertools.tee(self._all)
        return items


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
        """Begins step `number` with the players of each role, the rules and the feed that `setup.assemble` made.

        `book` is this host's part of the Mistake Book; `batches` is how many batches of `feed` were asked before.
        """
        self.number = number
        self.batches = batches
        self.round = Round(number)  # the whole one, once its samples are compared: what the run records
        self.metrics: dict[str, float] = {}
        self.skips_all: dict[str, bool] = {}  # by learner that made optimizer steps: whether none was applied
        self.watch = Stopwatch()
        self.has_changed_state = False  # of the book or a player
        self._players, self._rules, self._feed = players, rules, feed
        self._grader, self._book, self._hosts = grader, book, hosts
        self._rounds_left = rules.max_rounds

    @contextlib.contextmanager
    def rollout(self) -> Iterator[None]:
        """Times what happens inside as the step's round."""
        with self.watch.phase("round"), doing("rollout"):
            yield

    def next_questions(self, asked: Round) -> list[Question]:
        """Returns the questions to ask next: a batch of them, and none once those `asked` are enough.

        With `max_rounds` above 1 they are when `questions_per_step` of them tell solutions apart.
        """
        ids = {record.question.id for record in asked.questions}
        num_telling = sum(record.rewards_differ for record in asked.questions)
        while self._rounds_left and num_telling < self._rules.questions_per_step:
            questions = [question for question in self._feed.batch(self.batches) if question.id not in ids]
            self.batches += 1
            self._rounds_left -= 1
            if questions:
                return questions
        return []

    def retrieve(self, questions: Sequence[Question]) -> History:
        """Returns each question's tests to be replayed, which the host that holds them sends to the others."""
        ids = [question.id for question in questions]
        if not self._rules.history_size:
            return {id: [] for id in ids}
        held = [id for id in ids if self._book.holds(id)]
        mine = {id: self._book.retrieve(id, self._rules.history_size, self.number) for id in held}
        return {id: tests for part in self._hosts.exchange(mine) for id, tests in part.items()}

    def solve(self, questions: Sequence[Question]) -> Iterable[Solution]:
        """Samples M solutions of each question from the Code LLM; none of one whose prompt is too long."""
        return Kept(self._solve(questions))

    def _solve(self, questions: Sequence[Question]) -> Iterator[Solution]:
        player, rules = self._players["code"], self._rules
        by_id = {question.id: question for question in questions}
        requests = (
            Request(id, prompt, first_sample=0, num_samples=rules.num_solutions)
            for id, question in by_id.items()
            if player.fits(prompt := player.prompt_ids(code_messages(rules.templates, question)))
        )
        with self.watch.phase("rollout_code"):
            for sample, answer in self._answers("code", requests):
                question = by_id[sample.question_id]
                program = rules.reward.read_program(answer.text, question.entry_point)
                yield Solution(question, sample.index, answer, program)

    def attack(self, solutions: Iterable[Solution]) -> Iterator[Attack]:
        """Samples N suites for each solution from the Test LLM, once all solutions are there.

        Yields every solution once, when it has its suites or cannot get any.
        """
        rules = self._rules
        if "test" not in self._players:
            return
        player = self._players["test"]
        asked: dict[tuple[str, int], Solution] = {}
        too_long: list[Solution] = []
        suites: defaultdict[tuple[str, int], dict[int, SampleRecord]] = defaultdict(dict)

        def requests() -> Iterator[Request]:
            for solution in [*solutions]:
                shown = solution.program.source if rules.method.sees_solution else None
                prompt = player.prompt_ids(test_messages(rules.templates, solution.question, shown, rules.num_tests))
                if player.fits(prompt):
                    asked[solution.question.id, solution.index] = solution
                    first = solution.index * rules.num_suites
                    yield Request(solution.question.id, prompt, first, num_samples=rules.num_suites)
                else:
                    too_long.append(solution)

        with self.watch.phase("rollout_test"):
            for sample, answer in self._answers("test", requests()):
                m, n = divmod(sample.index, rules.num_suites)
                answers = suites[sample.question_id, m]
                answers[n] = answer
                if len(answers) == rules.num_suites:
                    yield Attack(asked[sample.question_id, m], [answers[n] for n in sorted(answers)])
                while too_long:
                    yield Attack(too_long.pop(), ())
            yield from (Attack(solution, ()) for solution in too_long)

    def _answers(self, role: str, requests: Iterable[Request]) -> Iterator[tuple[Sample, SampleRecord]]:
        """Yields all samples of a role as they finish."""
        player = self._players[role]
        for sample in player.generate(requests, stream=f"{role}/train", step=self.number):
            yield sample, _sample_record(player, sample)

    def grade(
        self, questions: Sequence[Question], history: History, solutions: Iterable[Solution], attacks: Iterable[Attack]
    ) -> Round:
        """Has solutions and suites graded as they come, and returns all verdicts, of all hosts: see `grade_round`."""
        shares = Shares(self._hosts, [question.id for question in questions])
        return grade_round(
            self.number, questions, history, solutions, attacks, self._rules, self._grader, shares, self.watch
        )

    def pay(self, graded: Round) -> Round:
        """Gives every solution and suite of a graded round its reward, and returns it.

        Raises BadInput as `require_judged` does where the sandbox masks every program's reward, where a host sampled or
        judged something else than the others, and where a user's reward fails.
        """
        with self._hosts.agreed():
            for solution in graded.solutions:
                if self._rules.method.fixed_tests and not isinstance(self._rules.reward, FunctionReward):
                    solution.assign_golden_reward()
                else:
                    solution.assign_rewards(self._rules.reward)
            reasons = [
                solution.lost or LOST if solution.reward and solution.reward.masked == INFRA else ""
                for solution in graded.solutions
            ]
            require_judged(reasons, f"programs of step {self.number}")
        digest = hashlib.blake2b()
        records: list[SolutionRecord | SuiteRecord] = [*graded.solutions, *graded.suites]
        for record in records:
            drawn = record.sample
            parts = (drawn.text, drawn.token_ids, drawn.log_probs, drawn.finish_reason, record.total)
            digest.update(repr(parts).encode("utf-8", "surrogatepass"))
        self._hosts.require_same(f"samples or rewards of step {self.number}", digest.digest())
        return graded

    def update_book(self, paid: Round) -> Round:
        """Updates each host's part of the Mistake Book, and returns the round with the change and size of all of it."""
        self.has_changed_state = True
        book, hosts = self._book, self._hosts
        if self._rules.history_size:
            paid.update_book(book)
            if book.bound.max_total:
                places = [place for part in hosts.exchange(book.places()) for place in part]
                paid.evict(book, book.bound.total_surplus(places))
            changes, sizes = zip(*hosts.exchange((paid.book_change, paid.book_size)), strict=True)
            paid.book_change, paid.book_size = sum(changes, BookChange()), sum(sizes)
        return paid

    def compare(self, paid: Round) -> Round:
        """Selects the suites that train (TOPVAR), compares every sample with its group; returns the whole round."""
        rules = self._rules
        if "test" in self._players:
            paid.select(rules.trained_solutions, rules.selection, rules.seed)
        if rules.max_rounds > 1:
            paid.train_on_first(rules.questions_per_step)
        _assign_advantages(paid.code_groups(), self._players["code"], (1.0,))
        if "test" in self._players:
            _assign_advantages(paid.test_groups(), self._players["test"], rules.reward.weights)
        self.metrics |= statistics(paid)
        self.round = paid
        return paid

    def learn(self, player: Player, compared: Round) -> None:
        """Makes the player's optimizer steps on its samples of the step's round, of all roles that it plays."""
        with self.watch.phase("learn"), doing("update"):
            applied = int(to_host(player.state.step))
            learned = player.learn(train_samples(compared, player), self.number)
            if "skipped" in learned:
                self.skips_all[player.name] = int(to_host(player.state.step)) == applied
            if "critic_skipped" in learned:
                self.skips_all[f"{player.name}_critic"] = learned["critic_skipped"] == 1
        self.metrics |= {f"{player.name}/{key}": value for key, value in learned.items()}


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
        [record.reward.terms if record.reward else (math.nan,) * len(weights) for _, record in records],
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
            record.sample.prompt_routes,
            record.sample.routes,
        )
        for record in records
        if _trains(record, player)
    ]


def _trains(record: SolutionRecord | SuiteRecord, player: Player) -> bool:
    """Returns whether a sample is selected, has a reward and ended as its player learns from."""
    return record.selected and not record.masked and player.learns_from(record.sample.finish_reason)


def _sample_record(player: Player, sample: Sample) -> SampleRecord:
    return SampleRecord(
        prompt_ids=sample.prompt_ids,
        text=player.tokenizer.decode(sample.token_ids),
        token_ids=sample.token_ids,
        log_probs=tuple(sample.log_probs.tolist()),
        finish_reason=sample.finish_reason,
        textless_tokens=player.tokenizer.num_textless(sample.token_ids),
        prompt_routes=sample.prompt_routes,
        routes=sample.routes,
    )
