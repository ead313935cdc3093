"""What happens to the program when the process that runs it is told to stop, or dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from conftest import is_alive, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    StandIn = Callable[[str], Path]

# Notes every signal that it hears; after INT it takes a moment to save.
PROGRAM = """
import os, signal, sys, time

def note(word):
    with open("heard", "a") as file:
        print(word, file=file)

stopped = []
def hear(number, frame):
    note(signal.Signals(number).name)
    if number == signal.SIGINT:
        stopped.append(number)

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, hear)
with open("pid.new", "w") as file:
    print(os.getpid(), file=file)
os.rename("pid.new", "pid")
while not stopped:
    time.sleep(0.01)
time.sleep(0.3)
note("saved")
sys.exit(75)
"""
CALLER = """
import signal, sys, polysift
{prepare}
try:
    polysift.run_task("run", "embed", 0, 2, binary=sys.argv[1])
except polysift.TransientError as error:
    print("transient", error.code)
"""


@pytest.fixture
def start(stand_in: StandIn, tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    """Start a process that runs the program, and wait until it works."""
    source = tmp_path / "program.py"
    source.write_text(PROGRAM)
    program = stand_in(f"exec {sys.executable} {source}")

    def start_caller(prepare: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, "-c", CALLER.format(prepare=prepare), program]
        caller = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        wait_for((tmp_path / "pid").exists, "the program")
        return caller

    return start_caller


def heard(folder: Path) -> list[str]:
    return (folder / "heard").read_text().split()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_is_passed_on_and_the_program_saves(
    start: Callable[[], subprocess.Popen[str]], tmp_path: Path, number: int
) -> None:
    caller = start()
    caller.send_signal(number)
    assert caller.wait() == -number
    assert heard(tmp_path) == ["SIGINT", "saved"]


def test_where_a_handler_goes_on_the_stop_is_a_transient_error(
    start: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    caller = start("signal.signal(signal.SIGTERM, lambda number, frame: print('noted'))")
    caller.send_signal(signal.SIGTERM)
    assert caller.communicate()[0] == "noted\ntransient 75\n"
    assert heard(tmp_path) == ["SIGINT", "saved"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_to_all_processes_of_a_job_comes_once(
    start: Callable[[], subprocess.Popen[str]], tmp_path: Path, number: int
) -> None:
    caller = start()
    program = int((tmp_path / "pid").read_text())
    if number == signal.SIGINT:  # what a terminal does: to the group
        os.killpg(caller.pid, number)
    else:  # what a scheduler does: to each
        os.kill(program, number)
        caller.send_signal(number)
    caller.wait()
    assert heard(tmp_path) == ["SIGINT", "saved"]


def test_the_handler_that_was_there_is_called_when_all_is_saved(
    start: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    requeue = """
def requeue(number, frame):
    open("heard", "a").write(f"requeue {signal.Signals(number).name}\\n")
    sys.exit(15)
signal.signal(signal.SIGUSR1, requeue)
"""
    caller = start(requeue)
    caller.send_signal(signal.SIGUSR1)
    assert caller.wait() == 15
    assert heard(tmp_path) == ["SIGINT", "saved", "requeue", "SIGUSR1"]


def test_a_signal_that_is_ignored_stays_so(
    start: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    caller = start("signal.signal(signal.SIGUSR1, signal.SIG_IGN)")
    caller.send_signal(signal.SIGUSR1)
    caller.send_signal(signal.SIGTERM)
    assert caller.wait() == -signal.SIGTERM
    assert heard(tmp_path) == ["SIGINT", "saved"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of a parent's death")
def test_the_program_dies_with_the_process_that_runs_it(
    start: Callable[[], subprocess.Popen[str]], tmp_path: Path
) -> None:
    caller = start()
    program = int((tmp_path / "pid").read_text())
    caller.kill()
    caller.wait()
    wait_for(lambda: not is_alive(program), "the end of the program")
    assert not (tmp_path / "heard").exists()
