"""polysift picks the best pretraining text of a web corpus; this package runs it at scale.

The program does the work. Beside it are :func:`run_task`, which runs one task of a stage and turns
exit codes into exceptions; ``polysift.data``, embeddings and scores as NumPy arrays and Arrow tables;
``polysift.datatrove``, a block for datatrove's pipelines; and ``polysift.ray``, a driver for Ray clusters.
"""

from polysift._binary import binary
from polysift._errors import EXIT_CODES, ExitCode, PermanentError, PolysiftError, TransientError
from polysift._run import TaskReport, run_task, status, unfinished_tasks

__all__ = [
    "EXIT_CODES",
    "ExitCode",
    "PermanentError",
    "PolysiftError",
    "TaskReport",
    "TransientError",
    "binary",
    "run_task",
    "status",
    "unfinished_tasks",
]
