"""Becomes the program, after tying its life to that of the process that wants it.

Run as ``python -I -S _guard.py PARENT SIGNALS PROGRAM ARGUMENT...``. A small process of its own,
because what a fork may do safely in a process with threads is next to nothing.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_CANNOT_START = 127


def main() -> None:
    """Prepare this process, then exec."""
    parent, signals, *command = sys.argv[1:]
    # Ctrl-C reaches every process of a terminal's group: here it shall come once, from the parent.
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):  # it died before it could be watched
            os.kill(os.getpid(), signal.SIGKILL)
    # What the parent passes on must not come twice, once from it and once from a scheduler that
    # signals all processes of a job: a second one later would make the program drop what it is doing.
    signal.pthread_sigmask(signal.SIG_BLOCK, {int(s) for s in signals.split(",") if s})
    try:
        os.execv(command[0], command)
    except OSError as error:
        sys.stderr.write(f"error: {command[0]}: {error.strerror}\n")
        sys.exit(_CANNOT_START)


if __name__ == "__main__":
    main()
