"""A run that stays loaded: answers in order, texts that are refused, programs that end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import polysift
from polysift import data
from polysift.data import Scorer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SAMPLE = Path(__file__).parents[1] / "sample/small"
ENGLISH = pq.read_table(SAMPLE / "corpus/eng_Latn/000_00000.parquet")
SETTINGS = f"""
[input]
files = ["{SAMPLE}/corpus/{{lang}}/*.parquet"]
[encoder]
model = "none"
[heads.chance]
kind = "random"
[heads.trust]
kind = "column"
score = "language_score"
[heads.words]
kind = "fasttext"
train = ["{SAMPLE}/labelled/quality/{{lang}}.jsonl.zst"]
[languages.eng_Latn]
retention = {{ words = 0.3 }}
"""
HEADS = ["chance", "trust", "words"]
COLUMNS = [*(f"{head}_score" for head in HEADS), "verdict", "reason"]
LOADED = """read line; echo '{"polysift_line": 0, "polysift_answer": {"scores": {}}}'"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with heads that need no encoder."""
    folder = tmp_path_factory.mktemp("loaded")
    (folder / "run.toml").write_text(SETTINGS)
    command = [polysift.binary(), "run", "--config", folder / "run.toml", "--run", folder / "run"]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "run"


@pytest.fixture(scope="module")
def scorer(run: Path) -> Iterator[Scorer]:
    """Return a scorer that all tests share: none may leave anything behind."""
    with Scorer(run) as opened:
        yield opened


def test_scores_and_verdicts_are_those_of_the_run(run: Path, scorer: Scorer) -> None:
    given = ENGLISH.to_pydict()
    trust = {"language_score": given["language_score"]}
    table = scorer.score(given["text"], ["eng_Latn"] * len(ENGLISH), given["id"], trust)
    assert table.column_names == COLUMNS
    for head in HEADS:
        stored = pa.Table.from_batches(data.scores(run, head)).to_pylist()
        of_english = {row["id"]: row["score"] for row in stored if row["language"] == "eng_Latn"}
        assert dict(zip(given["id"], table[f"{head}_score"].to_pylist(), strict=True)) == of_english
    exported = pq.read_table(run / "export/eng_Latn")["id"].to_pylist()
    verdicts = ["kept" if name in exported else "removed" for name in given["id"]]
    assert table["verdict"].to_pylist() == verdicts
    assert set(table["reason"].to_pylist()) == {None, "words"}


def test_many_texts_of_a_generator_are_answered_in_order(scorer: Scorer) -> None:
    number = 20_000
    texts = ("a text that fills the pipes in time " * 20 for _ in range(number))
    table = scorer.score(texts, ["swe_Latn"] * number, columns={"language_score": range(number)})
    assert table["trust_score"].to_pylist() == list(range(number))


def test_a_text_that_is_refused_is_a_row_with_the_reason(scorer: Scorer) -> None:
    texts = ["x \ud800", "good", "bad", None, "a\nb\r\u2028", "last"]
    languages = [*["eng_Latn"] * 5, None]
    table = scorer.score(texts, languages, columns={"language_score": [1, 2, "much", 4, 5, 6]})
    assert table["trust_score"].to_pylist() == [None, 2, None, None, 5, None]
    refused = [verdict == "rejected" for verdict in table["verdict"].to_pylist()]
    assert refused == [True, False, True, False, False, True]
    reasons = table["reason"].to_pylist()
    assert "UTF-8" in reasons[0]
    assert "much" in reasons[2]
    assert reasons[3] == "no_text"
    assert reasons[5] == "has no language"


def test_languages_are_those_of_the_texts_or_of_the_scorer(run: Path, scorer: Scorer) -> None:
    table = scorer.score(["one", "ett"], ["eng_Latn", "swe_Latn"])
    assert table["verdict"].to_pylist() == ["removed", None]
    with Scorer(run, language="eng_Latn") as english:
        assert english.score(["one"], ["swe_Latn"])["verdict"].to_pylist() == ["removed"]
    with Scorer(run, args=['--set=input.language={column="lang"}']) as named:
        table = named.score(["one", "one"], columns={"lang": ["eng_Latn", None]})
        assert table["verdict"].to_pylist() == ["removed", "rejected"]
        assert named.score([]).num_rows == 0


@pytest.mark.parametrize("missing", [None, np.nan, float("nan"), pd.NA])
def test_nan_is_no_text_and_no_value(scorer: Scorer, missing: object) -> None:
    languages = ["eng_Latn"] * 3
    for texts in (["a", missing, "b"], pd.Series(["a", missing, "b"]), np.array(["a", missing, "b"], object)):
        table = scorer.score(texts, languages)
        assert table["reason"].to_pylist()[1] == "no_text"
        assert "rejected" not in table["verdict"].to_pylist()
    for values in ([1.5, missing, 2], pd.Series([1.5, missing, 2], dtype=object)):
        table = scorer.score(["a", "b", "c"], languages, columns={"language_score": values})
        assert table["trust_score"].to_pylist() == [1.5, None, 2]
    nested = {"meta": [{"a": [missing]}, (missing,), missing]}
    assert "rejected" not in scorer.score(["a", "b", "c"], languages, columns=nested)["verdict"].to_pylist()


def test_wrong_arguments_leave_the_scorer_as_it_was(scorer: Scorer) -> None:
    def broken() -> Iterator[str]:
        yield "a text"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        scorer.score(broken())
    with pytest.raises(ValueError, match="shorter"):
        scorer.score(["a", "b"], ["eng_Latn"])
    with pytest.raises(TypeError, match="not JSON serializable"):
        scorer.score(["a"], columns={"language_score": [{1}]})
    with pytest.raises(TypeError, match="language is one text"):
        scorer.score(["a"], "eng_Latn")
    with pytest.raises(TypeError, match="text is None"):
        scorer.score(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="text is None"):
        scorer.score(None, ids=["1"])  # type: ignore[arg-type]
    assert scorer.score([]).column_names == COLUMNS
    assert scorer.score(iter(["a"])).num_rows == 1


def test_a_generator_cannot_call_the_scorer_that_consumes_it(run: Path) -> None:
    raised: list[BaseException] = []

    def nested(scorer: Scorer) -> Iterator[str]:
        yield "a"
        yield scorer.score(["b"])["verdict"][0].as_py()

    def call(scorer: Scorer) -> None:
        try:
            scorer.score(nested(scorer), ["eng_Latn"] * 2)
        except RuntimeError as error:
            raised.append(error)

    with Scorer(run) as scorer:
        thread = threading.Thread(target=call, args=[scorer], daemon=True)
        thread.start()
        thread.join(60)
        if thread.is_alive():
            scorer._process.kill()  # noqa: SLF001 (or the test would hang)
        assert "give it another scorer" in str(raised[0])
        assert scorer.score(["a"], ["eng_Latn"]).num_rows == 1
        with Scorer(run, language="eng_Latn") as other:
            assert scorer.score(nested(other), ["eng_Latn"] * 2).num_rows == 2


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_cannot_use_the_scorer(run: Path) -> None:
    context = multiprocessing.get_context("fork")
    told = context.SimpleQueue()

    def child(scorer: Scorer) -> None:
        try:
            with scorer:
                scorer.score(["a"], ["eng_Latn"])
        except RuntimeError as error:
            told.put(str(error))

    with Scorer(run) as scorer:
        process = context.Process(target=child, args=[scorer], daemon=True)
        process.start()
        process.join(60)
        process.kill()
        assert process.exitcode == 0
        assert told.get() == f"this scorer belongs to process {os.getpid()}; make a scorer in each process"
        assert scorer.score(["a"], ["eng_Latn"]).num_rows == 1


def test_a_program_that_ends_is_an_error_with_its_last_lines(
    stand_in: Callable[[str], Path], tmp_path: Path
) -> None:
    with pytest.raises(polysift.PermanentError, match="is not a run directory"):
        Scorer(tmp_path / "nowhere")
    program = stand_in(f"{LOADED}; read line; echo error: the GPU has failed >&2; exit 71")
    with Scorer("run", binary=program) as scorer:
        with pytest.raises(polysift.TransientError, match="the GPU has failed") as raised:
            scorer.score("a text" for _ in range(100_000))
        assert raised.value.code == 71
        with pytest.raises(ValueError, match="closed"):
            scorer.score(["a text"])


def test_an_answer_that_is_none_ends_the_program(stand_in: Callable[[str], Path]) -> None:
    program = stand_in(f"{LOADED}; read line; echo '{{'; exec sleep 600")
    with Scorer("run", binary=program) as scorer, pytest.raises(ValueError, match="Expecting"):
        scorer.score(["a text"])


def test_an_interrupt_ends_the_program(run: Path) -> None:
    def interrupted() -> Iterator[str]:
        yield "a text"
        os.kill(os.getpid(), signal.SIGINT)
        yield from ("a text" for _ in range(1_000_000))

    with Scorer(run) as scorer:
        with pytest.raises(KeyboardInterrupt):
            scorer.score(interrupted())
        with pytest.raises(ValueError, match="closed"):
            scorer.score(["a text"])
