"""Signals that this process gets while the program works are the program's."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import subprocess
    from types import FrameType, TracebackType

    from typing_extensions import Self


class Forwarded:
    """While it is entered, passes INT, TERM and USR1 on to a process.

    What a signal would have done it does when the context is left: the program saves before, say,
    datatrove's handler requeues the job, or this process dies. A signal that is ignored or handled
    outside of Python stays so, and all of them where this is not the main thread.
    """

    PASSED_ON_AS = signal.SIGINT
    """What the program gets, whatever came; the others it may not hear (see ``_guard``)."""
    _SIGNALS: ClassVar = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

    def __init__(self) -> None:
        self.received: list[int] = []
        """Signals that came, in order."""
        self._before: dict[int, Any] = {}
        self._process: subprocess.Popen[str] | None = None

    @property
    def numbers(self) -> str:
        """The signals that are passed on and that the program must not get from elsewhere."""
        return ",".join(str(int(s)) for s in self._before if s != self.PASSED_ON_AS)

    def to(self, process: subprocess.Popen[str]) -> None:
        """Pass on what came and what will come."""
        self._process = process
        if self.received:
            process.send_signal(self.PASSED_ON_AS)

    def __enter__(self) -> Self:
        """Take the signals over."""
        if threading.current_thread() is threading.main_thread():
            for number in self._SIGNALS:
                if signal.getsignal(number) not in (None, signal.SIG_IGN):
                    self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give them back, and let the first that came do what it would have done."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.received:
            signal.raise_signal(self.received[0])

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)
        if self._process is not None:
            self._process.send_signal(self.PASSED_ON_AS)
