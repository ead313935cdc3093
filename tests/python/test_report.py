"""The numbers of a report, recomputed with DuckDB and numpy from the corpus and the export."""

from __future__ import annotations

import json
import math
import subprocess
import unicodedata
from pathlib import Path

import duckdb
import numpy as np
import pytest
import tldextract

import polysift

CORPUS = Path(__file__).parents[1] / "sample" / "corpus"
# How Unicode names the letters of scripts without spaces that the corpus has.
ALONE = ("BOPOMOFO", "CJK", "HIRAGANA", "IDEOGRAPHIC", "KATAKANA")
SETTINGS = f"""
[input]
files = ["{CORPUS}/{{lang}}/*.parquet"]
[encoder]
model = "none"
[heads.chance]
kind = "random"
[heads.copies]
kind = "column"
score = "minhash_cluster_size"
[languages._default]
retention = {{ chance = [0.1, 0.3] }}
removal = {{ copies = 0.05 }}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of the sample corpus with two heads that need no encoder, and its report."""
    folder = tmp_path_factory.mktemp("reported")
    (folder / "run.toml").write_text(SETTINGS)
    command = [polysift.binary(), "run", "--config", folder / "run.toml", "--run", folder / "run"]
    subprocess.run(command, check=True, capture_output=True)
    subprocess.run([polysift.binary(), "report", folder / "run"], check=True, capture_output=True)
    return folder / "run"


def words(text: str) -> int:
    """Count what white space parts; within it each Chinese letter, and what has letters between them."""
    count = 0
    for part in text.split():
        alone = [c.isalnum() and unicodedata.name(c, "").startswith(ALONE) for c in part]
        between = "".join(" " if is_alone else c for c, is_alone in zip(part, alone, strict=True)).split()
        count += sum(alone) + sum(any(map(str.isalnum, rest)) for rest in between) if any(alone) else 1
    return count


def near(found: float, wanted: float) -> None:
    """Hold a number of the report, which has seven digits, against one of ours."""
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-9)


def test_numbers_are_those_of_the_corpus_and_of_the_export(run: Path) -> None:
    report = json.loads((run / "report" / "report.json").read_text())
    suffixes = tldextract.TLDExtract(suffix_list_urls=())
    codes = sorted({path.parent.name for path in CORPUS.glob("*/*.parquet")})
    assert [entry["language"] for entry in report["languages"]] == codes
    for entry in report["languages"]:
        code = entry["language"]
        corpus, export = (f"{folder}/{code}/*.parquet" for folder in (CORPUS, run / "export"))
        rows = duckdb.sql(
            """select c.text, c.url, if(c.text similar to '\\s*', 0, strlen(c.text)) as bytes,
               c.minhash_cluster_size as copies, e.chance_retention as rate
               from read_parquet($corpus) c left join read_parquet($export) e using (id)""",
            params={"corpus": corpus, "export": export},
        ).fetchnumpy()
        # Blank texts are none.
        size, rate = np.ma.filled(rows["bytes"], 0), np.ma.filled(rows["rate"].astype(float), np.inf)
        assert entry["documents"] == len(size)
        assert entry["bytes"] == size.sum()
        texts = [text for text in rows["text"] if text and text.strip()]
        # Heads of rows score documents with text.
        scores = np.array([c for c, t in zip(rows["copies"], rows["text"], strict=True) if t and t.strip()])
        found = entry["scores"]["copies"]
        assert (found["n"], found["min"], found["max"]) == (len(scores), scores.min(), scores.max())
        near(found["mean"], scores.mean())
        near(found["std"], scores.std())
        for percent, value in found["quantiles"].items():
            near(value, np.quantile(scores, float(percent) / 100, method="inverted_cdf"))
        assert sum(found["bins"]["counts"]) == len(scores)
        assert len(found["bins"]["counts"]) == min(200, math.ceil(round(2 * len(scores) ** (1 / 3), 9)))
        # Of the copies, of which many are equal, the fewest go; hashes choose those at the cut.
        removal = next(row for row in entry["thresholds"] if row["kind"] == "removal")
        removed = removal["candidates"]["documents"] - removal["kept"]["documents"]
        edge = np.sort(scores)[removed - 1]
        dropped = removed - int((scores < edge).sum())
        assert removal["tied"] == {"kept": int((scores == edge).sum()) - dropped, "dropped": dropped}
        for name, selected in entry["selected"].items():
            kept = rate <= float(name.split("=")[1])
            assert (selected["documents"], selected["bytes"]) == (kept.sum(), size[kept].sum()), name
            lengths = {
                "all": texts,
                name: [t for t, is_kept in zip(rows["text"], kept, strict=True) if is_kept],
            }
            for group, of in lengths.items():
                own = entry["length"][group]
                assert own["documents"] == len(of)
                for measure, length in {"words": words, "characters": len}.items():
                    values = np.array([length(text) for text in of])
                    near(own[measure]["mean"], values.mean())
                    near(own[measure]["std"], values.std())
                    near(own[measure]["median"], np.median(values))
        domains: dict[str, int] = {}
        for url, text in zip(rows["url"], rows["text"], strict=True):
            if url and text and text.strip():
                domain = suffixes(url).top_domain_under_public_suffix or url.split("/")[2]
                domain = domain.encode().decode("idna")
                domains[domain] = domains.get(domain, 0) + 1
        named = {row["domain"]: row["documents"] for row in entry["domains"] if row["domain"] != "(others)"}
        assert {domain: domains.get(domain) for domain in named} == named
        assert sum(row["documents"] for row in entry["domains"]) == sum(domains.values())
