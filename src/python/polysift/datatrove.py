"""A block for datatrove's pipelines: each rank is a task of a polysift stage.

::

    pipeline = [PolysiftStage(run="/shared/run", stage="embed")]
    SlurmPipelineExecutor(pipeline, tasks=64, time="24:00:00", partition="gpu", gpus_per_task=4).run()
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

from datatrove.pipeline.base import PipelineStep
from datatrove.utils.logging import logger

from polysift._run import run_task

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from polysift._run import StrPath

_CPUS_VARIABLE = "DATATROVE_CPUS_PER_TASK"  # that of the executor; -1 where it gives no number
_THREADS_VARIABLE = "POLYSIFT_THREADS"


class PolysiftStage(PipelineStep):  # type: ignore[misc] # datatrove is not typed
    """Runs task ``rank`` of ``world_size`` of a stage of a planned run.

    No text goes through Python: the program reads the files of the run's plan. Documents that come
    from a step before pass on untouched, and the task is run after the last of them. With one task
    the stage is complete when the task ends; with several, when all have ended.

    A rank fails with TransientError or PermanentError, and is not marked as completed; launching the
    pipeline again runs it again, and the program goes on where it was. The number of tasks may
    change between launches if ``logging_dir`` does too.

    Args:
        run: The run directory, on a file system that all machines share.
        stage: ``embed``, ``train``, ``score``, ``filter``, ``deduplicate``, ``refine``, ``threshold`` or
            ``export``.
        settings: Settings by key (see :func:`polysift.run_task`); the run's own need not be repeated.
        args: More arguments of the program.
        env: More variables for it. ``POLYSIFT_THREADS`` is the executor's CPUs per task where it
            gives a number and neither this nor the environment names another.
        binary: The program, where it is not the wheel's nor on ``PATH``.

    """

    type = "🔎 - POLYSIFT"
    name = "stage"

    def __init__(  # noqa: PLR0913 (every one is a choice of the caller)
        self,
        run: StrPath,
        stage: str = "embed",
        *,
        settings: Mapping[str, Any] | None = None,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        binary: StrPath | None = None,
    ) -> None:
        self.name = stage  # before the parent's, which names the statistics after it
        super().__init__()
        self.run_dir = os.fspath(run)
        self.stage = stage
        self.settings = dict(settings or {})
        self.args = list(args)
        self.env = dict(env or {})
        self.binary = None if binary is None else os.fspath(binary)

    def run(
        self, data: Iterable[Any] | None = None, rank: int = 0, world_size: int = 1
    ) -> Generator[Any, None, None]:
        """Pass on what comes, then run the task; datatrove calls this."""
        if data:
            yield from data
        with self.track_time("task"):
            report = run_task(
                self.run_dir,
                self.stage,
                *((rank, world_size) if world_size > 1 else (None, None)),
                settings=self.settings,
                args=self.args,
                env=_threads() | self.env,
                log_file=_TaskLog(),
                binary=self.binary,
            )
        if report.unit:
            self.stat_update(report.unit, value=report.done, unit="task")
        if report.tokens:
            self.stat_update("tokens", value=report.tokens, unit="task")


class _TaskLog:
    """The program's lines in datatrove's log of the rank."""

    def write(self, text: str, /) -> None:
        if line := text.strip():
            logger.info(line)


def _threads() -> dict[str, str]:
    cpus = math.ceil(float(os.environ.get(_CPUS_VARIABLE) or -1))
    told = cpus > 0 and _THREADS_VARIABLE not in os.environ
    return {_THREADS_VARIABLE: str(cpus)} if told else {}
