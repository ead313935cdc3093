"""Embeddings and scores of texts at hand, and those of a run, as NumPy arrays and Arrow data.

Needs numpy and pyarrow: ``pip install 'polysift[data]'``.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from polysift._run import run_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from polysift._run import StrPath, Writer


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
        blocks = [_first_chunks(batch.column("embeddings")) for batch in embeddings(run)]
    width = max((block.shape[1] for block in blocks), default=0)
    empty = np.zeros((0, width), np.float32)
    return np.concatenate([empty, *(_as_wide(block, width) for block in blocks)])


def _column(texts: Iterable[str | None]) -> pa.StringArray:
    """The texts as a column; a text alone would be one for each of its characters."""
    if isinstance(texts, (str, bytes)):
        raise TypeError("texts is one text; give a list of texts: [text]")
    return pa.array(texts, pa.string())


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


def _first_chunks(column: pa.ListArray) -> npt.NDArray[np.float32]:
    """Rows of one list of numbers each, or null, as a matrix with NaN for null."""
    present = np.asarray(pc.greater(pc.fill_null(pc.list_value_length(column), 0), 0))
    values = column.flatten().flatten().to_numpy(zero_copy_only=False)
    width = len(values) // max(int(present.sum()), 1)
    rows = np.full((len(column), width), np.nan, np.float32)
    rows[present] = values.reshape(-1, width) if width else 0
    return rows


def _as_wide(block: npt.NDArray[np.float32], width: int) -> npt.NDArray[np.float32]:
    """Blocks in which no row has numbers know no width."""
    return block if block.shape[1] == width else np.full((len(block), width), np.nan, np.float32)
