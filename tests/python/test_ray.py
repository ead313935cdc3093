"""The Ray driver, and datatrove's executor for Ray, on a cluster of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import polysift

from conftest import DOCUMENTS, digests, plan, programs, wait_for

ray = pytest.importorskip("ray")

import polysift.ray as driver  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    StandIn = Callable[[str], Path]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Two workers at a time; none of what the tests' own process imports is needed there."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def options(**more: object) -> driver.Options:
    return driver.Options(**{"retry_delay_secs": 0, **more})  # type: ignore[arg-type]


def worker_of(program: int) -> int:
    """Process that runs a program."""
    status = Path(f"/proc/{program}/status").read_text()
    return int(status.split("PPid:")[1].split()[0])


def test_the_stages_are_those_of_the_program() -> None:
    command = [polysift.binary(), "retry", "--help"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert f"[possible values: {', '.join(driver.STAGES)}]" in " ".join(told.split())


def test_a_worker_killed_in_the_middle_is_replaced(planned: Path, undisturbed: dict[str, str]) -> None:
    killed = []

    def kill_a_worker() -> None:
        wait_for(lambda: len(programs(planned)) == 2, "two programs")
        wait_for(lambda: list(planned.glob("embeddings/**/*.parquet")), "the first output")
        killed.append(worker_of(programs(planned)[0]))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_a_worker)
    killer.start()
    outcome = driver.run(planned, "embed", 4, options())
    killer.join()
    assert killed
    assert outcome.exit_code == 0
    assert outcome.failures == ()
    assert digests(planned) == undisturbed
    # What the killed one had counted is not known to anybody.
    assert sum(report.done for report in outcome.reports) <= DOCUMENTS


def test_what_is_done_is_not_done_again(planned: Path) -> None:
    assert driver.run(planned, "embed", 2, options()).exit_code == 0
    assert driver.run(planned, "embed", 5, options()) == driver.Outcome((), ())


def retry_tells(tmp_path: Path, tasks: str) -> str:
    """Script of a program that tells tasks whose file is not there, and knows stage and task."""
    return f"""
if [ "$1" = retry ]; then
    for i in {tasks}; do [ -e {tmp_path}/$4-$i ] || left="$left,$i"; done
    echo "${{left#,}}"; exit 0
fi
stage=$1; [ "$4" = --task ] && task=$5
"""


def test_failures_for_good_do_not_stop_the_others_but_later_stages(stand_in: StandIn, tmp_path: Path) -> None:
    do = f'echo "$stage $task" >> {tmp_path}/ran; [ "$task" != 1 ] || {{ echo error: bad >&2; exit 65; }}'
    program = stand_in(retry_tells(tmp_path, "0 1 2") + do + f"; touch {tmp_path}/$stage-$task")
    outcome = driver.run(tmp_path, ["embed", "score"], 3, options(binary=program))
    assert sorted((tmp_path / "ran").read_text().split("\n")) == ["", "embed 0", "embed 1", "embed 2"]
    (failure,) = outcome.failures
    assert (failure.stage, failure.task) == ("embed", 1)
    assert isinstance(failure.error, polysift.PermanentError)
    assert (failure.error.code, failure.error.stderr) == (65, "error: bad")
    assert len(outcome.reports) == 2
    assert outcome.exit_code == 3


def test_transient_failures_are_tried_again_and_permanent_ones_are_not(
    stand_in: StandIn, tmp_path: Path
) -> None:
    do = f"""
echo x >> {tmp_path}/tries-$task; tries=$(wc -l < {tmp_path}/tries-$task)
case $task in 0) [ $tries -ge 3 ] || exit 75;; 1) exit 66;; 2) exit 69;; esac
touch {tmp_path}/$stage-$task
"""
    program = stand_in(retry_tells(tmp_path, "0 1 2") + do)
    outcome = driver.run(tmp_path, "embed", 3, options(binary=program, max_retries=2))
    tries = {i: len((tmp_path / f"tries-{i}").read_text().split()) for i in range(3)}
    assert tries == {0: 3, 1: 1, 2: 3}
    codes = {f.task: (type(f.error), f.error.code) for f in outcome.failures}  # type: ignore[attr-defined]
    assert codes == {1: (polysift.PermanentError, 66), 2: (polysift.TransientError, 69)}
    assert outcome.exit_code == 3


def test_stages_follow_each_other_and_global_ones_are_one_task(stand_in: StandIn, tmp_path: Path) -> None:
    do = f'echo "$stage $task" >> {tmp_path}/ran; touch {tmp_path}/$stage-$task'
    program = stand_in(retry_tells(tmp_path, "0 1") + do)
    outcome = driver.run(tmp_path, ["score", "threshold", "export"], 2, options(binary=program))
    assert outcome.exit_code == 0
    ran = [line.strip() for line in (tmp_path / "ran").read_text().splitlines()]
    assert (set(ran[:2]), ran[2], set(ran[3:])) == (
        {"score 0", "score 1"},
        "threshold",
        {"export 0", "export 1"},
    )


def test_heads_are_trained_before_a_cascade(stand_in: StandIn, tmp_path: Path) -> None:
    do = f'echo "$stage" >> {tmp_path}/ran; touch {tmp_path}/$stage-$task'
    program = stand_in(retry_tells(tmp_path, "0") + do)
    driver.run(tmp_path, ["score", "embed", "cascade", "train"], 1, options(binary=program))
    assert (tmp_path / "ran").read_text().split() == ["train", "cascade", "embed", "score"]


def test_shards_that_a_lost_machine_held_are_swept_up(stand_in: StandIn, tmp_path: Path) -> None:
    # Task 1 ends well, but its shard was in other hands, of which nobody knew that they were dead.
    do = f"""
echo "$stage $task" >> {tmp_path}/ran
case "$task" in 1) exit 0;; "") touch {tmp_path}/embed-1; exit 0;; esac
touch {tmp_path}/$stage-$task
"""
    program = stand_in(retry_tells(tmp_path, "0 1") + do)
    assert driver.run(tmp_path, "embed", 2, options(binary=program)).exit_code == 0
    ran = [line.strip() for line in (tmp_path / "ran").read_text().splitlines()]
    assert sorted(ran[:2]) == ["embed 0", "embed 1"]
    assert ran[2:] == ["embed"]


def test_all_stages_on_a_cluster_make_what_one_process_makes(planned: Path, tmp_path: Path) -> None:
    outcome = driver.run(planned, ["embed", "train", "score", "threshold", "export"], 3, options())
    assert outcome.exit_code == 0
    alone = plan(tmp_path / "alone")
    polysift.run_task(alone, "run", log_file=tmp_path / "log")
    assert digests(planned) == digests(alone)
    assert list(planned.glob("export/*/*.parquet"))


@pytest.mark.parametrize(
    ("codes", "succeeded", "expected"),
    [([], 2, 0), ([75], 1, 75), ([65], 1, 3), ([78, 78], 0, 78), ([78, 75], 0, 3), ([65, 78], 0, 3)],
)
def test_the_exit_code_tells_what_to_do(codes: list[int], succeeded: int, expected: int) -> None:
    def error(code: int) -> Exception:
        return polysift.TransientError(code) if code == 75 else polysift.PermanentError(code)

    failures = tuple(driver.Failure("embed", i, error(code)) for i, code in enumerate(codes))
    report = polysift.TaskReport("embed", "documents", 1, 1, 1.0)
    assert driver.Outcome((report,) * succeeded, failures).exit_code == expected


def test_unknown_stages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such stage: embet"):
        driver.run(tmp_path, ["embet"], 2)


def test_the_command_runs_and_tells_what_it_did(planned: Path, tmp_path: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-m", "polysift.ray", "--run", planned, "--stage", "embed"]
    command += ["--num-tasks", "2", "--address", address, "--log-dir", tmp_path / "logs"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"embed: 2 task(s) succeeded, {DOCUMENTS} documents" in done.stdout
    logs = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert logs == ["ray_embed_00000.log", "ray_embed_00001.log"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_when_the_command_is_stopped_the_programs_save(
    stand_in: StandIn, tmp_path: Path, number: int
) -> None:
    do = f"""
trap 'echo saved >> {tmp_path}/saved; exit 75' INT
echo works >> {tmp_path}/works
while :; do sleep 0.05; done
"""
    program = stand_in(retry_tells(tmp_path, "0 1") + do)
    address = ray.get_runtime_context().gcs_address
    command = [
        sys.executable,
        "-m",
        "polysift.ray",
        "--run",
        tmp_path,
        "--stage",
        "embed",
        "--num-tasks",
        "2",
    ]
    command += ["--num-tasks", "2", "--address", address, "--binary", program]
    caller = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    works = tmp_path / "works"
    wait_for(lambda: works.exists() and works.read_text().count("works") == 2, "both programs")
    caller.send_signal(number)
    assert "stopped by a signal" in caller.communicate()[1]
    assert caller.returncode == 75
    assert (tmp_path / "saved").read_text().split() == ["saved", "saved"]


def test_a_directory_that_is_no_run_ends_the_command_with_its_code(tmp_path: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-m", "polysift.ray", "--run", tmp_path / "none", "--stage", "embed"]
    done = subprocess.run(
        [*command, "--num-tasks", "2", "--address", address], capture_output=True, text=True, check=False
    )
    assert done.returncode == 66
    assert str(tmp_path / "none") in done.stderr


def test_datatrove_runs_the_block_on_ray(planned: Path, undisturbed: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("datatrove")
    from datatrove.executor import RayPipelineExecutor  # noqa: PLC0415

    from polysift.datatrove import PolysiftStage  # noqa: PLC0415

    logs = tmp_path / "logs"
    executor = RayPipelineExecutor(
        [PolysiftStage(run=planned, stage="embed")], tasks=2, mem_per_cpu_gb=0.1, logging_dir=str(logs)
    )
    executor.run()
    assert digests(planned) == undisturbed
    (block,) = json.loads((logs / "stats.json").read_text())
    assert block["stats"]["documents"]["total"] == DOCUMENTS
