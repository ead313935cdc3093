"""Goldens of the stored and exported files, and a check of exported files with other readers.

    export.py generate tests/golden/export      # torch rounds, pyarrow writes
    export.py check FILE...                     # pyarrow, pandas, polars, duckdb, datasets read

`check` reads each file with every reader and compares what they see with pyarrow: the names of
the columns, the number of rows, the texts, and the embeddings bit for bit.
"""

import argparse
import json
import pathlib
import sys

import numpy as np

HIDDEN_SIZE = 16


def rounding(out: pathlib.Path) -> None:
    """f32 bit patterns and what torch makes of them in bf16 and f16."""
    import torch

    rng = np.random.default_rng(0)
    edges = []
    for exponent in [0, 1, 2, 102, 103, 111, 112, 113, 126, 127, 128, 141, 142, 143, 253, 254, 255]:
        for mantissa in [0, 1, 0x7FFFFF, 0x7FFFFE, 0x400000]:
            edges.append(exponent << 23 | mantissa)
        # Ties and their neighbours: the highest dropped bit of bf16 is bit 15, of f16 bit 12.
        for tie in [0x8000, 0x18000, 0x1000, 0x3000, 0x7F8000, 0x7FF000]:
            edges += [exponent << 23 | tie + delta for delta in (-1, 0, 1)]
    edges = np.array(edges, dtype=np.uint32)
    edges = np.concatenate([edges, edges | 0x80000000])
    bits = np.unique(np.concatenate([edges, rng.integers(0, 2**32, 600, dtype=np.uint32)]))
    values = torch.from_numpy(bits.view(np.float32).copy())
    golden = {
        "input": bits,
        "bf16_in_f32": values.bfloat16().float().numpy().view(np.uint32),
        "f16": values.half().float().numpy().view(np.uint32),
    }
    text = json.dumps({key: array.tolist() for key, array in golden.items()}, separators=(",", ":"))
    (out / "rounding.json").write_text(text + "\n")


def documents() -> list[dict]:
    """Rows in the flat FineWeb2-HQ layout; all floats are short binary fractions."""
    texts = ["Guten Tag, Welt.", "", "日本語のテキスト🙂", "a\n\tb", "z" * 500, "éé"]
    rows = []
    for i, text in enumerate(texts):
        num_chunks = [1, 0, 2, 1, 3, 1][i]
        vectors = [
            [(c + 1) * (d - 7) / 64 for d in range(HIDDEN_SIZE)] for c in range(num_chunks)
        ]
        rows.append({
            "text": text,
            "id": f"<urn:uuid:{i:08d}>",
            "date": "2014-03-11T09:21:33Z",
            "dump": "CC-MAIN-2014-10",
            "embeddings": vectors or None,
            "file_path": f"s3://commoncrawl/{i}.warc.gz",
            "language": "deu",
            "language_score": 0.998046875 - i / 128,
            "language_script": "Latn",
            "minhash_cluster_size": i + 1,
            "top_langs": json.dumps({"deu_Latn_score": 0.5}),
            "url": f"https://example.org/{i}",
            "quality_score": 0.0625 * i,
        })
    return rows


def tables(out: pathlib.Path) -> None:
    """The published layout (flat) and that of the published code (text, id, metadata)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = documents()
    types = {"minhash_cluster_size": pa.int64(), "language_score": pa.float64(),
             "quality_score": pa.float64(), "embeddings": pa.list_(pa.list_(pa.float64()))}
    fields = [(name, types.get(name, pa.string())) for name in rows[0]]
    notes = {"huggingface": "{}", "pandas": "{}"}
    flat = pa.Table.from_pylist(rows, schema=pa.schema(fields, metadata=notes))
    pq.write_table(flat, out / "fineweb2_hq.parquet", compression="zstd", row_group_size=4)

    nested = [{"text": row.pop("text"), "id": row.pop("id"), "metadata": row} for row in documents()]
    nested[3]["metadata"] = None
    inner = [field for field in fields if field[0] not in ("text", "id")]
    schema = pa.schema([("text", pa.string()), ("id", pa.string()), ("metadata", pa.struct(inner))])
    table = pa.Table.from_pylist(nested, schema=schema)
    pq.write_table(table, out / "datatrove.parquet", compression="zstd")

    expected = {"fineweb2_hq": flat.to_pylist(), "datatrove": table.to_pylist()}
    text = json.dumps(expected, ensure_ascii=False, separators=(",", ":"))
    (out / "expected.json").write_text(text + "\n")


def column(rows: list[dict], name: str):
    """The column `name`, at the top or in `metadata`."""
    return [row[name] if name in row else row["metadata"][name] for row in rows]


def plain(vectors):
    """Embeddings as nested lists of Python floats."""
    if vectors is None:
        return None
    return [[float(value) for value in chunk] for chunk in vectors]


def readers() -> dict:
    """Functions from a path to the rows as dictionaries, by reader and version."""
    import datasets
    import duckdb
    import pandas
    import polars
    import pyarrow
    import pyarrow.parquet

    def with_duckdb(path):
        cursor = duckdb.connect().execute("select * from read_parquet(?)", [path])
        names = [entry[0] for entry in cursor.description]
        return [dict(zip(names, row)) for row in cursor.fetchall()]

    def with_pandas(path):
        frame = pandas.read_parquet(path)
        return [dict(zip(frame.columns, row)) for row in frame.itertuples(index=False, name=None)]

    def with_datasets(path):
        import tempfile

        with tempfile.TemporaryDirectory() as cache:
            return list(datasets.load_dataset(
                "parquet", data_files=[path], split="train", cache_dir=cache))

    return {
        f"pyarrow {pyarrow.__version__}": lambda p: pyarrow.parquet.read_table(p).to_pylist(),
        f"pandas {pandas.__version__}": with_pandas,
        f"polars {polars.__version__}": lambda p: polars.read_parquet(p).to_dicts(),
        f"duckdb {duckdb.__version__}": with_duckdb,
        f"datasets {datasets.__version__}": with_datasets,
    }


def compare(rows: list[dict], base: list[dict]) -> None:
    """Raises when `rows` are not `base`."""
    if len(rows) != len(base):
        raise ValueError(f"{len(rows)} rows, not {len(base)}")
    if not base:
        return
    if list(rows[0]) != list(base[0]):
        raise ValueError(f"columns {list(rows[0])}, not {list(base[0])}")
    for name in ("text", "id"):
        if name in base[0] and column(rows, name) != column(base, name):
            raise ValueError(f"`{name}` differs")
    for name in [name for name in ("embeddings", "quality_score") if name in
                 base[0] | (base[0].get("metadata") or {})]:
        to_list = plain if name == "embeddings" else lambda value: value
        ours = [repr(to_list(value)) for value in column(rows, name)]
        theirs = [repr(to_list(value)) for value in column(base, name)]
        if ours != theirs:
            raise ValueError(f"`{name}` differs")


def check(paths: list[str]) -> int:
    """Reads every file with every reader; the number of failures."""
    import pyarrow.parquet as pq

    failures = 0
    for path in paths:
        print(path)
        print("   ", str(pq.read_schema(path)).replace("\n", "\n    "))
        base = pq.read_table(path).to_pylist()
        for name, read in readers().items():
            try:
                compare(read(path), base)
                print(f"    {name}: ok, {len(base)} rows")
            except Exception as error:  # a reader may fail in its own way; report and go on
                failures += 1
                print(f"    {name}: FAILED: {type(error).__name__}: {error}")
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("generate").add_argument("out", type=pathlib.Path)
    commands.add_parser("check").add_argument("files", nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "generate":
        arguments.out.mkdir(parents=True, exist_ok=True)
        rounding(arguments.out)
        tables(arguments.out)
    else:
        sys.exit(min(check(arguments.files), 1))


if __name__ == "__main__":
    main()
