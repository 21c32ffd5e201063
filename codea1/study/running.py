"""Runs what a study declares, stage by stage and rung by rung, and keeps the results of each run as it ends."""

import time

from codea1.paper.experiments import Job
from codea1.paper.schedule import OutOfTime, Schedule
from codea1.study.declaration import Run, Study
from codea1.study.results import Results


def run_study(study: Study, results: Results, workdir: str, at_once: int, hours: float) -> bool:
    """Runs what `results` lack, `at_once` side by side; returns False where a job did not end well.

    After so many hours what runs saves and ends, which is well; it goes on from there when this is called again.
    """
    deadline = time.monotonic() + 3600 * hours
    for stage in study.stages:
        for runs in study.rungs(stage, results.score):
            left = {run.name: run for run in runs if run not in results}

            def keep(job: Job, left: dict[str, Run] = left) -> None:
                if job.name in left:
                    results.keep(left[job.name], job.command, f"{workdir}/{job.name}")

            jobs = study.jobs(list(left.values()), workdir)
            hours_left = (deadline - time.monotonic()) / 3600
            print(f"stage {stage.name}: {len(runs) - len(left)} of {len(runs)} runs are done")
            try:
                if left and not Schedule(jobs, workdir, at_once=at_once, hours=hours_left, done=keep).run():
                    return False
            except OutOfTime:
                print("the hours are over: the same command goes on from there")
                return True
    return True
