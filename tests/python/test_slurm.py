"""The block under datatrove's Slurm executor, on the Slurm that ``SLURM_CONF`` names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import time
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from conftest import digests, programs, wait_for

pytest.importorskip("datatrove")
if not os.environ.get("SLURM_CONF") or shutil.which("sbatch") is None:
    pytest.skip("no Slurm: SLURM_CONF is not set, or sbatch missing", allow_module_level=True)

from datatrove.executor import SlurmPipelineExecutor

import polysift
from polysift.datatrove import PolysiftStage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TASKS = 3


def slurm(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def jobs(job: str) -> dict[str, str]:
    """States of a job's array tasks that have not ended, by task."""
    lines = slurm("squeue", "-h", "-r", "-j", job, "-o", "%K %T").splitlines()
    return dict(line.split() for line in lines)


def hurry(job: str) -> None:
    """Bring tasks that Slurm holds back after a requeue, for two minutes, to within seconds."""
    for line in slurm("squeue", "-h", "-r", "-j", job, "-t", "PD", "-o", "%i %r %S").splitlines():
        task, reason, start = line.split()
        # Less than three seconds, and the node has not let go of the job's credential.
        if reason == "BeginTime" and start != "N/A" and seconds_until(start) > 10:
            slurm("scontrol", "update", f"jobid={task}", "StartTime=now+3")


def seconds_until(local_time: str) -> float:
    return datetime.fromisoformat(local_time).timestamp() - time.time()


@pytest.fixture
def launch(
    planned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], SlurmPipelineExecutor]:
    """Launch the pipeline: the same call every time."""
    monkeypatch.setenv("PATH", f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}")
    partition = slurm("sinfo", "-h", "-o", "%P").split()
    default = next(name for name in partition if name.endswith("*"))

    def launch_pipeline() -> SlurmPipelineExecutor:
        executor = SlurmPipelineExecutor(
            [PolysiftStage(run=planned, stage="embed")],
            tasks=TASKS,
            time="00:10:00",
            partition=default.rstrip("*"),
            mem_per_cpu_gb=1,
            logging_dir=str(tmp_path / "logs"),
            sbatch_args={"open-mode": "append"},
        )
        executor.run()
        return executor

    return launch_pipeline


def completed(tmp_path: Path) -> set[int]:
    return {int(path.name) for path in (tmp_path / "logs/completions").glob("*")}


def cancel_statistics(after: str) -> None:
    """Cancel the job that datatrove leaves pending for ever when a rank failed."""
    slurm("scancel", str(int(after) + 1))


def test_a_rank_that_was_killed_is_done_by_the_next_launch(
    launch: Callable[[], SlurmPipelineExecutor],
    planned: Path,
    undisturbed: dict[str, str],
    tmp_path: Path,
) -> None:
    first = launch().job_id
    wait_for(lambda: len(programs(planned)) == TASKS, "all ranks")
    os.kill(programs(planned)[0], 9)
    wait_for(lambda: not jobs(first), "the end of the array", secs=180)
    assert len(completed(tmp_path)) == TASKS - 1
    cancel_statistics(first)
    second = launch().job_id
    wait_for(lambda: not jobs(second), "the end of the second array", secs=180)
    logs = [path.name for path in (tmp_path / "logs/slurm_logs").glob(f"{second}_*.out")]
    assert logs == [f"{second}_0.out"]  # one task, for the one rank
    assert completed(tmp_path) == set(range(TASKS))
    assert digests(planned) == undisturbed


def test_a_signal_before_the_time_limit_requeues_ranks_after_they_have_saved(
    launch: Callable[[], SlurmPipelineExecutor],
    planned: Path,
    undisturbed: dict[str, str],
    tmp_path: Path,
) -> None:
    job = launch().job_id
    wait_for(lambda: polysift.status(planned)["stages"][0]["leased"] == TASKS, "work in all ranks")
    slurm("scancel", "--signal=USR1", job)  # to every process, as --signal=USR1@SECONDS does

    def ended() -> bool:
        hurry(job)
        return not jobs(job)

    wait_for(ended, "the end of the array", secs=240)
    assert completed(tmp_path) == set(range(TASKS))
    assert digests(planned) == undisturbed
    said = "".join(path.read_text() for path in (tmp_path / "logs/slurm_logs").iterdir())
    assert "(SIGUSR1). Requeueing" in said
    assert "finished work is saved" in said
