"""What the program's exit codes mean, as exceptions."""

from __future__ import annotations

import shlex
import signal
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# A program that a shell saw die by signal n ends with this plus n, as does polysift at a later signal.
_SIGNAL_BASE = 128


class ExitCode(NamedTuple):
    """Meaning of an exit code."""

    meaning: str
    """In a few words."""
    retry: bool
    """Whether the same command may succeed when it is run again."""


EXIT_CODES: Mapping[int, ExitCode] = MappingProxyType(
    {
        0: ExitCode("done", retry=False),
        2: ExitCode("a flag or a setting is wrong", retry=False),
        3: ExitCode("some shards failed, the others are done", retry=False),
        65: ExitCode("bad input data, model or head", retry=False),
        66: ExitCode("input is missing, or an earlier stage is not complete", retry=False),
        69: ExitCode("a store, the hub or a GPU is not available", retry=True),
        70: ExitCode("internal error", retry=False),
        71: ExitCode("a GPU failed", retry=True),
        74: ExitCode("file system error", retry=True),
        75: ExitCode("stopped by a signal, or the run directory is in use", retry=True),
        78: ExitCode("settings differ from those of the run directory", retry=False),
        127: ExitCode("the program cannot be started", retry=False),
    }
)
"""Exit codes of ``polysift``; codes above 128 mean that a signal ended it, and may be retried."""


def describe(code: int) -> ExitCode:
    """Explain an exit code; negative ones are signals, as :mod:`subprocess` has it."""
    if code in EXIT_CODES:
        return EXIT_CODES[code]
    number = -code if code < 0 else code - _SIGNAL_BASE
    try:
        return ExitCode(f"ended by {signal.Signals(number).name}", retry=True)
    except ValueError:
        return ExitCode("unknown exit code", retry=False)


class PolysiftError(Exception):
    """The program ended with something else than 0."""

    def __init__(self, code: int, command: Sequence[str] = (), stderr: str = "") -> None:
        # Plain arguments, so that the error survives pickling on its way between processes.
        super().__init__(code, tuple(command), stderr)
        self.code = code
        """Exit code; negative where a signal ended the program."""
        self.command = tuple(command)
        """The command, program first."""
        self.stderr = stderr
        """The last lines that the program wrote."""

    def __str__(self) -> str:
        """Code, meaning, command and the last lines."""
        head = f"exit code {self.code} ({describe(self.code).meaning}): {shlex.join(self.command)}"
        return f"{head}\n{self.stderr}" if self.stderr else head


class TransientError(PolysiftError):
    """The same command may succeed later or elsewhere: codes 69, 71, 74, 75, or ended by a signal."""


class PermanentError(PolysiftError):
    """The same command would fail again: all other codes."""


def error_for(code: int, command: Sequence[str], stderr: str) -> PolysiftError:
    """Make the exception for an exit code that is not 0."""
    kind = TransientError if describe(code).retry else PermanentError
    return kind(code, command, stderr)
