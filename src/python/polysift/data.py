"""Embeddings and scores of texts at hand, and those of a run, as NumPy arrays and Arrow data.

Needs numpy and pyarrow: ``pip install 'polysift[data]'``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from polysift._binary import binary as find_binary
from polysift._errors import error_for
from polysift._run import TAIL_LINES, run_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from polysift._run import StrPath, Writer

# What Scorer adds to the objects of `polysift annotate`: the number of the line, and the answer.
_LINE = "polysift_line"
_ANSWER = "polysift_answer"
_REJECTED = re.compile(r"standard input: line (\d+): (.*)")


def embed(  # noqa: PLR0913 (every one is a choice of the caller)
    texts: Iterable[str | None],
    *,
    model: StrPath = "polysift-mini",
    settings: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    log_file: StrPath | Writer | None = os.devnull,
    binary: StrPath | None = None,
) -> npt.NDArray[np.float32]:
    """Embed the first chunk of each text, as ``polysift embed --chunks first`` does.

    A call starts the program, which loads the encoder: give it all texts at once.

    Args:
        texts: The texts.
        model: The encoder: the bundled one, a directory of the Hugging Face layout, or an id on the hub.
        settings: More settings by key (see :func:`polysift.run_task`), as ``{"encoder.precision": "int8"}``.
        env: Variables on top of this process's environment.
        log_file: Where the program's lines go.
        binary: The program; see :func:`polysift.binary`.

    Returns:
        ``[len(texts), width]``, float32; NaN in the rows of texts that are None or blank.

    Raises:
        TransientError, PermanentError: as :func:`polysift.run_task`.

    """
    options = {"env": env, "log_file": log_file, "binary": binary}
    column = _column(texts)
    with _embedded(column, "und", model, settings=settings, args=[], options=options) as run:
        return _first_chunks([batch.column("embeddings") for batch in embeddings(run)])


def _column(texts: Iterable[str | None]) -> pa.StringArray:
    return pa.array(_several(texts, "texts"), pa.string())


def _several(texts: Iterable[Any], name: str) -> Iterable[Any]:
    """Refuse a text alone, which would be a text for each of its characters."""
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"{name} is one text; give a list of texts: [text]")
    return texts


def score(  # noqa: PLR0913 (every one is a choice of the caller)
    texts: Iterable[str | None],
    heads: Mapping[str, StrPath],
    *,
    language: str = "und",
    model: StrPath = "polysift-mini",
    settings: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    log_file: StrPath | Writer | None = os.devnull,
    binary: StrPath | None = None,
) -> pa.Table:
    """Score texts with trained heads, as ``polysift embed --head NAME=PATH`` does.

    Args:
        texts: The texts.
        heads: Files of heads by name; ``{lang}`` in a path stands for the language.
        language: That of the texts.
        model: The encoder that the heads were trained on; as in :func:`embed`.
        settings: As in :func:`embed`.
        env: As in :func:`embed`.
        log_file: As in :func:`embed`.
        binary: As in :func:`embed`.

    Returns:
        A row for each text, in their order: ``NAME_score`` and ``NAME_logit`` of each head, float32, null for
        texts that are None or blank. ``.to_pandas()`` makes a data frame of it.

    Raises:
        TransientError, PermanentError: as :func:`polysift.run_task`.

    """
    args = [f"--head={name}={os.fspath(path)}" for name, path in heads.items()]
    options = {"env": env, "log_file": log_file, "binary": binary}
    column = _column(texts)
    scored: dict[str, list[pa.RecordBatch]] = {name: [] for name in heads}
    if len(column):  # no texts have no language, and a head may have no file for none
        with _embedded(column, language, model, settings=settings, args=args, options=options) as run:
            scored = {name: list(scores(run, name)) for name in heads}
    return pa.table(
        {
            f"{name}_{column}": pa.chunked_array([batch.column(column) for batch in batches], pa.float32())
            for name, batches in scored.items()
            for column in ("score", "logit")
        }
    )


class Scorer(AbstractContextManager["Scorer"]):
    """A run that stays loaded and scores texts as they come, at the speed of ``polysift annotate``.

    The program starts once, loads the run's encoder, heads and filters, and ends with the context. If it
    ends before, this and :meth:`score` raise TransientError or PermanentError, as :func:`polysift.run_task`.

    Args:
        run: The run directory.
        language: That of all texts, whatever the run's settings say of languages.
        args: More arguments of ``polysift annotate``, as ``["--device", "cuda:1"]``.
        binary: The program; see :func:`polysift.binary`.

    """

    def __init__(
        self,
        run: StrPath,
        *,
        language: str | None = None,
        args: Sequence[str] = (),
        binary: StrPath | None = None,
    ) -> None:
        self._command = [os.fspath(binary or find_binary()), "annotate", "--run", os.fspath(run)]
        self._command += ["--format=json", f"--key={_ANSWER}", "--text-column=text", "--id-column=id"]
        self._command += [*([f"--language={language}"] if language else []), *args]
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=1,  # lines go out as they are written
            encoding="utf-8",
            errors="surrogatepass",  # what is not Unicode the program is to reject
            start_new_session=True,  # Ctrl-C is for this process alone
        )
        self._lock = Lock()
        self._lines = 0
        self.score([])  # answered when all is loaded

    def score(
        self,
        texts: Iterable[str | None],
        languages: Iterable[str | None] | None = None,
        ids: Iterable[str] | None = None,
        columns: Mapping[str, Iterable[Any]] | None = None,
    ) -> pa.Table:
        """Score texts, which may come from a generator: few are in memory at a time.

        Args:
            texts: The texts.
            languages: That of each, where neither the run's settings nor ``language`` name one for all.
            ids: That of each; heads of kind ``random`` and ties depend on it.
            columns: What heads and filters of the run read besides, by name, as ``{"url": [...]}``.

        Returns:
            A row for each text, in order: ``NAME_score`` of each head, float32, null where it gives none;
            ``verdict``, null where the language has no thresholds; ``reason``. A text that the program
            refuses has the verdict ``rejected``, and what it says as the reason.

        """
        given = {"text": texts, "language": languages, "id": ids, **(columns or {})}
        given = {name: _several(values, name) for name, values in given.items() if values is not None}
        documents = (dict(zip(given, row, strict=True)) for row in zip(*given.values(), strict=True))
        with self._lock, ThreadPoolExecutor(1) as writer:
            first, self._end = self._lines, -1
            try:
                written = writer.submit(self._write, documents)
                answers = self._read(first)
            except BaseException:  # what is under way must not answer the next call
                self._process.kill()
                self.close()
                raise
            written.result()
        rows = [answers[line] for line in range(first, self._end)]
        heads = dict.fromkeys(head for answer in answers.values() for head in answer["scores"])
        table = {
            f"{head}_score": pa.array([r["scores"].get(head) for r in rows], pa.float32()) for head in heads
        }
        table |= {name: pa.array([r.get(name) for r in rows], pa.string()) for name in ("verdict", "reason")}
        return pa.table(table)

    def close(self) -> None:
        """End the program and wait for that."""
        self._process.communicate()

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _write(self, documents: Iterable[dict[str, Any]]) -> None:
        with suppress(BrokenPipeError):  # who reads finds the end
            try:
                for document in documents:
                    self._send(document)
            finally:
                self._end = self._lines
                self._send({"text": None, "language": "und"})

    def _send(self, document: dict[str, Any]) -> None:
        line = json.dumps(document | {_LINE: self._lines}, ensure_ascii=False)
        self._lines += 1
        cast("IO[str]", self._process.stdin).write(line + "\n")

    def _read(self, first: int) -> dict[int, dict[str, Any]]:
        answers: dict[int, dict[str, Any]] = {}
        said: deque[str] = deque(maxlen=TAIL_LINES)
        for text in cast("IO[str]", self._process.stdout):
            if text.startswith("{"):
                document = json.loads(text)
                document[_ANSWER].pop("thresholds", None)  # the same for all, and long
                answers[document[_LINE]] = document[_ANSWER]
            elif found := _REJECTED.match(text):
                answers[int(found[1]) - 1] = {"scores": {}, "verdict": "rejected", "reason": found[2]}
            else:
                said.append(text.rstrip("\n"))
            if len(answers) > self._end - first >= 0:  # refused lines come first of their block
                return answers
        self.close()
        raise error_for(self._process.returncode, self._command, "\n".join(said))


def embeddings(run: StrPath) -> Iterator[pa.RecordBatch]:
    """Yield the stored embeddings of a run, shard by shard, as they are on disk.

    Columns: ``row`` in its file, ``id``, ``language``, ``num_bytes``, ``num_tokens``, ``num_chunks``, and
    ``embeddings``: a list of chunks of a list of numbers, null without text.
    """
    return _batches(Path(run, "embeddings"))


def scores(run: StrPath, head: str, *, refined: bool = False) -> Iterator[pa.RecordBatch]:
    """Yield the stored scores of a head of a run, in the rows and order of :func:`embeddings`.

    Columns: those of the documents, ``logit`` and ``score``, null without text. With ``refined`` the scores
    that the refine stage made of them.
    """
    return _batches(Path(run, "refined" if refined else "scores", head))


def _batches(folder: Path) -> Iterator[pa.RecordBatch]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not there: the stage that makes it has not run")
    for path in sorted(folder.rglob("part-*.parquet")):
        with pq.ParquetFile(path, memory_map=True) as part:
            yield from part.iter_batches()


@contextmanager
def _embedded(  # noqa: PLR0913 (what embed and score are given)
    texts: pa.StringArray,
    language: str,
    model: StrPath,
    *,
    settings: Mapping[str, Any] | None,
    args: Sequence[str],
    options: Mapping[str, Any],
) -> Iterator[Path]:
    """Embed texts in a run directory that is there as long as the context."""
    with tempfile.TemporaryDirectory(prefix="polysift-") as folder:
        path, run = Path(folder, "texts.parquet"), Path(folder, "run")
        ids = pa.array(map(str, range(len(texts))), pa.string())
        pq.write_table(pa.table({"id": ids, "text": texts}), path, compression=None)
        given = {
            "input.files": [os.fspath(path)],
            "input.language": language,
            "encoder.model": os.fspath(model),
            "encoder.chunks": "first",
            "parts.embeddings": "f32",
            **(settings or {}),
        }
        run_task(run, "embed", settings=given, args=args, **options)
        yield run


def _first_chunks(columns: Sequence[pa.ListArray]) -> npt.NDArray[np.float32]:
    """Rows of one list of numbers each, or null, as a matrix with NaN for null."""
    lengths = [pc.fill_null(pc.list_value_length(column), 0) for column in columns]
    present = np.concatenate([np.zeros(0, bool), *(np.asarray(pc.greater(of, 0)) for of in lengths)])
    numbers = [column.flatten().flatten().to_numpy(zero_copy_only=False) for column in columns]
    values = np.concatenate([np.zeros(0, np.float32), *numbers])
    width = len(values) // max(int(present.sum()), 1)
    rows = np.full((len(present), width), np.nan, np.float32)
    rows[present] = values.reshape(-1, width) if width else 0
    return rows
