"""Does the perplexity of kept text on a target order rates of retention as labels do?

    rates.py DATA_DIR WORK_DIR POLYSIFT TOKENIZER_JSON [POOL...]
    rates.py --check

DATA_DIR holds SET.LANG.jsonl.zst files. The corpora have labels: pages whose register is informational or instructive
(IN, HI) among other pages, or windows of a knowledge set planted as a known share of windows of web text, all of one
length. polysift trains logistic heads on other documents and scores the corpus. For every rate, n-gram models with
modified Kneser-Ney smoothing learn from what is kept and are measured, in bits per byte, on targets that neither the
corpus nor the head holds. Variants: `equal-1` and `equal-5` (as many symbols for each rate as the best 1% or 5% hold),
`all` (all that is kept), `random` (as many symbols of random documents), `shuffled` (`equal-5`, shuffled scores).
WORK_DIR/results.POOL.jsonl gets a row for each corpus, seed, model, variant and rate, which `rates_tables.py` reads.
"""

import collections
import hashlib
import json
import math
import pathlib
import re
import subprocess
import sys

import numpy as np
import tokenizers
from pyarrow import CompressedInputStream, OSFile, parquet
from scipy.stats import rankdata

RATES = (0.01, 0.025, 0.05, 0.1, 0.2, 0.33, 0.5, 1.0)
SEEDS, DRAWS, TARGET_BYTES, SMALL_BYTES = 10, 4, 60_000, 2_000
SETTINGS = '[encoder]\nmax_tokens = 96\ndevice = "cpu"\nprecision = "f32"\n[export]\nwith_embeddings = false'
THREE, TWO, ONLY = (0.05, 0.1, 0.3), (0.05, 0.1), (None,)
# A pool: language, web set, characters of a text, texts of one page, most web texts, knowledge sets with the most
# windows, heads with the sets of their positives (`own`: other groups of the planted set), and corpora: good texts,
# head, shares, set of the third target.
POOLS = {
    "eng": ("eng_Latn", "ewt", 500, 20, 2400, {"xquad": 600, "cncf-glossary": 400, "security101": 400},
            {"cncf": ["cncf-glossary"], "own": ["xquad"]},
            [("xquad", "cncf", THREE, "security101"), ("xquad", "own", THREE, "security101")]),
    "fra": ("fra_Latn", "frecore", 600, 4, 2400, {"security101": 400, "cncf-glossary": 400, "exams": 400},
            {"cncf": ["cncf-glossary"], "security": ["security101"], "own": ["security101"]},
            [("security101", "cncf", TWO, "exams"), ("cncf-glossary", "security", TWO, "exams"),
             ("security101", "own", TWO, "exams")]),
    "cmn": ("cmn_Hani", "simchicore", 300, 8, 2400, {"cmrc2018": 700, "gaokao": 700, "security101": 150},
            {"gaokao": ["gaokao"], "cmrc": ["cmrc2018"], "own": ["cmrc2018"], "register": "register"},
            [("cmrc2018", "gaokao", THREE, "security101"), ("gaokao", "cmrc", THREE, "security101"),
             ("cmrc2018", "own", THREE, "gaokao"), ("register", "register", ONLY, "cmrc2018"),
             ("register", "cmrc", ONLY, "gaokao")]),
    "fra-pages": ("fra_Latn", "frecore", 3000, 1, 2400, {"security101": 150, "cncf-glossary": 150, "exams": 150},
                  {"register": "register", "knowledge": ["security101", "cncf-glossary", "exams"]},
                  [("register", "register", ONLY, "security101"), ("register", "knowledge", ONLY, "cncf-glossary")]),
    "swe-pages": ("swe_Latn", "swecore", 3000, 1, 2400, {"security101": 200},
                  {"register": "register", "security": ["security101"]},
                  [("register", "register", ONLY, "security101"), ("register", "security", ONLY, "security101")]),
}


def unit(key):
    """A reproducible number in [0, 1)."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") / 2.0**64


def rows_of(data, name, language):
    """The rows of a set, with the group that stays in one part; short exam questions are joined by ten."""
    with CompressedInputStream(OSFile(str(data / f"{name}.{language}.jsonl.zst")), "zstd") as stream:
        rows = [json.loads(line) for line in stream.read().decode().split("\n") if line]
    for at, row in enumerate(rows):  # five paragraphs of xquad are of one article, questions of gaokao of one paper
        row["group"] = {"xquad": str(at // 5), "gaokao": row["id"].rsplit("-", 1)[0]}.get(name, row["id"])
    if name == "exams":
        rows = [{"id": str(at), "group": str(at), "text": "\n".join(row["text"] for row in rows[at:at + 10])}
                for at in range(0, len(rows), 10)]
    return rows


def texts_of(data, pool):
    """The texts of a pool, whole groups of which are for targets, heads or corpora."""
    language, web, chars, uses, most_web, sets, _, _ = POOLS[pool]
    texts = []
    for name, most in {web: most_web, **sets}.items():
        of_set, length = [], chars if name == web else min(chars, 1000)
        for row in rows_of(data, name, language):
            text, place = re.sub(r"\s+", " ", row["text"]).strip(), unit(f"{name}/{row['group']}")
            part = "target" if place < 0.2 else "head" if place < 0.5 else "corpus"
            good = name != web or bool(re.search(r"\b(IN|HI)\b", row.get("label") or ""))
            for at in range(uses if name == web else 9):
                window = text[at * length:(at + 1) * length]
                if len(window) == length or uses == 1 and name == web and len(window) >= 300:
                    text_id = f"{name}/{row['id']}/{at}"
                    of_set.append({"id": text_id, "set": name, "text": window, "part": part, "good": good})
        texts += sorted(of_set, key=lambda text: unit(text["id"]))[:most]
    return texts


def scores_of(texts, pool, work, polysift):
    """Scores of the texts for corpora by each head of the pool, which polysift trains."""
    language, web, _, _, _, _, heads, corpora = POOLS[pool]
    (folder := work / pool).mkdir(parents=True, exist_ok=True)
    settings = [f'[input]\nfiles = ["corpus.jsonl"]\nlanguage = "{language}"', SETTINGS]
    scored = [web, *(corpus[0] for corpus in corpora)]
    files = {"corpus": [(text, None) for text in texts if text["part"] == "corpus" and text["set"] in scored]}
    of_head = [text for text in texts if text["set"] == web and text["part"] == "head"]
    for head, sets in heads.items():
        parts = ["head"] if head == "own" else ["head", "corpus"]
        files[head] = [(t, "positive" if sets == "register" and t["good"] else "negative") for t in of_head]
        files[head] += [(t, "positive") for t in texts if t["set"] in sets and t["part"] in parts]
        settings.append(f'[heads.{head}]\nkind = "logistic"\ntrain = ["{head}.jsonl"]')
    for name, labelled in files.items():
        rows = [{"id": text["id"], "text": text["text"], "label": label} for text, label in labelled]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    settings.append(f"[languages._default]\nretention = {{ {head} = 1.0 }}\n")
    (folder / "settings.toml").write_text("\n".join(settings))
    subprocess.run([polysift, "run", "-c", folder / "settings.toml", "--run", folder / "run"], check=True)
    table = parquet.ParquetDataset(folder / "run/export").read()
    return {head: dict(zip(table["id"].to_pylist(), table[f"{head}_score"].to_pylist())) for head in heads}


class Grams:
    """The n-grams of texts by number, so that a model of any of the texts is quick to count."""
    def __init__(self, texts, order, vocabulary):
        self.vocabulary, self.spans, stream, at = vocabulary, [], [], order - 1
        for text in texts:  # no n-gram crosses into another text
            stream += [np.full(order - 1, vocabulary), text]
            self.spans.append(np.arange(at, at + len(text)))
            at += order - 1 + len(text)
        stream = np.concatenate(stream)
        self.ids, self.prefix, self.suffix = [np.zeros(len(stream), np.int64)], [np.zeros(1, int)], [None]
        for _ in range(order):
            before = np.roll(self.ids[-1], 1)
            _, first, ids = np.unique(before * (vocabulary + 1) + stream, return_index=True, return_inverse=True)
            self.prefix.append(before[first])
            self.suffix.append(self.ids[-1][first])
            self.ids.append(ids)

    def bits(self, train, test):
        """-log2 p of the symbols at `test` by interpolated modified Kneser-Ney on those at `train`."""
        grams, counts = np.unique(self.ids[-1][train], return_counts=True)
        levels = []
        for k in range(len(self.ids) - 1, 0, -1):
            levels.append((k, grams, counts))
            grams, counts = np.unique(self.suffix[k][grams], return_counts=True)
        p = np.full(len(test), 1 / self.vocabulary)
        for k, grams, counts in reversed(levels):
            taken = discounts(counts)[np.minimum(counts, 3)]
            contexts, at = np.unique(self.prefix[k][grams], return_inverse=True)
            total = np.bincount(at, counts)
            share, rest = np.zeros(len(self.prefix[k])), np.ones(len(self.prefix[k - 1]))
            share[grams] = (counts - taken) / total[at]
            rest[contexts] = np.bincount(at, taken) / total
            p = share[self.ids[k][test]] + rest[self.ids[k - 1][test - 1]] * p
        return -np.log2(p)


def discounts(counts):
    """Chen and Goodman's discounts of counts 0, 1, 2 and more, or KenLM's defaults where they do not exist."""
    n = np.bincount(np.minimum(counts, 5), minlength=5).astype(float)
    if min(n[1:4]) > 0:
        found = [i - (i + 1) * n[1] / (n[1] + 2 * n[2]) * n[i + 1] / n[i] for i in (1, 2, 3)]
        if all(0 <= d <= i for i, d in enumerate(found, 1)):
            return np.array([0, *found])
    return np.array([0, 0.5, 1, 1.5])


def check(order=3, vocabulary=6):
    """Compares `Grams` with a plain implementation, whose probabilities add up to 1."""
    texts = np.random.default_rng(0).choice(5, size=(8, 60), p=[0.4, 0.3, 0.15, 0.1, 0.05])
    padded = [(vocabulary,) * (order - 1) + tuple(text.tolist()) for text in texts]
    grams_of = [[x[i:i + order] for i in range(len(x) - order + 1)] for x in padded]
    table = {order: collections.Counter(sum(grams_of[:6], []))}
    for k in range(order - 1, 0, -1):
        table[k] = collections.Counter(gram[1:] for gram in table[k + 1])

    def plain(gram):
        lower, counts = plain(gram[1:]) if len(gram) > 1 else 1 / vocabulary, table[len(gram)]
        seen = [n for other, n in counts.items() if other[:-1] == gram[:-1]]
        cut, own = discounts(np.array(list(counts.values()))), counts[gram]
        return (own - cut[min(own, 3)] + sum(cut[min(n, 3)] for n in seen) * lower) / sum(seen) if seen else lower
    grams = Grams(list(texts), order, vocabulary)
    found = grams.bits(np.concatenate(grams.spans[:6]), np.concatenate(grams.spans[6:]))
    assert np.allclose(found, [-math.log2(plain(gram)) for gram in sum(grams_of[6:], [])])
    assert all(abs(sum(plain((*h, w)) for w in range(vocabulary)) - 1) < 1e-12 for h in ((0, 1), (4, 4), (6, 2)))


def measure(texts, pool, scores, tokenizer):
    """The rows of all corpora of a pool, as JSON lines."""
    _, web, _, _, _, _, heads, corpora = POOLS[pool]
    codes = [np.frombuffer(text["text"].encode(), np.uint8).astype(np.int64) for text in texts]
    size = np.array(list(map(len, codes)))
    coder = tokenizers.Tokenizer.from_file(tokenizer)
    tokens = [np.array(e.ids) for e in coder.encode_batch([t["text"] for t in texts], add_special_tokens=False)]
    models = {"bytes-6": Grams(codes, 6, 256)}
    models |= {f"tokens-{order}": Grams(tokens, order, coder.get_vocab_size()) for order in (1, 3)}

    def which(part, sets, good):
        return [i for i, t in enumerate(texts) if (t["part"], t["good"]) == (part, good) and t["set"] in sets]
    for number, (good_set, head, share, other) in enumerate((g, h, s, o) for g, h, some, o in corpora for s in some):
        good_sets = [web] if good_set == "register" else [good_set]
        targets = {"same": which("target", good_sets, True), "head": which("target", heads[head], True),
                   "third": which("target", [other], True), "wrong": which("target", [web], False)}
        targets = {name: t[:int((size[t].cumsum() <= TARGET_BYTES).sum())] for name, t in targets.items() if t}
        targets["small"] = targets["same"][:max(1, int((size[targets["same"]].cumsum() <= SMALL_BYTES).sum()))]
        for seed in range(SEEDS):
            random = np.random.default_rng([number, seed])
            rest, good = (found[:int(0.85 * len(found))] for found in map(
                random.permutation, (which("corpus", [web], False), which("corpus", good_sets, True))))
            if share:  # as many as the share needs, and fewer other texts where there are not enough
                good = good[:int(share / (1 - share) * len(rest))]
                rest = rest[:int(len(good) * (1 - share) / share)]
            corpus, n, many = np.concatenate([rest, good]), len(rest) + len(good), len(good)
            value = np.array([scores[head][texts[i]["id"]] for i in corpus])
            area = (rankdata(value)[-many:].sum() - many * (many + 1) / 2) / many / (n - many)
            order, mixed = np.argsort(-value, kind="stable"), random.permutation(n)
            cuts = [math.ceil(rate * n) for rate in RATES]
            draws = [[random.permutation(cut) for _ in range(DRAWS)] for cut in cuts]
            for model, grams in models.items():
                def first(documents, limit):
                    return np.concatenate([grams.spans[i] for i in corpus[documents]])[:limit]
                length = np.array([len(grams.spans[i]) for i in corpus])
                test = np.concatenate([grams.spans[i] for t in targets.values() for i in t])
                ends = np.cumsum([sum(len(grams.spans[i]) for i in t) for t in targets.values()])[:-1]
                plan = [("equal-1", order, 0), ("equal-5", order, 2)]
                if model == "bytes-6":
                    plan += [("shuffled", mixed, 2), ("all", order, None), ("random", mixed, None)]
                for variant, ranks, start in plan:
                    limit = min(length[ranks[:cut]].sum() for cut in cuts[start or 0:])
                    for rate, cut, drawn in list(zip(RATES, cuts, draws))[start or 0:]:
                        trains = ([first(ranks, length[order[:cut]].sum())] if start is None else
                                  [first(ranks[:cut][draw], limit) for draw in drawn])
                        bits = np.split(np.mean([grams.bits(train, test) for train in trains], axis=0), ends)
                        right = int((order[:cut] >= n - many).sum())
                        row = {"corpus": [pool, good_set, head, share], "model": model, "variant": variant,
                               "seed": seed, "rate": rate, "documents": n, "good": many, "area": float(area),
                               "symbols": len(trains[0]), "precision": right / cut, "f1": 2 * right / (cut + many)}
                        per_byte = {t: float(b.sum() / size[targets[t]].sum()) for t, b in zip(targets, bits)}
                        yield json.dumps(row | per_byte) + "\n"


def main():
    if sys.argv[1:] == ["--check"]:
        return check()
    data, work = map(pathlib.Path, sys.argv[1:3])
    polysift, tokenizer = sys.argv[3:5]
    for pool in sys.argv[5:] or POOLS:
        texts = texts_of(data, pool)
        scores = scores_of(texts, pool, work, polysift)
        (work / f"results.{pool}.jsonl").write_text("".join(measure(texts, pool, scores, tokenizer)))


if __name__ == "__main__":
    main()
