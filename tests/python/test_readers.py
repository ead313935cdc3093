"""Exports, removed documents and mixtures in five readers, with values around the sizes of the writer."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import duckdb
import fastparquet
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import polysift

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
SIZES = [MIB // 4, MIB - 5, MIB - 1, MIB, MIB + 1, 2 * MIB]
SETTINGS = """
[input]
files = ["corpus/*.parquet"]
language = "eng_Latn"
[encoder]
model = "none"
[heads.chance]
kind = "random"
[languages._default]
retention = { chance = 0.6 }
[export]
keep_removed = true
row_group_mb = 8
"""
MIXTURE = """
count = "bytes"
[[source]]
name = "a"
files = ["run/export/*.parquet"]
epochs = 1
"""


def table(first: int) -> pa.Table:
    """Return documents of which the first has `first` bytes, with columns of several types."""
    draw = np.random.default_rng(first)
    sizes = [first, *draw.choice([*SIZES, 50, 5000], 12).tolist()]
    letters = "".join(draw.choice(list("abcdefghijklmnop  "), 1 << 15).tolist())
    texts = [f"{i:08} {letters * (size // len(letters) + 1)}"[:size] for i, size in enumerate(sizes)]
    some = [None if i % 4 == 0 else text for i, text in enumerate(texts)]
    columns = {
        "id": [f"{first}-{i}" for i in range(len(sizes))],
        "text": texts,
        "word": pa.array(some).dictionary_encode(),
        "raw": pa.array([text and text.encode() for text in some], pa.binary()),
        "meta": [{"text": text, "n": i} for i, text in enumerate(some)],
        "list": [[text, None] if text else None for text in some],
    }
    return pa.table(columns)


def test_five_readers_find_all_rows(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    for size in SIZES:
        pq.write_table(table(size), tmp_path / f"corpus/{size}.parquet")
    (tmp_path / "run.toml").write_text(SETTINGS)
    (tmp_path / "mix.toml").write_text(MIXTURE)
    for command in ("run -c run.toml --run run", "mix -c mix.toml --out mixed"):
        arguments = [polysift.binary(), *command.split()]
        subprocess.run(arguments, check=True, capture_output=True, cwd=tmp_path)
    folders = [tmp_path / folder for folder in ("run/export", "run/removed", "mixed")]
    files = [path for folder in folders for path in folder.rglob("*.parquet") if "_state" not in path.parts]
    assert len(files) > len(SIZES) + 1
    for path in files:
        rows = pq.read_metadata(path).num_rows
        for name in pq.read_schema(path).names:
            assert pq.read_table(path, columns=[name]).num_rows == rows, (path, name)
        texts = pq.read_table(path)["text"].to_pylist()
        assert texts == pl.read_parquet(path)["text"].to_list()
        assert texts == duckdb.read_parquet(str(path)).df()["text"].tolist()
        assert texts == pd.read_parquet(path)["text"].tolist()
        found = fastparquet.ParquetFile(str(path)).to_pandas(columns=["text"])
        assert texts == found["text"].tolist()
