"""Embeddings and scores of texts at hand, and those of a run, as NumPy arrays and Arrow data.

Needs numpy and pyarrow: ``pip install 'polysift[data]'``.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import tempfile
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import Lock, get_ident
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from polysift._binary import binary as find_binary
from polysift._errors import error_for
from polysift._run import TAIL_LINES, run_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from polysift._run import StrPath, Writer

# What Scorer adds to the objects of `polysift annotate`: the number of the line, and the answer.
_LINE = "polysift_line"
_ANSWER = "polysift_answer"
_REJECTED = re.compile(r"standard input: line (\d+): (.*)")
_PANDAS_NULLS = frozenset({"NAType", "NaTType"})  # pandas need not be there
_MAX_NAMED = 10


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
        ValueError: the program set texts aside, as ``input.max_rejects`` lets it.

    """
    options = {"env": env, "log_file": log_file, "binary": binary}
    column = _column(texts)
    with _embedded(column, "und", model, settings=settings, args=[], options=options) as run:
        batches = _complete(embeddings(run), len(column))
        return _first_chunks([batch.column("embeddings") for batch in batches])


def _column(texts: Iterable[str | None]) -> pa.StringArray:
    return pa.array(_several(texts, "texts"), pa.string())


def _several(texts: Iterable[Any] | None, name: str) -> Iterable[Any]:
    """Refuse None, and a text alone, which would be a text for each of its characters."""
    if texts is None:
        raise TypeError(f"{name} is None; give a list of texts")
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
        ValueError: as in :func:`embed`.

    """
    args = [f"--head={name}={os.fspath(path)}" for name, path in heads.items()]
    options = {"env": env, "log_file": log_file, "binary": binary}
    column = _column(texts)
    scored: dict[str, list[pa.RecordBatch]] = {name: [] for name in heads}
    if len(column):  # no texts have no language, and a head may have no file for none
        with _embedded(column, language, model, settings=settings, args=args, options=options) as run:
            scored = {name: _complete(scores(run, name), len(column)) for name in heads}
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
    A process that is forked cannot use it, and makes its own.

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
        self._pid = os.getpid()
        self._lock = Lock()
        self._writer: int | None = None
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
            texts: The texts; one that is None or NaN is a document without text.
            languages: That of each, where neither the run's settings nor ``language`` name one for all.
            ids: That of each; heads of kind ``random`` and ties depend on it.
            columns: What heads and filters of the run read besides, by name, as ``{"url": [...]}``. NaN is
                null.

        Returns:
            A row for each text, in order: ``NAME_score`` of each head, float32, null where it gives none;
            ``verdict``, null where the language has no thresholds; ``reason``. A text that the program
            refuses has the verdict ``rejected``, and what it says as the reason.

        Raises:
            RuntimeError: the call is in another process than the one that made the scorer, or in a generator
                that a call of the same scorer consumes.

        """
        if os.getpid() != self._pid:  # two processes would read each other's answers
            raise RuntimeError(f"this scorer belongs to process {self._pid}; make a scorer in each process")
        if get_ident() == self._writer:  # it would wait for itself
            raise RuntimeError("a generator that a scorer consumes cannot call it; give it another scorer")
        more = {"language": languages, "id": ids, **(columns or {})}
        named = [("text", texts), *((name, values) for name, values in more.items() if values is not None)]
        given = {name: _several(values, name) for name, values in named}
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
        """End the program and wait for that; in another process this does nothing."""
        if os.getpid() == self._pid:
            self._process.communicate()

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _write(self, documents: Iterable[dict[str, Any]]) -> None:
        with suppress(BrokenPipeError):  # who reads finds the end
            self._writer = get_ident()
            try:
                for document in documents:
                    self._send(document)
            finally:
                self._writer = None
                self._end = self._lines
                self._send({"text": None, "language": "und"})

    def _send(self, document: dict[str, Any]) -> None:
        line = json.dumps(_without_nan(document | {_LINE: self._lines}), ensure_ascii=False)
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


def _without_nan(value: Any) -> Any:  # noqa: ANN401 (what JSON can say is of many types)
    """Put None for NaN, which JSON cannot say, and for the nulls of pandas, in lists and objects too."""
    if isinstance(value, dict):
        return {key: _without_nan(of) for key, of in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    is_nan = isinstance(value, float) and math.isnan(value)
    return None if is_nan or type(value).__name__ in _PANDAS_NULLS else value


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
        settings = settings or {}
        given = {
            # An empty table takes the place of what comes before it, so it must not come last.
            **{key: value for key, value in settings.items() if isinstance(value, Mapping) and not value},
            "input.files": [os.fspath(path)],
            "input.language": language,
            "encoder.model": os.fspath(model),
            "encoder.chunks": "first",
            "parts.embeddings": "f32",
            **settings,
        }
        run_task(run, "embed", settings=given, args=args, **options)
        yield run


def _complete(batches: Iterable[pa.RecordBatch], number: int) -> list[pa.RecordBatch]:
    """Return the batches, which must have a row for each of so many texts."""
    found = list(batches)
    missing = sorted(set(range(number)).difference(*(batch.column("row").to_pylist() for batch in found)))
    if missing:
        named = ", ".join(map(str, missing[:_MAX_NAMED])) + (", ..." if len(missing) > _MAX_NAMED else "")
        raise ValueError(f"the program set {len(missing)} of {number} texts aside, those with index {named}")
    return found


def _first_chunks(columns: Sequence[pa.ListArray]) -> npt.NDArray[np.float32]:
    """Rows of lists of chunks, or null, as a matrix of the first chunks, with NaN for null."""
    lengths = [pc.fill_null(pc.list_value_length(column), 0) for column in columns]
    masks = [pc.greater(length, 0) for length in lengths]
    present = np.concatenate([np.zeros(0, bool), *(np.asarray(mask) for mask in masks)])
    firsts = [pc.list_element(of.filter(mask), 0) for of, mask in zip(columns, masks, strict=True)]
    numbers = [first.flatten().to_numpy(zero_copy_only=False) for first in firsts]
    values = np.concatenate([np.zeros(0, np.float32), *numbers])
    width = len(values) // max(int(present.sum()), 1)
    rows = np.full((len(present), width), np.nan, np.float32)
    rows[present] = values.reshape(-1, width) if width else 0
    return rows
