"""The block in pipelines of datatrove, under each of its executors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import polysift

from conftest import DOCUMENTS, digests, programs, wait_for

pytest.importorskip("datatrove")

from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor

from polysift.datatrove import PolysiftStage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LAUNCH = """
import sys
from datatrove.executor import LocalPipelineExecutor
from polysift.datatrove import PolysiftStage
run, logs = sys.argv[1:]
if __name__ == "__main__":
    block = PolysiftStage(run=run, stage="embed", args=["--threads", "1"])
    LocalPipelineExecutor([block], tasks=2, workers=2, logging_dir=logs).run()
"""


def totals(logs: Path) -> dict[str, float]:
    """Return the sums of the ranks' statistics."""
    (block,) = json.loads((logs / "stats.json").read_text())
    return {
        name: value["total"] if isinstance(value, dict) else value for name, value in block["stats"].items()
    }


def test_ranks_do_a_stage_together(planned: Path, undisturbed: dict[str, str], tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    block = PolysiftStage(run=planned, stage="embed", args=["--threads", "1"])
    LocalPipelineExecutor([block], tasks=2, workers=2, logging_dir=str(logs)).run()
    assert digests(planned) == undisturbed
    assert totals(logs)["documents"] == DOCUMENTS
    assert totals(logs)["tokens"] == polysift.status(planned)["tokens"]


def test_a_rank_that_was_killed_is_done_by_the_next_launch(
    planned: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    script = tmp_path / "launch.py"
    script.write_text(LAUNCH)
    command = [sys.executable, script, planned, logs]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(programs(planned)) == 2, "both ranks")
    os.kill(programs(planned)[0], signal.SIGKILL)
    assert "TransientError: exit code -9" in first.communicate()[1]
    assert first.returncode == 1
    assert len(list(logs.glob("completions/*"))) < 2
    subprocess.run(command, check=True, capture_output=True)
    assert {path.name for path in logs.glob("completions/*")} == {"00000", "00001"}
    assert digests(planned) == undisturbed


def test_nothing_of_a_pipeline_that_is_killed_goes_on(planned: Path, tmp_path: Path) -> None:
    script = tmp_path / "launch.py"
    script.write_text(LAUNCH)
    first = subprocess.Popen(
        [sys.executable, script, planned, tmp_path / "logs"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_for(lambda: len(programs(planned)) == 2, "both ranks")
    os.killpg(first.pid, signal.SIGKILL)
    wait_for(lambda: not programs(planned), "the end of both programs")
    first.wait()


def test_a_failed_rank_is_not_completed_and_tells_why(
    stand_in: Callable[[str], Path], tmp_path: Path
) -> None:
    block = PolysiftStage(run=tmp_path, stage="embed", binary=stand_in("echo error: row 3 >&2; exit 65"))
    executor = LocalPipelineExecutor([block], tasks=1, workers=1, logging_dir=str(tmp_path / "logs"))
    with pytest.raises(polysift.PermanentError, match="bad input data"):
        executor.run()
    assert not (tmp_path / "logs/completions").exists()
    assert "error: row 3" in (tmp_path / "logs/logs/task_00000.log").read_text()


def test_documents_pass_on_untouched_and_before_the_task(
    stand_in: Callable[[str], Path], tmp_path: Path
) -> None:
    documents = [Document(text=str(i), id=str(i)) for i in range(3)]
    block = PolysiftStage(run=tmp_path, stage="embed", binary=stand_in(f"touch {tmp_path}/ran"))
    passed = block(iter(documents), 0, 1)
    assert [next(passed) for _ in documents] == documents
    assert not (tmp_path / "ran").exists()
    assert list(passed) == []
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(("tasks", "task"), [(1, ""), (4, "--task 2 --num-tasks 4")])
def test_a_single_task_takes_everything(
    stand_in: Callable[[str], Path], tmp_path: Path, tasks: int, task: str
) -> None:
    program = stand_in(f'echo "$@" > {tmp_path}/arguments')
    list(PolysiftStage(run=tmp_path, stage="score", binary=program)(None, tasks // 2, tasks))
    words = (tmp_path / "arguments").read_text().split(" --log-format")[0]
    assert words == f"score --run {tmp_path} {task}".rstrip()


@pytest.mark.parametrize(
    ("cpus", "own", "threads"), [("8", {}, "8"), ("-1", {}, ""), ("8", {"POLYSIFT_THREADS": "3"}, "3")]
)
def test_threads_are_the_cpus_of_the_task(
    stand_in: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cpus: str,
    own: dict[str, str],
    threads: str,
) -> None:
    monkeypatch.delenv("POLYSIFT_THREADS", raising=False)
    monkeypatch.setenv("DATATROVE_CPUS_PER_TASK", cpus)
    program = stand_in(f'echo "$POLYSIFT_THREADS" > {tmp_path}/threads')
    list(PolysiftStage(run=tmp_path, stage="embed", env=own, binary=program)(None, 0, 1))
    assert (tmp_path / "threads").read_text().strip() == threads
