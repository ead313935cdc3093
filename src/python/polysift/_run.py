"""Runs the program as one task of a stage, and asks it how far a run is."""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol

from polysift._binary import binary as find_binary
from polysift._errors import error_for
from polysift._signals import Forwarded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    StrPath = str | os.PathLike[str]

TAIL_LINES = 20
_STOP_SECS = 60.0
_WAKE_SECS = 0.5
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_GUARD = Path(__file__).with_name("_guard.py")
# A command run from here is the task that it is told, whatever scheduler this process is in,
# and leaves requeueing to who runs this process.
_FOREIGN_VARIABLES = frozenset(
    {
        "POLYSIFT_TASK",
        "POLYSIFT_NUM_TASKS",
        "POLYSIFT_REQUEUE",
        "JOB_COMPLETION_INDEX",
        "JOB_COMPLETIONS",
        "AWS_BATCH_JOB_ARRAY_INDEX",
        "AWS_BATCH_JOB_ARRAY_SIZE",
    }
)


class Writer(Protocol):
    """What log lines can be written to."""

    def write(self, text: str, /) -> object:
        """Take a line with its line end."""


class TaskReport(NamedTuple):
    """What one process did for a stage."""

    stage: str
    """Name of the stage."""
    unit: str
    """What :attr:`done` counts: documents, heads...; empty where the program did not tell."""
    done: int
    """Units that this process did; what was done before does not count."""
    tokens: int
    """Tokens that they held; 0 where tokens mean nothing."""
    seconds: float
    """Wall time of the stage in the process."""


def run_task(  # noqa: PLR0913 (every one is a choice of the caller)
    run: StrPath,
    stage: str,
    task: int | None = None,
    num_tasks: int | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    log_file: StrPath | Writer | None = None,
    binary: StrPath | None = None,
) -> TaskReport:
    """Run ``polysift STAGE --run RUN --task TASK --num-tasks NUM_TASKS`` to its end.

    On Linux the program is killed when this process dies, however it does. While the call is in the
    main thread, INT, TERM and USR1 go to the program, as INT, whatever they were (it hears no other):
    it saves what it has and ends. Then the signal does here what it would have done without the call.

    Args:
        run: The run directory.
        stage: ``embed``, ``train``, ``score``, ``filter``, ``deduplicate``, ``refine``, ``threshold``,
            ``export`` or ``run``.
        task: Index of this process among the tasks, from 0; without it the process does everything and
            waits for other processes, so that the stage is complete when it returns.
        num_tasks: Number of tasks.
        settings: Settings by key, dotted or nested, as in the settings file (``--set``). An empty table
            takes the place of the one that the run has.
        args: More arguments.
        env: Variables on top of this process's environment.
        log_file: Where the program's lines go: a file to append to, or something with ``write``;
            this process's standard error where there is none.
        binary: The program; see :func:`polysift.binary`.

    Raises:
        TransientError: run it again (codes 69, 71, 74, 75, ended by a signal).
        PermanentError: any other code but 0.
        FileNotFoundError: there is no program.

    """
    command = [os.fspath(binary or find_binary()), stage, "--run", os.fspath(run)]
    if (task is None) != (num_tasks is None):
        raise ValueError("task and num_tasks go together")
    if task is not None:
        command += ["--task", str(task), "--num-tasks", str(num_tasks)]
    command += [f"--set={key}={value}" for key, value in _flat(settings or {})]
    command += ["--log-format", "json", *args]
    with _log(log_file) as log:
        output = _Output(stage, log)
        code = _run_to_the_end(command, _environment(env), output)
    if code != 0:
        raise error_for(code, command, output.tail())
    return output.report


def status(run: StrPath, *, binary: StrPath | None = None) -> dict[str, Any]:
    """Tell how far a run is: what ``polysift status RUN --json`` prints.

    Raises:
        TransientError, PermanentError: as :func:`run_task`.

    """
    answer: dict[str, Any] = json.loads(ask(["status", os.fspath(run), "--json"], binary))
    return answer


def unfinished_tasks(run: StrPath, stage: str, num_tasks: int, *, binary: StrPath | None = None) -> list[int]:
    """Tell which of ``num_tasks`` tasks own shards that a stage has not done (``polysift retry``).

    Raises:
        TransientError, PermanentError: as :func:`run_task`.

    """
    args = ["retry", os.fspath(run), "--stage", stage, "--num-tasks", str(num_tasks)]
    tasks: list[int] = []
    for part in filter(None, ask(args, binary).strip().split(",")):
        first, _, last = part.partition("-")
        tasks += range(int(first), int(last or first) + 1)
    return tasks


def ask(args: Sequence[str], binary: StrPath | None = None) -> str:
    """Run a short command and return what it prints."""
    command = [os.fspath(binary or find_binary()), *args]
    done = subprocess.run(command, env=_environment(None), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise error_for(done.returncode, command, done.stderr.strip())
    return done.stdout


def _run_to_the_end(command: list[str], env: dict[str, str], output: _Output) -> int:
    with Forwarded() as signals:
        guard = [sys.executable, "-I", "-S", os.fspath(_GUARD), str(os.getpid()), signals.numbers]
        with subprocess.Popen(
            [*guard, *command],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        ) as process:
            reader = threading.Thread(target=output.read, args=(process.stdout,), daemon=True)
            reader.start()
            signals.to(process)
            try:
                while reader.is_alive():  # Ray interrupts Python code, but no call that waits
                    reader.join(_WAKE_SECS)
                code = process.wait()
            except BaseException:
                _stop(process)
                raise
    return code


def _stop(process: subprocess.Popen[str]) -> None:
    """End the program: politely, then not."""
    process.send_signal(Forwarded.PASSED_ON_AS)
    try:
        process.wait(_STOP_SECS)
    except subprocess.TimeoutExpired:
        process.kill()


class _Output:
    """Reads the program's lines: passes them on, keeps the last ones and the counts."""

    def __init__(self, stage: str, log: Writer) -> None:
        self.report = TaskReport(stage, "", 0, 0, 0.0)
        self._log = log
        self._lines: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)

    def read(self, lines: IO[str]) -> None:
        for line in lines:
            with suppress(OSError, ValueError):  # a log that is full or closed must not stop the work
                self._log.write(line)
            if not self._count(line):
                self._lines.append(line.rstrip("\n"))

    def tail(self) -> str:
        return "\n".join(self._lines)

    def _count(self, line: str) -> bool:
        """Take a line of progress; whether it is one."""
        if not line.startswith('{"progress"'):
            return False
        try:
            told = json.loads(line)
        except ValueError:  # the program died while it wrote
            return False
        if told["progress"] == self.report.stage:
            counts = (told["unit"], told["done"], told["tokens"], told["secs"])
            self.report = TaskReport(self.report.stage, *counts)
        return True


def _environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _FOREIGN_VARIABLES and not name.startswith("SLURM_ARRAY_")
    }
    return {**kept, **(extra or {})}


def _log(log_file: StrPath | Writer | None) -> AbstractContextManager[Writer]:
    if log_file is None:
        return nullcontext(sys.stderr)
    if isinstance(log_file, (str, os.PathLike)):
        path = Path(log_file)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a", buffering=1, encoding="utf-8")
    return nullcontext(log_file)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted keys with their values in TOML; an empty table is a value, for it may switch things on."""
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{name}.")
        else:
            yield name, _toml(value, name)


def _toml(value: Any, name: str) -> str:  # noqa: ANN401 (settings are of any type)
    """Write the value of a setting in TOML, on one line."""
    if isinstance(value, Mapping):
        pairs = (f"{_toml_key(str(key))} = {_toml(of, f'{name}.{key}')}" for key, of in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml(item, name) for item in value)}]"
    if isinstance(value, float):
        return float.__repr__(value)  # TOML has inf and nan too
    if isinstance(value, (str, int)):
        return _json(value)
    what = "None; leave it out" if value is None else f"of the type {type(value).__name__}"
    raise TypeError(f"{name}: a setting cannot be {what}")


def _toml_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _json(key)


def _json(value: str | int) -> str:
    """Write what is the same in JSON and TOML, but for DEL, which only TOML escapes."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
