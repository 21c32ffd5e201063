"""The components of a run, made from its config. Mistakes in the input are found here, cheap checks first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ml_collections import ConfigDict

from codea1.data.feed import QuestionFeed, filter_by_length
from codea1.data.loader import load_questions
from codea1.data.static_tests import with_static_tests
from codea1.data.tokenizer import load_tokenizer
from codea1.game.asserts import golden_tests
from codea1.game.methods import CodeRewardSource, Rules, game_rules
from codea1.game.mistake_book import Bound, MistakeBook, shards_of_host
from codea1.game.mutants import drawn_mutants
from codea1.game.noise import with_wrong_truth
from codea1.game.prompts import code_messages
from codea1.game.question import Question
from codea1.game.rewards import OFFICIAL
from codea1.players.player import Player
from codea1.runs.checkpoints import Checkpoints
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.sharding import device_mesh


@dataclass(frozen=True)
class Components:
    """All that a run needs but a folder and a sandbox."""

    rules: Rules
    players: Mapping[str, Player]  # by role
    policies: Mapping[str, Player]  # by name: each once, whatever it plays
    feed: QuestionFeed
    train: Sequence[Question]
    dropped: Sequence[Question]  # training questions whose prompt does not fit
    untested: Sequence[Question]  # training questions without the fixed tests that the method, reward or noise needs
    validation: Sequence[Question]
    test: Sequence[Question]

    @property
    def learners(self) -> list[Player]:
        """The players that learn, each once, whatever it plays."""
        return [player for player in self.policies.values() if player.learns]

    @property
    def counted(self) -> str:
        """How many questions there are of each set, in a sentence."""
        untested = f", {len(self.untested)} more left out: they have no fixed tests" if self.untested else ""
        return (
            f"{len(self.train)} training questions ({len(self.dropped)} dropped as too long{untested}), "
            f"{len(self.validation)} for validation, {len(self.test)} for the test"
        )

    def questions(self, split: str) -> Sequence[Question]:
        """Returns the held-out questions of "validation" or "test"."""
        return {"validation": self.validation, "test": self.test}[split]

    def restore(self, checkpoints: Checkpoints, step: int) -> None:
        """Gives the policies their states of a step. Device memory need not hold these and those they had at once."""
        abstract = {name: state for policy in self.policies.values() for name, state in policy.abstract_states.items()}
        for policy in self.policies.values():
            policy.release()
        states = checkpoints.restore_part(step, abstract)
        for policy in self.policies.values():
            policy.restore(states)


def assemble(config: ConfigDict) -> Components:
    """Loads what the config names.

    Raises:
      BadInput: a file, row, folder, template or mesh that cannot be used.
    """
    rules = game_rules(config)
    mesh = device_mesh(config)
    tokenizers = {name: load_tokenizer(config[name].model, config[name].thinking) for name in rules.method.policies}
    train, dropped = filter_by_length(
        questions_of(config, "train"),
        lambda question: len(tokenizers["code"].encode_chat(code_messages(rules.templates, question))),
        config.code.max_prompt_length,
    )
    untested: list[Question] = []
    if rules.method.code_reward is CodeRewardSource.STATIC_TESTS:
        train, untested = with_static_tests(config.data.static_tests, train)
    elif rules.runs_golden or rules.wrong_answers:
        tested = {question.id for question in train if golden_tests(question)}
        untested = [question for question in train if question.id not in tested]
        train = [question for question in train if question.id in tested]
    if len(train) < config.questions_per_step:
        raise BadInput(
            f"config.questions_per_step is {config.questions_per_step}, but {config.data.train.source} has "
            f"{len(train)} questions that can be asked: {len(dropped)} are too long, and {len(untested)} have no fixed "
            "test that is an assert on plain data."
        )
    sets = {name: questions_of(config, name) for name in ("validation", "test")}
    for name, questions in sets.items():
        for question in questions:
            if not question.check_script:
                raise BadInput(f"config.data.{name}: question {question.id} has no check script to judge programs by.")
    if config.game.made_mutants:
        train = [_with_made_mutants(question, config.game.made_mutants) for question in train]
    train = [with_wrong_truth(question, config.noise.wrong_truths, config.seed) for question in train]
    policies = {name: Player(name, config, mesh, tokenizers[name]) for name in rules.method.policies}
    players = {role: policies[name] for role, name in rules.method.roles.items()}
    feed = QuestionFeed(train, config.questions_per_step, config.seed)
    return Components(rules, players, policies, feed, train, dropped, untested, **sets)


def mistake_book(config: ConfigDict, hosts: Hosts) -> MistakeBook:
    """Returns this host's part of the Mistake Book, empty."""
    game = config.game
    bound = Bound(game.book_cap, game.book_policy, config.seed, game.book_total_cap)
    return MistakeBook(shards_of_host(hosts.index, hosts.count), bound, reference_ties=game.reward == OFFICIAL)


def _with_made_mutants(question: Question, count: int) -> Question:
    """Returns a question without stored mutants with so many made of its ground truth, the same in every run."""
    if question.mutants:
        return question
    return replace(question, mutants=drawn_mutants(question.ground_truth, count, question.id))


def questions_of(config: ConfigDict, name: str) -> list[Question]:
    """Returns the questions of section `name` of config.data."""
    section = config.data[name]
    return load_questions(section.source, section.split, section.limit or None, data_folder=config.data.folder)
