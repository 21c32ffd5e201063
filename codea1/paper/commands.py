"""The commands that run the paper's experiments, as a plan in which each waits for what it reads."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from codea1.paper.experiments import BASE, CODE_A1, EXPERIMENTS, SFT_TEST, TINY, Experiment, suites_name


@dataclass(frozen=True)
class Job:
    """One program to run."""

    name: str
    kind: str  # "warm start", "SFT", "suites", "train" or "report"
    arguments: tuple[str, ...]  # after `python`
    needs: tuple[str, ...] = ()  # names of jobs whose output it reads
    experiment: str = ""  # that it trains

    @property
    def command(self) -> str:
        """As it is typed in a shell."""
        return shlex.join(("python", *self.arguments))


@dataclass(frozen=True)
class Place:
    """Where experiments run: the config with its arguments, and the folder that gets the runs."""

    config: str = "configs/tiny.py"
    arguments: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "runs/tables"
    size: str = TINY
    test_model: str = ""  # folder of the Test LLM before training; empty where the warm start makes it

    def jobs(self) -> list[Job]:
        """Returns every job of every experiment, each after what it needs; experiments of most seeds come first."""
        seeds = sorted({seed for each in EXPERIMENTS.values() for seed in each.seeds})
        pairs = [(each, seed) for seed in seeds for each in EXPERIMENTS.values() if seed in each.seeds]
        trained = [self.train(each, seed) for each, seed in sorted(pairs, key=lambda pair: -len(pair[0].seeds))]
        prepared = [make(seed) for seed in seeds for make in (self._warm_start, self._sft_test)]
        dumped = [self._suites(each.suites_of) for each in EXPERIMENTS.values() if each.suites_of]
        known = {job.name: job for job in (*prepared, *dumped, *trained)}
        planned: dict[str, Job] = {}
        for job in trained:
            _plan(job, known, planned)
        return list(planned.values())

    def jobs_for(self, experiment: str) -> list[Job]:
        """Returns what fills a row of a table, without what it waits for."""
        # Every run begins with the measurement of the base models.
        own = EXPERIMENTS[CODE_A1 if experiment == BASE else experiment]
        return [self.train(own, seed) for seed in own.seeds]

    def runs(self) -> list[str]:
        """Returns the folders of all runs."""
        return [self.run(each.name, seed) for each in EXPERIMENTS.values() for seed in each.seeds]

    @property
    def all_command(self) -> str:
        """The command that runs every job."""
        given = ",".join(f"{name}={each}" for name, each in self.arguments.items())
        config = f"--config={self.config}:{given}" if given else f"--config={self.config}"
        return shlex.join(("python", "-m", "codea1.tools.reproduce", config, f"--workdir={self.workdir}"))

    def report(self, runs: Sequence[str]) -> Job:
        """Returns the job that fills the tables from runs."""
        return Job("report", "report", ("-m", "codea1.report", *runs, f"--output={self.workdir}/report"))

    def run(self, experiment: str, seed: int) -> str:
        """Returns the folder of a run."""
        return f"{self.workdir}/{experiment}_{seed}"

    def folders(self, experiment: str) -> list[str]:
        """Returns the folders of a row's runs."""
        own = CODE_A1 if experiment == BASE else experiment
        return [self.run(own, seed) for seed in EXPERIMENTS[own].seeds] if own in EXPERIMENTS else []

    def evaluate(self, benchmark: str, run: str = "", tester: str = "") -> str:
        """Returns the command that measures the Code LLM of a run on a benchmark; of the base models without one.

        Args:
          tester: whose Test LLM chooses among the samples; see `codea1.paper.experiments.exported_from`.
        """
        words = ["-m", "codea1.evaluate", f"--run={run}" if run else f"--model={self.test_model}"]
        words += [f"--benchmark={benchmark}", "--file=FILE"]
        output = "" if run else f"{self.workdir}/{BASE}"
        if tester:
            words += ["--best_of", f"--test_model={self.test_model if tester == BASE else self._exported(tester)}"]
            output = f"{run or f'{self.workdir}/{BASE}'}_with_tests_of_{tester}"
        return shlex.join(["python", *words, *([f"--output={output}"] if output else [])])

    def export(self, tester: str, run: str) -> str:
        """Returns the command that writes the Test LLM of a run, one of the first seed, where `evaluate` reads it."""
        words = ("-m", "codea1.export", f"--run={run}", "--player=test", f"--output={self._exported(tester)}")
        return shlex.join(("python", *words))

    def train(self, experiment: Experiment, seed: int) -> Job:
        """Returns the job that trains an experiment with one seed, measured before the first step and at the end."""
        fields = {name: each for name, each in experiment.settings.items() if name.startswith(("game.", "frozen"))}
        arguments, needs = {"method": experiment.argument or experiment.method}, self._start_of(seed)
        if experiment.argument:
            fields = {}
        if experiment.suites_of:
            arguments["static_tests"] = f"{self.workdir}/{suites_name(experiment.suites_of)}"
            needs += (f"suites_{experiment.suites_of}",)
        if experiment.name == SFT_TEST:  # it is measured, and plays one step in which it learns nothing
            fields |= {"test.model": f"{self._sft_folder(seed)}/model", "steps": 1}
            needs = (f"taught_{seed}",)
        config = self._config(seed, arguments)
        overrides = tuple(f"--config.{name}={each}" for name, each in fields.items())
        output = f"--workdir={self.run(experiment.name, seed)}"
        name = f"{experiment.name}_{seed}"
        return Job(name, "train", ("-m", "codea1.train", config, output, *overrides), needs, experiment.name)

    def _suites(self, source: str) -> Job:
        """Returns the job that dumps the tests of a Test LLM, written for Code-A1's programs, whoever wrote them."""
        played = EXPERIMENTS[CODE_A1].seeds[0]
        base = self.test_model or f"{self.workdir}/sft_{played}/model"
        models = {BASE: base, SFT_TEST: f"{self._sft_folder(played)}/model"}
        model = (f"--test_model={models[source]}",) if source in models else ()
        needs = (f"{CODE_A1}_{played}", *((f"taught_{played}",) if source == SFT_TEST else ()))
        output = f"--output={self.workdir}/{suites_name(source)}"
        arguments = ("-m", "codea1.tools.dump_tests", f"--run={self.run(CODE_A1, played)}", *model, output)
        return Job(f"suites_{source}", "suites", arguments, needs)

    def _warm_start(self, seed: int) -> Job:
        arguments = ("-m", "codea1.sft", self._config(seed), f"--workdir={self.workdir}/sft_{seed}")
        return Job(f"start_{seed}", "warm start", arguments)

    def _sft_test(self, seed: int) -> Job:
        arguments = ("-m", "codea1.sft", self._config(seed, {"method": "sft"}), f"--workdir={self._sft_folder(seed)}")
        return Job(f"taught_{seed}", "SFT", arguments, self._start_of(seed))

    def _exported(self, tester: str) -> str:
        return f"{self.workdir}/exported/{tester}_{EXPERIMENTS[tester].seeds[0]}/test"

    def _sft_folder(self, seed: int) -> str:
        return f"{self.workdir}/{SFT_TEST}_model_{seed}"

    def _start_of(self, seed: int) -> tuple[str, ...]:
        return () if self.test_model else (f"start_{seed}",)

    def _config(self, seed: int, arguments: Mapping[str, str] | None = None) -> str:
        own = {"seed": str(seed), **(arguments or {})}
        if arguments and not self.test_model:
            own["sft"] = f"{self.workdir}/sft_{seed}"
        given = ",".join(f"{name}={each}" for name, each in {**self.arguments, **own}.items())
        return f"--config={self.config}:{given}"


def _plan(job: Job, known: Mapping[str, Job], planned: dict[str, Job]) -> None:
    """Adds a job to a plan, after all that it needs."""
    for name in job.needs:
        _plan(known[name], known, planned)
    planned.setdefault(job.name, job)
