"""Embeddings and scores as arrays, beside what the commands store."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import polysift
from polysift import data

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "tests/sample"
SETTINGS = {"encoder.precision": "f32", "encoder.device": "cpu"}
TEXTS = pq.read_table(SAMPLE / "corpus/fra_Latn/000_00000.parquet").column("text").to_pylist()[:40]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of a French file, with a head."""
    folder = tmp_path_factory.mktemp("data")
    command: list[str | Path] = [
        *(polysift.binary(), "run", SAMPLE / "corpus/fra_Latn/000_00000.parquet", "--language", "fra_Latn"),
        *("--run", folder / "run", "--train-on", f"quality={SAMPLE}/labelled/quality/{{lang}}.jsonl.zst"),
        *("--retention", "quality=0.1", "--precision", "f32", "--device", "cpu", "--chunks", "first"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "run"


def test_embeddings_are_those_of_a_run(run: Path) -> None:
    rows = [row for batch in data.embeddings(run) for row in batch.to_pylist()]
    assert len(rows) == 172
    found = data.embed(TEXTS, settings=SETTINGS)
    assert found.shape == (40, 384)
    assert found.dtype == np.float32
    for row, expected in zip(found, rows, strict=False):
        if expected["embeddings"]:
            assert row.tolist() == expected["embeddings"][0]
        else:
            assert np.isnan(row).all()


def test_a_directory_is_an_encoder_and_rows_without_text_are_nan() -> None:
    folder = ROOT / "tests/golden/encoder/head16-prefixed"
    found = data.embed(["knowledge", None, " \n", "web"], model=folder, settings=SETTINGS)
    assert found.shape == (4, json.loads((folder / "config.json").read_text())["hidden_size"])
    assert np.isnan(found).any(axis=1).tolist() == [False, True, True, False]


def test_the_example_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/python.md").read_text()
    names: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)  # noqa: S102 (our own page)
    table = names["table"]
    assert len(table) == 170
    assert table["quality_score"].head(10).min() > table["quality_score"].tail(10).max()


def test_scores_are_those_of_a_run(run: Path) -> None:
    head = run / "heads/quality/{lang}.safetensors"
    table = data.score(TEXTS, {"quality": head}, language="fra_Latn", settings=SETTINGS)
    assert table.column_names == ["quality_score", "quality_logit"]
    rows = [row for batch in data.scores(run, "quality") for row in batch.to_pylist()]
    assert table.column("quality_score").to_pylist() == [row["score"] for row in rows[:40]]
    assert table.column("quality_logit").to_pylist() == [row["logit"] for row in rows[:40]]
    with data.Scorer(run) as scorer:
        assert scorer.score(TEXTS).column("quality_score") == table.column("quality_score")


def test_no_texts_are_no_rows(run: Path) -> None:
    assert data.embed([], settings=SETTINGS).shape[0] == 0
    assert data.embed([None], settings=SETTINGS).shape[0] == 1
    head = {"quality": run / "heads/quality/{lang}.safetensors"}
    for texts in ([], [None]):
        table = data.score(texts, head, language="fra_Latn", settings=SETTINGS)
        assert table.column("quality_score").to_pylist() == texts


def test_the_first_chunk_of_several_is_taken() -> None:
    texts = ["knowledge " * 1_000, None, "web", " "]
    expected = data.embed(texts, settings=SETTINGS)
    for settings in ({"encoder.chunks": "all"}, {"encoder": {"chunks": "all"}}):
        found = data.embed(texts, settings={**SETTINGS, **settings})
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.isnan(expected).any(axis=1).tolist() == [False, True, False, True]


def test_an_empty_table_takes_nothing_away() -> None:
    model = ROOT / "tests/golden/encoder/head16-prefixed"
    expected = data.embed(["web"], model=model, settings=SETTINGS)
    found = data.embed(["web"], model=model, settings={**SETTINGS, "encoder": {}, "parts": {}})
    assert found.tolist() == expected.tolist()


def test_texts_that_the_program_sets_aside_are_an_error(run: Path) -> None:
    settings = {**SETTINGS, "input": {"max_rejects": 20, "max_document_bytes": 50}}
    head = {"quality": run / "heads/quality/{lang}.safetensors"}
    texts = ["a", "x" * 100, None, "b", "y" * 100]
    with pytest.raises(ValueError, match=r"set 2 of 5 texts aside, those with index 1, 4$"):
        data.embed(texts, settings=settings)
    with pytest.raises(ValueError, match=r"set 2 of 5 texts aside, those with index 1, 4$"):
        data.score(texts, head, language="fra_Latn", settings=settings)
    with pytest.raises(ValueError, match=r"set 12 of 12 texts aside, those with index 0, 1, .* 9, \.\.\.$"):
        data.embed(["x" * 100] * 12, settings=settings)
    assert data.embed(["a", None], settings=settings).shape == (2, 384)
    assert data.score(["a", None], head, language="fra_Latn", settings=settings).num_rows == 2


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(polysift.PermanentError, match="no-such-model"):
        data.embed(["text"], model=tmp_path / "no-such-model", settings=SETTINGS)
    with pytest.raises(TypeError, match="give a list of texts"):
        data.embed("one text", settings=SETTINGS)
    with pytest.raises(TypeError, match="give a list of texts"):
        data.score("one text", {"q": tmp_path / "q.safetensors"})
    with pytest.raises(TypeError, match="texts is None"):
        data.embed(None, settings=SETTINGS)  # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        data.embed(["\ud800"], settings=SETTINGS)
    with pytest.raises(FileNotFoundError, match="has not run"):
        list(data.scores(tmp_path, "quality"))
