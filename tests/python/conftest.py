"""What the tests share: programs that stand in for polysift, and a run of the real one."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import polysift

if TYPE_CHECKING:
    from collections.abc import Callable

# A shell lets what it runs in the background ignore INT, and so would all programs of these tests.
signal.signal(signal.SIGINT, signal.default_int_handler)

SAMPLE = Path(__file__).parents[1] / "sample"
# Where rows come out the same on every machine, in whatever order tasks are done.
SETTINGS = ["--precision", "f32", "--device", "cpu", "--chunks", "first", "--max-tokens", "128"]
DOCUMENTS = 2218  # of the sample corpus, as its README says


@pytest.fixture
def stand_in(tmp_path: Path) -> Callable[[str], Path]:
    """Make shell scripts that are run in place of polysift."""

    def make(body: str) -> Path:
        path = tmp_path / "polysift"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def planned(tmp_path: Path) -> Path:
    """Return a run directory for the sample corpus in which nothing is done."""
    return plan(tmp_path / "run")


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return digests of the embeddings that one process makes of the sample corpus."""
    run = plan(tmp_path_factory.mktemp("undisturbed") / "run")
    polysift.run_task(run, "embed", log_file=run.parent / "log")
    return digests(run)


def plan(run: Path) -> Path:
    """Plan a run of the sample corpus."""
    command = [polysift.binary(), "plan", "--config", SAMPLE / "run.toml", "--run", run, *SETTINGS]
    subprocess.run(command, check=True, capture_output=True)
    return run


def digests(run: Path) -> dict[str, str]:
    """Return digests of a run's outputs by their path."""
    tops = ("embeddings", "heads", "scores", "selection", "export", "removed")
    paths = [path for top in tops for path in (run / top).rglob("*")]
    return {
        str(path.relative_to(run)): hashlib.blake2b(path.read_bytes()).hexdigest()
        for path in paths
        if path.is_file()
    }


def wait_for(condition: Callable[[], object], what: str, secs: float = 60) -> None:
    """Wait until something holds; a failure where it does not come to that."""
    until = time.monotonic() + secs
    while not condition():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def programs(run: Path) -> list[int]:
    """Return the process ids of the programs that work on a run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_bytes().decode().split("\0")
        except OSError:  # it has ended
            continue
        if Path(arguments[0]).name == "polysift" and str(run) in arguments:
            found.append(int(entry.name))
    return found
