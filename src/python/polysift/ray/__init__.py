"""Runs stages on a Ray cluster: a Ray task is a task of a stage, and carries no data but its index.

``python -m polysift.ray --run DIR --stage embed --num-tasks 64 --num-gpus-per-task 1``
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError, RayTaskError

from polysift._errors import PermanentError, PolysiftError, TransientError
from polysift._run import TaskReport, run_task, unfinished_tasks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polysift._run import StrPath

STAGES = ("cascade", "embed", "train", "score", "filter", "deduplicate", "refine", "threshold", "export")
"""The stages in their order; with a cascade "train" comes first."""
SPLIT_STAGES = ("cascade", "embed", "train", "score", "filter", "export")
"""Those that are split into tasks; the others are one task."""

_SOME_FAILED = 3
_RUN_AGAIN = 75
_STOP_SECS = 60.0


@dataclasses.dataclass(frozen=True)
class Failure:
    """A task that did not succeed, after all its retries."""

    stage: str
    """Stage of the task."""
    task: int | None
    """Its index; none where the task was for all of the stage."""
    error: Exception
    """PermanentError, TransientError, or Ray's own for a worker that died too often."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of :func:`run`."""

    reports: tuple[TaskReport, ...]
    """One for each task that succeeded."""
    failures: tuple[Failure, ...]
    """One for each that did not; the stage was then the last one."""

    @property
    def exit_code(self) -> int:
        """0: all done. 75: run it again. 3: something failed for good; its own code if all did."""
        permanent = [f.error for f in self.failures if isinstance(f.error, PermanentError)]
        if not self.failures:
            return 0
        if not permanent:
            return _RUN_AGAIN
        codes = {error.code for error in permanent}
        alone = not self.reports and len(permanent) == len(self.failures) and len(codes) == 1
        return codes.pop() if alone else _SOME_FAILED


@dataclasses.dataclass(frozen=True)
class Options:
    """How tasks are run.

    Attributes:
        num_cpus_per_task: CPUs that Ray reserves, and threads of the program unless ``env`` sets
            ``POLYSIFT_THREADS``.
        num_gpus_per_task: GPUs that Ray reserves; the program sees no others.
        max_retries: Attempts after the first, of tasks whose worker died or that failed with
            TransientError.
        retry_delay_secs: Seconds before a task that failed with TransientError is tried again.
        settings: Settings by key, see :func:`polysift.run_task`.
        args: More arguments of the program.
        env: More variables for it.
        log_dir: Folder for a log file of every task; standard error of the workers without it.
        binary: The program, where it is not the wheel's nor on ``PATH``.

    """

    num_cpus_per_task: float = 1
    num_gpus_per_task: float = 0
    max_retries: int = 3
    retry_delay_secs: float = 10
    settings: Mapping[str, Any] | None = None
    args: Sequence[str] = ()
    env: Mapping[str, str] | None = None
    log_dir: StrPath | None = None
    binary: StrPath | None = None


def run(run: StrPath, stages: str | Sequence[str], num_tasks: int, options: Options | None = None) -> Outcome:
    """Run stages of a planned run one after another, each as tasks on the cluster.

    Only tasks with something left are run. Tasks that fail for good do not stop the others of their
    stage, but no later stage is begun. Connects to Ray as ``ray.init()`` does unless that was done.
    When this is interrupted, the tasks are asked to save and stop.

    Args:
        run: The run directory, on a file system that all workers share.
        stages: Names of stages, which are run in the order of the program's `run`.
        num_tasks: Number of tasks, which need not be that of an earlier call.
        options: How tasks are run.

    Raises:
        PermanentError, TransientError: the run directory cannot be read.

    """
    names = [stages] if isinstance(stages, str) else list(stages)
    if unknown := set(names) - set(STAGES):
        raise ValueError(f"no such stage: {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
    # As the program has it: the heads score the pilot of a cascade.
    names = sorted(
        set(names), key=lambda stage: ("cascade" in names and stage != "train", STAGES.index(stage))
    )
    options = options or Options()
    if not ray.is_initialized():
        ray.init()
    reports: list[TaskReport] = []
    for stage in names:
        job = _Job(os.fspath(run), stage, num_tasks, options)
        done, failures = job.run()
        reports += done
        if failures:
            return Outcome(tuple(reports), tuple(failures))
    return Outcome(tuple(reports), ())


@dataclasses.dataclass(frozen=True)
class _Job:
    """A stage on the cluster."""

    run_dir: str
    stage: str
    num_tasks: int
    options: Options

    def run(self) -> tuple[list[TaskReport], list[Failure]]:
        if self.stage not in SPLIT_STAGES:
            return self._tasks([None])
        reports, failures = self._tasks(self._unfinished())
        if not failures and self._unfinished():
            # A machine was lost, and its task was run again before anybody could know that what it
            # held is free. A task for everything waits until it is, then does it.
            swept, failures = self._tasks([None])
            reports += swept
        return reports, failures

    def _unfinished(self) -> list[int | None]:
        tasks = unfinished_tasks(self.run_dir, self.stage, self.num_tasks, binary=self.options.binary)
        return list(tasks)

    def _tasks(self, tasks: Sequence[int | None]) -> tuple[list[TaskReport], list[Failure]]:
        remote = ray.remote(
            num_cpus=self.options.num_cpus_per_task,
            num_gpus=self.options.num_gpus_per_task,
            max_retries=self.options.max_retries,
            retry_exceptions=[TransientError],
            scheduling_strategy="SPREAD",
        )(_task)
        tasks_of = {remote.remote(self, task): task for task in tasks}
        try:
            return self._collect(tasks_of)
        except BaseException:
            for reference in tasks_of:
                ray.cancel(reference)
            ray.wait(list(tasks_of), num_returns=len(tasks_of), timeout=_STOP_SECS)
            raise

    def _collect(self, tasks_of: Mapping[Any, int | None]) -> tuple[list[TaskReport], list[Failure]]:
        reports: list[TaskReport] = []
        failures: list[Failure] = []
        pending = list(tasks_of)
        while pending:
            (reference,), pending = ray.wait(pending, num_returns=1)
            try:
                reports.append(ray.get(reference))
            except (RayError, PolysiftError) as error:
                cause = error.cause if isinstance(error, RayTaskError) else error
                failures.append(Failure(self.stage, tasks_of[reference], cause))
        return reports, failures


def _task(job: _Job, task: int | None) -> TaskReport:
    """Run a task on a worker."""
    options = job.options
    name = f"ray_{job.stage}_{'all' if task is None else f'{task:05d}'}.log"
    threads = {"POLYSIFT_THREADS": str(max(1, math.ceil(options.num_cpus_per_task)))}
    try:
        return run_task(
            job.run_dir,
            job.stage,
            task,
            None if task is None else job.num_tasks,
            settings=options.settings,
            args=options.args,
            env=threads | dict(options.env or {}),
            log_file=None if options.log_dir is None else Path(options.log_dir) / name,
            binary=options.binary,
        )
    except TransientError:
        time.sleep(options.retry_delay_secs)
        raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    args = _parser().parse_args(arguments)
    options = Options(
        num_cpus_per_task=args.num_cpus_per_task,
        num_gpus_per_task=args.num_gpus_per_task,
        max_retries=args.max_retries,
        args=[f"--set={assignment}" for assignment in args.set],
        log_dir=args.log_dir,
        binary=args.binary,
    )
    ray.init(address=args.address)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # after Ray has set its own
    try:
        outcome = run(args.run, args.stage, args.num_tasks, options)
    except KeyboardInterrupt:
        sys.stderr.write("error: stopped by a signal; finished work is saved\n")
        return _RUN_AGAIN
    except (PolysiftError, FileNotFoundError) as error:
        sys.stderr.write(f"error: {error}\n")
        return error.code if isinstance(error, PolysiftError) else 2
    for stage in args.stage:
        of_stage = [report for report in outcome.reports if report.stage == stage]
        done = sum(report.done for report in of_stage)
        units = next((report.unit for report in of_stage if report.unit), "units")
        sys.stdout.write(f"{stage}: {len(of_stage)} task(s) succeeded, {done} {units}\n")
    for failure in outcome.failures:
        task = "" if failure.task is None else f" {failure.task} of {args.num_tasks}"
        sys.stderr.write(f"error: {failure.stage}{task}: {failure.error}\n")
    return outcome.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m polysift.ray",
        description="Run stages of a planned run on a Ray cluster.",
        epilog="Exit codes: 0 all done, 3 some shards failed, 75 run it again, others as polysift's.",
    )
    add = parser.add_argument
    add("--run", required=True, metavar="DIR", help="run directory that all workers can reach")
    add("--stage", required=True, nargs="+", choices=STAGES, help="stages, in any order")
    add("--num-tasks", required=True, type=int, metavar="N", help="tasks per stage")
    add("--num-cpus-per-task", type=float, default=1, metavar="C", help="CPUs, and threads [1]")
    add("--num-gpus-per-task", type=float, default=0, metavar="G", help="GPUs [0]")
    add("--max-retries", type=int, default=3, metavar="K", help="attempts after the first [3]")
    add("--address", help="Ray cluster [RAY_ADDRESS, else one of this machine]")
    add("--log-dir", metavar="DIR", help="folder for a log file of every task")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="as polysift's")
    add("--binary", metavar="FILE", help="the program [the wheel's, else the one on PATH]")
    return parser
