"""Make the sample corpus of this directory from a directory of labelled multilingual text.

Usage: make_sample.py DATA_DIR OUT_DIR

The result depends only on the data: every draw is seeded. All rows come from the part of the data
that the bundled encoder has not been trained on (see models/polysift-mini/corpora.py).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "models" / "polysift-mini"))
from corpora import (  # noqa: E402
    SETS, WEB_ROLES, Row, cut, held_out, matched_pairs, read_all, sections, unit_hash, with_text,
)

SEED = 2025
LANGUAGES = ("arb_Arab", "cmn_Hani", "deu_Latn", "eng_Latn", "fra_Latn", "spa_Latn", "swe_Latn")
JSONL_LANGUAGE = "swe_Latn"
TWO_FILE_LANGUAGE = "fra_Latn"
ODD_TEXTS = {TWO_FILE_LANGUAGE: (None, "", " \n\t "), JSONL_LANGUAGE: (None, "", "\u00a0 \n")}

CORPUS_SHARE = 0.5
DOCUMENT_LIMIT = 6_000
SECTION_LIMIT = 1_300
WEB_ROWS, KNOWLEDGE_ROWS, TOXIC_ROWS = 240, 60, 40
QUALITY_PAIRS, QUALITY_CHARS = 200, 1_200
TOXICITY_PAIRS = 200
ZSTD_LEVEL = 19
# What `make run` takes: the first rows of some languages, as their order is random.
SMALL_LANGUAGES = ("arb_Arab", "cmn_Hani", "eng_Latn", "swe_Latn")
SMALL_DOCUMENTS, SMALL_PAIRS = 60, 40

SCHEMA = pa.schema([
    ("text", pa.string()), ("id", pa.string()), ("dump", pa.string()), ("url", pa.string()),
    ("date", pa.string()), ("file_path", pa.string()), ("language", pa.string()),
    ("language_score", pa.float64()), ("language_script", pa.string()),
    ("minhash_cluster_size", pa.int64()), ("top_langs", pa.string()),
])


def split_long(row: Row) -> list[Row]:
    """A crawled page stays whole; long articles and lessons become sections."""
    if SETS[row.set_name].role == "web":
        return [with_text(row, cut(row.text, DOCUMENT_LIMIT))]
    parts = sections(row.text, SECTION_LIMIT)
    return [with_text(row, cut(part, DOCUMENT_LIMIT)) for part in parts if len(part) >= 40]


def draw(rows: list[Row], count: int, salt: str) -> list[Row]:
    """``count`` rows in a seeded random order."""
    rows = sorted(rows, key=lambda row: (row.source, row.id, row.text))
    random.Random(f"{SEED}/{salt}").shuffle(rows)
    return rows[:count]


def draw_evenly(rows: list[Row], count: int, salt: str) -> list[Row]:
    """``count`` rows that take turns between the sets, so that no large set crowds out others."""
    by_set: dict[str, list[Row]] = {}
    for row in draw(rows, len(rows), salt):
        by_set.setdefault(row.set_name, []).append(row)
    turns = [by_set[name] for name in sorted(by_set)]
    picked: list[Row] = []
    while len(picked) < count and any(turns):
        picked.extend(queue.pop() for queue in turns if queue)
    return picked[:count]


def in_corpus(row: Row) -> bool:
    """Whether a held-out group belongs to the unlabelled corpus or to the labelled sets."""
    return unit_hash(row.group, "sample-role") < CORPUS_SHARE


def is_knowledge(row: Row) -> bool:
    """Knowledge-rich text; Swedish has too little and adds science and geography sentences."""
    if row.set_name == "sib200":
        topics = ("science/technology", "geography")
        return row.language == "swe_Latn" and row.label in topics
    return SETS[row.set_name].role == "knowledge"


def is_web(row: Row) -> bool:
    """Web-like text: crawled pages where there are any, else news and web articles."""
    return SETS[row.set_name].role in WEB_ROLES


def is_toxicity(row: Row) -> bool:
    """Row of a set with toxicity labels."""
    return SETS[row.set_name].role == "toxicity"


def corpus_rows(rows: list[Row], language: str) -> list[Row]:
    """The unlabelled documents of one language, shuffled."""
    pool = [part for row in rows if in_corpus(row) for part in split_long(row)]
    toxic = [row for row in pool if is_toxicity(row) and row.label == 1]
    picked = draw([row for row in pool if is_web(row)], WEB_ROWS, f"{language}/web")
    picked += draw_evenly([row for row in pool if is_knowledge(row)], KNOWLEDGE_ROWS,
                          f"{language}/knowledge")
    picked += draw_evenly(toxic, TOXIC_ROWS, f"{language}/toxic")
    return draw(picked, len(picked), f"{language}/corpus")


def unique_ids(rows: list[Row]) -> list[str]:
    """``SET.LANG/ORIGINAL_ID#N``: N counts the pieces of one original row."""
    seen: dict[str, int] = {}
    ids = []
    for row in rows:
        base = f"{row.source}/{row.id}"
        ids.append(f"{base}#{seen.setdefault(base, 0)}")
        seen[base] += 1
    return ids


def fineweb_record(text: str | None, row_id: str, language: str, source: str) -> dict:
    """One row in the flat FineWeb-2 layout; what is not known of a document stays null."""
    set_name = source.split(".")[0]
    code, script = language.split("_")
    origin = SETS[set_name].origin if set_name in SETS else None
    return {
        "text": text, "id": row_id, "dump": set_name,
        "url": f"https://github.com/{origin}" if origin else None, "date": None,
        "file_path": source, "language": code, "language_score": 1.0, "language_script": script,
        "minhash_cluster_size": 1, "top_langs": json.dumps({f"{language}_score": 1.0}),
    }


def corpus_records(rows: list[Row], language: str) -> list[dict]:
    """FineWeb-2 records of one language, deliberately odd rows included."""
    records = [fineweb_record(row.text, row_id, language, row.source)
               for row, row_id in zip(rows, unique_ids(rows), strict=True)]
    for number, text in enumerate(ODD_TEXTS.get(language, ())):
        odd = fineweb_record(text, f"odd.{language}/{number}#0", language, f"odd.{language}")
        records.insert((number + 1) * len(records) // 4, odd)
    return records


def quality_pairs(rows: list[Row], language: str) -> list[tuple[Row, Row]]:
    """Knowledge-rich and web-like texts of pairwise equal length."""
    pool = [part for row in rows if not in_corpus(row) for part in split_long(row)]
    positives = draw_evenly([row for row in pool if is_knowledge(row)], QUALITY_PAIRS,
                            f"{language}/positive")
    negatives = [row for row in pool if is_web(row)]
    crawled = [row for row in negatives if SETS[row.set_name].role == "web"]
    enough = len(crawled) * 3 >= len(positives)
    negatives = draw(crawled if enough else negatives, len(pool), f"{language}/negative")
    return matched_pairs(positives, negatives, QUALITY_CHARS)


def toxicity_pairs(rows: list[Row], language: str) -> list[tuple[Row, Row]]:
    """Toxic texts beside as many non-toxic ones, half from the same sets and half web text."""
    pool = [row for row in rows if not in_corpus(row)]
    labelled = [row for row in pool if is_toxicity(row)]
    toxic = draw_evenly([row for row in labelled if row.label == 1], TOXICITY_PAIRS,
                        f"{language}/toxic")
    same_set = draw_evenly([row for row in labelled if row.label == 0], len(toxic) // 2,
                           f"{language}/nontoxic")
    web = draw([row for row in pool if is_web(row)], len(pool), f"{language}/nontoxic-web")
    web = [with_text(row, cut(row.text, max(20, len(bad.text))))
           for row, bad in zip(web, toxic[len(same_set):], strict=False)]
    return list(zip(toxic, same_set + web, strict=False))


def labelled_records(pairs: list[tuple[Row, Row]], names: tuple[str, str]) -> list[dict]:
    """Labelled rows of both classes, interleaved pair by pair."""
    rows = [row for pair in pairs for row in pair]
    labels = [name for _ in pairs for name in names]
    return [{"id": row_id, "text": row.text, "label": label, "source": row.source,
             "language": row.language}
            for row, row_id, label in zip(rows, unique_ids(rows), labels, strict=True)]


def write_jsonl_zst(path: Path, records: list[dict]) -> None:
    """JSON lines in one zstd frame."""
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    path.parent.mkdir(parents=True, exist_ok=True)
    codec = pa.Codec("zstd", compression_level=ZSTD_LEVEL)
    path.write_bytes(codec.compress(lines.encode("utf-8"), asbytes=True))


def write_parquet(path: Path, records: list[dict]) -> None:
    """One zstd Parquet file with the exact FineWeb-2 types."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(records, schema=SCHEMA)
    pq.write_table(table, path, compression="zstd", compression_level=ZSTD_LEVEL)


def write_corpus(out_dir: Path, language: str, records: list[dict]) -> None:
    """The unlabelled files of one language."""
    folder = out_dir / "corpus" / language
    if language == JSONL_LANGUAGE:
        write_jsonl_zst(folder / "000_00000.jsonl.zst", records)
        return
    files = 2 if language == TWO_FILE_LANGUAGE else 1
    size = -(-len(records) // files)
    for number in range(files):
        part = records[number * size:(number + 1) * size]
        write_parquet(folder / f"{number:03d}_00000.parquet", part)


def write_language(out_dir: Path, language: str, corpus: list[dict],
                   labelled: dict[str, list[dict]]) -> None:
    """The documents and the labelled rows of one language."""
    write_corpus(out_dir, language, corpus)
    for name, records in labelled.items():
        if records:
            write_jsonl_zst(out_dir / "labelled" / name / f"{language}.jsonl.zst", records)


def make_language(rows: list[Row], language: str, out_dir: Path) -> str:
    """Write all files of one language and say what they hold."""
    corpus = corpus_records(corpus_rows(rows, language), language)
    labelled = {
        "quality": labelled_records(quality_pairs(rows, language), ("positive", "negative")),
        "toxicity": labelled_records(toxicity_pairs(rows, language), ("toxic", "nontoxic")),
    }
    write_language(out_dir, language, corpus, labelled)
    if language in SMALL_LANGUAGES:
        first = {name: records[:2 * SMALL_PAIRS] for name, records in labelled.items()}
        write_language(out_dir / "small", language, corpus[:SMALL_DOCUMENTS], first)
    counts = " ".join(f"{name} {len(records)}" for name, records in labelled.items())
    return f"{language} corpus {len(corpus)} {counts}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data_dir", type=Path, help="directory of SET.LANG.jsonl.zst files")
    parser.add_argument("out_dir", type=Path, help="directory to write corpus/ and labelled/ into")
    args = parser.parse_args()
    rows = [row for row in read_all(args.data_dir) if held_out(row.set_name, row.group)]
    for language in LANGUAGES:
        print(make_language([row for row in rows if row.language == language], language,
                            args.out_dir))


if __name__ == "__main__":
    main()
