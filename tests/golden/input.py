"""Writes the Parquet files of tests/input.rs and what pyarrow reads from them.

    python tests/golden/input.py tests/golden/input

Each NAME.parquet has a NAME.json: {"rows": [{column: value}...]}. Values are JSON where JSON has
them; timestamps and dates are integers in their unit, binary is hexadecimal, decimals are numbers
of at most 15 digits (exact as f64), maps are objects. Encrypted files have none.
"""

import base64
import datetime as dt
import decimal
import json
import pathlib
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

assert int(pa.__version__.split(".")[0]) >= 20, "string_view in Parquet needs a recent pyarrow"

ROWS = 10
TEXTS = ["Grüße aus Zürich", "", "   \n", None, "日本語のテキスト", "a\0b", "x" * 3000, "\ufeffbom", "اردو", "z"]


def plain(value):
    """A value as JSON."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):  # a map
            return {key: plain(item) for key, item in value}
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def integers(column):
    """Times as integers in their unit."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return column


def write(directory, name, table, **options):
    path = directory / f"{name}.parquet"
    pq.write_table(table, path, **options)
    read = pq.ParquetFile(path).read()
    assert read.schema.equals(table.schema), (read.schema, table.schema)
    columns = {column: integers(read[column]).to_pylist() for column in read.column_names}
    rows = [{column: plain(columns[column][row]) for column in columns} for row in range(read.num_rows)]
    (directory / f"{name}.json").write_text(json.dumps({"rows": rows}, indent=0) + "\n")


def nullable(values, every=4):
    return [None if row % every == 3 else value for row, value in enumerate(values)]


def odd():
    """One column of every type that a corpus might have."""
    utc = dt.timezone.utc
    moments = [dt.datetime(2024, 1, 1 + row, 3, 4, 5, 678_901, utc) for row in range(ROWS)]
    columns = {
        "text": pa.array(TEXTS, pa.large_string()),
        "id": pa.array([(1 << 64) - 1 - row for row in range(ROWS)], pa.uint64()),
        "view": pa.array(nullable([f"a longer view of row {row}" for row in range(ROWS)]), pa.string_view()),
        "dictionary": pa.array(nullable(["deu", "fra", "deu", "ita", "fra"] * 2)).dictionary_encode(),
        "zoned": pa.array(nullable(moments), pa.timestamp("us", "Europe/Zurich")),
        "naive": pa.array([1_700_000_000_000_000_001 + row for row in range(ROWS)], pa.timestamp("ns")),
        "date": pa.array([19_000 + row for row in range(ROWS)], pa.date32()),
        "decimal": pa.array(nullable([decimal.Decimal(f"1234567{row}.0{row}") for row in range(ROWS)]), pa.decimal128(12, 2)),
        "binary": pa.array(nullable([bytes([row, 255, 0]) for row in range(ROWS)]), pa.binary()),
        "half": pa.array([row / 4 for row in range(ROWS)], pa.float16()),
        "single": pa.array([row / 8 for row in range(ROWS)], pa.float32()),
        "boolean": pa.array(nullable([row % 2 == 0 for row in range(ROWS)]), pa.bool_()),
        "small": pa.array([row - 5 for row in range(ROWS)], pa.int8()),
        "nothing": pa.nulls(ROWS),
        "lists": pa.array(nullable([["a"] * row for row in range(ROWS)]), pa.list_(pa.string())),
        "structs": pa.array(
            nullable([[{"k": row, "v": None if row % 2 else "v"}] for row in range(ROWS)]),
            pa.list_(pa.struct([("k", pa.int64()), ("v", pa.string())])),
        ),
        "map": pa.array(nullable([[("k", row), ("l", None)] for row in range(ROWS)]), pa.map_(pa.string(), pa.int32())),
        "fixed": pa.array(nullable([[row / 2, -1.0] for row in range(ROWS)]), pa.list_(pa.float32(), 2)),
        "embeddings": pa.array(
            nullable([[[row / 2, 1.0, 0.25]] * (row % 3) for row in range(ROWS)]),
            pa.list_(pa.list_(pa.float64())),
        ),
    }
    return pa.table(columns)


def nested():
    """The layout of datatrove's Parquet writer."""
    metadata = [
        None if row == 4 else {
            "url": f"https://example.org/{row}",
            "language": None if row == 5 else ["deu", "fra"][row % 2],
            "language_script": "Latn",
            "top_langs": {"deu_Latn": row / 10},
            "embeddings": [[row / 2, 1.0]],
        }
        for row in range(ROWS)
    ]
    kind = pa.struct([
        ("url", pa.string()),
        ("language", pa.string()),
        ("language_script", pa.string()),
        ("top_langs", pa.struct([("deu_Latn", pa.float64())])),
        ("embeddings", pa.list_(pa.list_(pa.float16()))),
    ])
    return pa.table({
        "text": pa.array(TEXTS, pa.string()),
        "id": pa.array(nullable([f"<urn:uuid:{row}>" for row in range(ROWS)]), pa.string()),
        "metadata": pa.array(metadata, kind),
    })


class OpenKeys(pe.KmsClient):
    """Keeps keys as they are, in base64."""

    def __init__(self, _connection):
        super().__init__()

    def wrap_key(self, key_bytes, _master_key):
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key, _master_key):
        return base64.b64decode(wrapped_key)


def write_encrypted(directory, name, table, plaintext_footer):
    config = pe.EncryptionConfiguration(
        footer_key="footer", column_keys={"column": ["text"]}, plaintext_footer=plaintext_footer
    )
    properties = pe.CryptoFactory(OpenKeys).file_encryption_properties(pe.KmsConnectionConfig(), config)
    with pq.ParquetWriter(directory / f"{name}.parquet", table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    write(directory, "odd", odd(), row_group_size=4, compression="zstd")
    write(directory, "nested", nested(), row_group_size=3, compression="snappy", write_page_index=True)
    texts = pa.table({"text": pa.array(TEXTS).dictionary_encode(), "label": pa.array([row % 2 == 0 for row in range(ROWS)])})
    for codec in ["none", "gzip", "lz4", "brotli"]:
        write(directory, f"codec_{codec}", texts, compression=codec, data_page_version="2.0")
    few = pa.table({"text": ["a", "b"], "label": [True, False]})
    write(directory, "latin1_metadata", few.replace_schema_metadata({"été".encode("latin-1"): b"\xff\xfe", b"a": b"b"}))
    write_encrypted(directory, "encrypted", few, plaintext_footer=False)
    write_encrypted(directory, "encrypted_column", few, plaintext_footer=True)


main()
