"""A mixture of the sample corpus as docs/mix.md describes it, written down again from the description.

Makes mix/expected.json from mix/mix.toml, and prints the numbers of the unit tests in src/mix/draw.rs.

pip install xxhash==4.1.0 pyarrow==26.0.1; python3 tests/golden/mix.py
"""

import collections
import fractions
import json
import math
import pathlib
import struct
import tomllib

import pyarrow.parquet as pq
import xxhash

HERE = pathlib.Path(__file__).parent
SAMPLE = HERE.parent / "sample" / "corpus"


def seed_of(salt, name, seed):
    return xxhash.xxh3_64_intdigest(salt.encode() + name.encode() + struct.pack("<Q", seed))


def hash_of(text, seed):
    return xxhash.xxh3_64_intdigest(text.encode(), seed=seed)


def amount(text):
    units = {"k": 10**3, "M": 10**6, "B": 10**9}
    return int(fractions.Fraction(text[:-1]) * units[text[-1]])


def documents(source):
    """(language, file, row, id, tokens, copies in an epoch), and of each file its bytes and tokens."""
    found, files = [], []
    for pattern in source["files"]:
        name = pattern.split("/")[1]
        for folder in sorted(SAMPLE.glob(name.replace("{lang}", "*"))):
            language = folder.name.removesuffix(name.removeprefix("{lang}")) if "{lang}" in name else "und"
            for path in sorted(folder.glob("*.parquet")):
                meta = pq.read_metadata(path)
                size = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
                docs = pq.read_table(path).to_pylist()
                files.append((size, sum(len((doc["text"] or "").encode()) for doc in docs)))
                for row, doc in enumerate(docs):
                    if doc["text"] is None:
                        continue
                    tokens = len(doc["text"].encode())
                    if not source.get("min_tokens", 0) <= tokens < source.get("max_tokens", 2**64):
                        continue
                    copies = 1
                    if "copies" in source:
                        steps = json.loads((HERE / "mix" / source["copies"]["weights"]).read_text())
                        cluster = doc[source["copies"]["by"]]
                        copies = steps[max((s for s in steps if int(s) <= cluster), key=int)]
                    if "weight" in source:
                        copies = source["weight"]["values"][doc[source["weight"]["column"]]]
                    found.append((language, len(files) - 1, row, doc["id"], tokens, copies))
    return found, files


def fill(pool, budget, seed):
    """Copies by (file, row)."""
    epoch = sum(tokens * copies for *_, tokens, copies in pool)
    whole, rest = divmod(budget, epoch)
    taken = {}
    for _, file, row, key, tokens, copies in sorted(
        pool, key=lambda doc: (hash_of(doc[3], seed), doc[1], doc[2])
    ):
        taken[file, row] = whole * copies
        for _ in range(copies):
            if rest > 0:
                taken[file, row] += 1
                rest -= tokens
    return taken


def draw(source, found, seed):
    epoch = collections.Counter()
    for language, *_, tokens, copies in found:
        epoch[language] += tokens * copies
    if "tokens" in source:
        budget = amount(source["tokens"])
    else:
        budget = math.ceil(fractions.Fraction(str(source["epochs"])) * epoch.total())
    named = source.get("languages", {})
    if "temperature" in source:
        sizes = {language: tokens ** source["temperature"] for language, tokens in epoch.items()}
        pools = {(language,): budget * size / sum(sizes.values()) for language, size in sizes.items()}
        pools = {languages: math.floor(own + 0.5) for languages, own in pools.items()}
    else:
        shares = {(language,): fractions.Fraction(str(share)) for language, share in named.items()}
        others = tuple(language for language in epoch if language not in named)
        shares[others] = 1 - sum(shares.values())
        pools = {languages: math.ceil(budget * share) for languages, share in shares.items()}
    taken = {}
    for languages, own in pools.items():
        pool = [doc for doc in found if doc[0] in languages]
        assert own <= 4 * sum(tokens * copies for *_, tokens, copies in pool), languages
        taken |= fill(pool, own, seed)
    return budget, pools, taken


def main():
    for salt in ["sample", "mix"]:
        pool = [("und", 0, i, f"doc-{i}", 1, 1) for i in range(1000)]
        taken = fill(pool, 2370, seed_of(salt, "", 42))
        print(salt, sum(taken.values()), [taken[0, i] for i in range(5)])

    settings = tomllib.loads((HERE / "mix" / "mix.toml").read_text())
    rows, expected, size, first_file = [], [], 0, 0
    for source in settings["source"]:
        found, files = documents(source)
        budget, pools, taken = draw(source, found, seed_of("mix", "", settings["seed"]))
        languages, seeds = {}, [seed_of(salt, source["name"], settings["seed"]) for salt in ["file", "order"]]
        of_file = collections.Counter()
        for language, file, row, key, tokens, copies in found:
            count = taken[file, row]
            own = languages.setdefault(language, dict.fromkeys(["documents", "drawn", "rows", "tokens"], 0))
            own["documents"] += 1
            own["drawn"] += count > 0
            own["rows"] += count
            own["tokens"] += count * tokens
            of_file[file] += count * tokens
            for copy in range(count):
                of_copy = struct.pack("<Q", copy)
                target, order = [
                    xxhash.xxh3_64_intdigest(of_copy, seed=hash_of(key, seed)) for seed in seeds
                ]
                rows.append((target, order, first_file + file, row, copy, source["name"], key))
        size += sum(files[file][0] * count // files[file][1] for file, count in of_file.items())
        first_file += len(files)
        expected.append({"name": source["name"], "budget": budget, "languages": languages})
    num_files = -(-size // settings["output_bytes"])
    outputs = [[] for _ in range(num_files)]
    for target, *_, copy, name, key in sorted((row[0] % num_files, *row[1:]) for row in rows):
        outputs[target].append(f"{name} {copy} {key}")
    text = json.dumps({"sources": expected, "files": outputs}, indent=1, ensure_ascii=False)
    (HERE / "mix" / "expected.json").write_text(text + "\n")
    print([len(output) for output in outputs], size)


main()
