"""Which near duplicates `kind = "embeddings"` finds at which similarity, and how long a million documents take.

    near.py planted DATA_DIR OUT_DIR POLYSIFT [--model MODEL] [--texts 300]
    near.py scale OUT_DIR POLYSIFT [--documents 1000000] [--width 384] [--exact 100000]

`planted`: DATA_DIR holds SET.LANG.jsonl.zst files. The corpus of a language is real texts (web pages, news, knowledge;
600 to 3,000 characters) and changed copies of them: a passage of another text appended (`appended`, a tenth of the
text), a tenth of the words dropped (`dropped`), the sentences shuffled (`shuffled`), the first half (`half`). polysift
embeds them; numpy computes all similarities, and what polysift finds is compared with what numpy finds. Prints the
share of copies whose original is within each similarity, of originals with another original within it, of texts of
HateCheck (templates with other words in their gaps) with another one within it, and of translations.
`scale`: random embeddings of --documents in 2,000 topics; a tenth are near copies of others. Times the stage
`deduplicate`, and compares the first --exact documents in one cluster with all pairs by numpy: with polysift's rule, and
with SemDeDup's as NeMo Curator has it (a document goes if any better one is near, whether that one stays or not).
Needs numpy, pyarrow and zstandard.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "models/polysift-mini"))
from corpora import SETS, read_all, unit_hash  # noqa: E402

LANGUAGES = ["eng", "fra", "swe", "cmn", "deu", "spa", "por", "pol", "tur", "arb", "jpn"]
KINDS = ["appended", "dropped", "shuffled", "half"]
COLUMNS = [*KINDS, "template"]
THRESHOLDS = [0.7, 0.75, 0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.96, 0.97, 0.98, 0.99]


def unit(rows):
    return rows / np.maximum(np.linalg.norm(rows.astype(np.float64), axis=-1, keepdims=True), 1e-30)


def near(vectors, order, threshold):
    """(document, better document) by polysift's rule, and the documents that SemDeDup removes."""
    ranked = unit(vectors[order]).astype(np.float32)
    stays, pairs, removed = np.zeros(len(order), bool), {}, set()
    for start in range(0, len(order), 1000):
        similarities = ranked[start : start + 1000] @ ranked[: start + 1000].T
        for at in range(start, min(start + 1000, len(order))):
            own = similarities[at - start, :at]
            if at and own.max() >= threshold:
                removed.add(order[at])
            own = np.where(stays[:at], own, -2)
            if at and own.max() >= threshold:
                pairs[order[at]] = order[int(own.argmax())]
            else:
                stays[at] = True
    return pairs, removed


def run(given, settings, name, *stages):
    folder = given.out / name
    (given.out / f"{name}.toml").write_text(settings)
    took = {}
    for stage in stages:
        command = [given.polysift, stage, "--config", given.out / f"{name}.toml", "--run", folder, "--quiet"]
        began, child = time.time(), subprocess.Popen(command)
        _, status, used = os.wait4(child.pid, 0)
        assert status == 0, command
        took[stage] = (time.time() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e6)
    return folder, took


def read(folder, columns):
    files = sorted(folder.rglob("*.parquet"))
    return pa.concat_tables([parquet.read_table(file, columns=columns) for file in files]).to_pydict()


def verdicts(folder, language=""):
    found = read(folder / "duplicates/verdicts" / language, ["id", "detail"])
    return dict(zip(found["id"], found["detail"]))


def changed(text, kind, other, dice):
    if kind == "appended":
        return f"{text}\n\n{other[: len(text) // 10]}"
    if kind == "half":
        return text[: len(text) // 2]
    between = "" if re.search(r"[\u3040-\u30ff\u4e00-\u9fff]", text) else " "
    units = list(text) if kind == "dropped" and not between else text.split()
    if kind == "dropped":
        return between.join(unit for unit in units if dice.random() > 0.1)
    sentences = re.split(r"(?<=[.!?。！？؟])\s*", text)
    dice.shuffle(sentences)
    return between.join(sentences)


def planted(given):
    texts, parallel, templates = collections.defaultdict(list), collections.defaultdict(dict), collections.defaultdict(list)
    for row in sorted(read_all(given.data), key=lambda row: unit_hash(row.set_name + row.id, "near")):
        language, text = row.language[:3], re.sub(r"\s+", " ", row.text).strip()[:3000]
        if row.set_name == "ntrex" and language in LANGUAGES:
            parallel[row.id.rsplit("/", 1)[-1]][language] = text
        elif row.set_name == "mhc" and language in LANGUAGES and len(templates[language]) < given.texts:
            templates[language].append(text)
        elif language in LANGUAGES and SETS[row.set_name].role in ("web", "web-docs", "knowledge") and len(text) > (
            250 if language in ("cmn", "jpn") else 600
        ):
            texts[language].append(text)
    corpus, dice = given.out / "corpus", random.Random(1)
    corpus.mkdir(parents=True, exist_ok=True)
    for language in LANGUAGES:
        own = list(dict.fromkeys(texts[language]))[: given.texts]
        rows = [{"id": f"original-{at}", "text": text, "grade": 1} for at, text in enumerate(own)]
        for at, text in enumerate(own):
            kind = KINDS[at % len(KINDS)]
            rows.append({"id": f"{kind}-{at}", "text": changed(text, kind, own[at - 1], dice), "grade": 0})
        known = [(key, by[language]) for key, by in parallel.items() if language in by]
        rows += [{"id": f"translated-{key}", "text": text, "grade": 1} for key, text in known]
        rows += [{"id": f"template-{at}", "text": text, "grade": 0} for at, text in enumerate(templates[language])]
        (corpus / f"{language}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = f"""
        input = {{ files = ["{corpus}/{{lang}}.jsonl"] }}
        encoder = {{ model = "{given.model}" }}
        heads.quality = {{ kind = "column", score = "grade" }}
        filters.near = {{ kind = "embeddings", similarity = {given.similarity} }}
    """
    name = f"run-{re.sub('[^a-z0-9]+', '-', given.model.lower())[-20:]}"
    folder, _ = run(given, settings, name, "embed", "score", "deduplicate")
    in_one = sum(map(len, verdicts_by(folder).values()))
    for clusters in (2, 5, 10, 20):
        more = ["--set", f"filters.near.clusters={clusters}", "--redo", "deduplicate"]
        command = [given.polysift, "deduplicate", "--config", given.out / f"{name}.toml", "--run", folder, "--quiet"]
        subprocess.run(command + more, check=True)
        print(f"in {clusters} clusters {100 * sum(map(len, verdicts_by(folder).values())) / in_one:.1f}% of {in_one} are found")
    subprocess.run(command + ["--redo", "deduplicate"], check=True)
    found, found_by_polysift, vectors_by = collections.defaultdict(list), verdicts_by(folder), {}
    of_originals, of_all = [], []
    for language in LANGUAGES:
        rows = read(folder / "embeddings" / language, ["id", "embeddings"])
        ids, vectors = rows["id"], unit(np.array([np.mean(chunks, axis=0) for chunks in rows["embeddings"]], np.float32))
        vectors_by[language] = dict(zip(ids, vectors))
        grades = np.array([1 if id.startswith(("original", "translated")) else 0 for id in ids])
        pairs, _ = near(vectors, np.lexsort((np.arange(len(ids)), -grades)), given.similarity)
        expected = {ids[at]: ids[of] for at, of in pairs.items()}
        assert expected == found_by_polysift[language], (language, expected.items() ^ found_by_polysift[language].items())
        similarities = vectors @ vectors.T
        np.fill_diagonal(similarities, -1)
        place = {id: at for at, id in enumerate(ids)}
        own = [at for at, id in enumerate(ids) if id.startswith("template")]
        found["template"] += list(similarities[np.ix_(own, own)].max(axis=1)) if own else []
        originals = [at for at, id in enumerate(ids) if id.startswith("original")]
        of_originals.append(similarities[np.ix_(originals, originals)].max(axis=1))
        of_all.append(similarities[np.ix_(originals, originals)][np.triu_indices(len(originals), 1)])
        for id in ids:
            kind, _, number = id.partition("-")
            if kind in KINDS:
                found[kind].append(similarities[place[id], place[f"original-{number}"]])
    translations = []
    for key, by in parallel.items():
        languages = [language for language in by if f"translated-{key}" in vectors_by[language]]
        for a in languages:
            for b in languages:
                if a < b:
                    translations.append(float(vectors_by[a][f"translated-{key}"] @ vectors_by[b][f"translated-{key}"]))
    print(f"{given.model}: {sum(len(found[kind]) for kind in KINDS)} copies in {len(LANGUAGES)} languages; polysift finds what numpy finds")
    random_pairs = np.concatenate(of_all)
    print(f"random originals of a language: median {np.median(random_pairs):.3f}, 99% {np.quantile(random_pairs, 0.99):.3f}")
    print("| similarity | " + " | ".join(COLUMNS) + " | originals | translations |\n|---" + "|---" * (len(COLUMNS) + 2) + "|")
    for threshold in THRESHOLDS:
        columns = [np.mean(np.array(found[kind]) >= threshold) for kind in COLUMNS]
        columns += [np.mean(np.concatenate(of_originals) >= threshold), np.mean(np.array(translations) >= threshold)]
        print(f"| {threshold} | " + " | ".join(f"{100 * share:.1f}%" for share in columns) + " |")


def verdicts_by(folder):
    return {language: verdicts(folder, language) for language in LANGUAGES}


def scale(given):
    generator, corpus = np.random.default_rng(1), given.out / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    topics = generator.normal(size=(2000, given.width)).astype(np.float32)
    copied, all_vectors, grades = np.zeros((0, given.width), np.float32), [], []
    for number in range(-(-given.documents // 50_000)):
        size = min(50_000, given.documents - 50_000 * number)
        vectors = topics[generator.integers(0, len(topics), size)] + 0.7 * generator.normal(size=(size, given.width)).astype(np.float32)
        if len(copied):
            at = generator.permutation(size)[: size // 10]
            of = generator.integers(0, len(copied), len(at))
            vectors[at] = copied[of] + 0.25 * generator.normal(size=(len(at), given.width)).astype(np.float32)
        copied = np.concatenate([copied, vectors[: size // 2]])[-500_000:]
        grade = generator.integers(0, 1_000_000, size)
        first = 50_000 * number
        table = {"id": [str(first + i) for i in range(size)], "text": ["x"] * size, "grade": grade,
                 "vectors": pa.FixedSizeListArray.from_arrays(vectors.ravel(), given.width)}
        parquet.write_table(pa.table(table), corpus / f"{number:04}.parquet")
        if first < given.exact:
            all_vectors.append(vectors)
            grades.append(grade)
    settings = lambda files, more: f"""
        input = {{ files = {json.dumps([str(corpus / name) for name in files])}, embeddings = "vectors", language = "und" }}
        heads.quality = {{ kind = "column", score = "grade" }}
        filters.near = {{ kind = "embeddings", similarity = 0.9{more} }}
    """
    for name, more in [("all-small", ", memory_mb = 500"), ("all", "")]:
        folder, took = run(given, settings(["*.parquet"], more), name, "embed", "score", "deduplicate")
        report = json.loads((folder / "duplicates/languages/und.json").read_text())
        seconds, processor, memory = took["deduplicate"]
        print(f"{name}: {given.documents} documents of {given.width}: {seconds:.1f} s, {processor:.1f} processor s, "
              f"{report['clusters']} clusters of at most {report['largest_cluster']}, "
              f"{report['found']['documents']} found; {memory:.2f} GB")
    assert verdicts(given.out / "all") == verdicts(given.out / "all-small")
    vectors, grades = np.concatenate(all_vectors)[: given.exact], np.concatenate(grades)[: given.exact]
    files = [f"{number:04}.parquet" for number in range(-(-given.exact // 50_000))]
    one, took = run(given, settings(files, ", clusters = 1"), "one", "embed", "score", "deduplicate")
    began = time.time()
    pairs, removed = near(vectors, np.lexsort((np.arange(len(grades)), -grades)), 0.9)
    exact, found = {str(at): str(of) for at, of in pairs.items()}, verdicts(one)
    print(f"{given.exact} in one cluster: {took['deduplicate'][0]:.1f} s, numpy {time.time() - began:.1f} s; found {len(found)}, "
          f"numpy {len(exact)}, other {len(found.items() ^ exact.items())}; SemDeDup removes {len(removed)}")
    many, _ = run(given, settings(files, ", clusters = 50"), "many", "embed", "score", "deduplicate")
    print(f"in 50 clusters: found {len(verdicts(many))}")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
commands = parser.add_subparsers(required=True)
command = commands.add_parser("planted")
command.add_argument("data", type=pathlib.Path)
command.set_defaults(do=planted)
command.add_argument("out", type=pathlib.Path)
command.add_argument("polysift")
command.add_argument("--model", default="polysift-mini")
command.add_argument("--texts", type=int, default=300)
command.add_argument("--similarity", type=float, default=0.97)
command = commands.add_parser("scale")
command.set_defaults(do=scale)
command.add_argument("out", type=pathlib.Path)
command.add_argument("polysift")
command.add_argument("--documents", type=int, default=1_000_000)
command.add_argument("--width", type=int, default=384)
command.add_argument("--exact", type=int, default=100_000)
given = parser.parse_args()
given.out.mkdir(parents=True, exist_ok=True)
given.do(given)
