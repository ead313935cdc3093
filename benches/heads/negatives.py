"""Where the negatives of heads should come from, and which languages should share a head, on labelled text.

    negatives.py DATA_DIR OUT_DIR POLYSIFT [--planted 0.08] [--positives 80] [--negatives 80] [--web 1000] [--quick] ...

DATA_DIR holds SET.LANG.jsonl.zst files. The corpus of a language is web text (at most --web texts, four times as many as
negatives) with knowledge texts planted in it. All texts have one length and no Markdown. polysift trains heads on
positives and several kinds of negatives; this script scores other texts with them. Each seed deals all texts anew by
groups: translations, and pieces of one page, are on one side. --quick leaves out heads of other languages and 3 rounds.

In the setting "same", the positives and the planted texts are other groups of the same sets. In "lessons" the planted
texts are security lessons, in "wikipedia" encyclopaedia and exams; the positives are of all other sets.
Texts are encoded once, in OUT_DIR/encoded. OUT_DIR/results-*.json has a row for each head, language and test; these
files are not made again. Prints tables. Needs numpy, scikit-learn, pyarrow and blake3.
"""

import argparse
import collections
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import blake3
import numpy as np
import pyarrow.parquet as parquet
from sklearn.metrics import average_precision_score, roc_auc_score

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "models/polysift-mini"))
from corpora import SETS, WEB_ROLES, cut, read_all, unit_hash  # noqa: E402

LENGTH = 800  # characters of every text; a third of it in Chinese and Japanese
PIECES = {"web": 3, "web-docs": 12, "news": 3, "knowledge": 6}  # of one page at most
TESTED, KNOWLEDGE = 60, 300  # knowledge texts at most: in the test of a language; of one set and language
LESSONS, WIKIPEDIA = {"security101"}, {"xquad", "exams-para", "cmrc2018", "gaokao"}
ALL = LESSONS | WIKIPEDIA | {"cncf-glossary"}
CRAWLED = ["eng", "fra", "swe", "cmn"]  # others have news and articles in place of random pages
LANGUAGES = CRAWLED + ["deu", "spa", "ita", "por", "pol", "tur", "arb", "jpn"]
FAMILIES = [{"fra", "spa", "ita", "por"}, {"eng", "deu", "swe"}, {"cmn", "jpn", "pol", "tur", "arb"}]
# Sets of positives, sets of planted texts.
SETTINGS = {"same": (ALL, ALL), "lessons": (ALL - LESSONS, LESSONS), "wikipedia": (ALL - WIKIPEDIA, WIKIPEDIA)}
ARMS = {  # negatives of a head; `None`: a file of web text without planted texts
    "file": None,
    "uniform": "corpus = {n}",
    "uniform x4": "corpus = {n4}",
    "q3": "corpus = {n}, quantiles = [0.5, 0.75]",
    "q3, 3 rounds": "corpus = {n}, quantiles = [0.5, 0.75], rounds = 3",
    "middle": "corpus = {n}, quantiles = [0.25, 0.75]",
    "hardest": "corpus = {n}, quantiles = [0.75, 1.0]",
}
SHARED, SHARINGS = ("uniform", "q3"), ("each", "families", "others", "all")  # arms of shared heads; what they serve
MEASURES = ("ap", "roc_auc", "precision", "recall_10")


def pieces(given):
    """Texts by language and set, as (group, text); none has a passage of a text of another group."""
    found, seen = collections.defaultdict(lambda: collections.defaultdict(list)), {}
    rows = [row for row in read_all(given.data) if SETS[row.set_name].role in PIECES]
    rows.sort(key=lambda row: (SETS[row.set_name].role == "knowledge", unit_hash(row.group + row.id, "order")))
    for row in rows:
        language, role = row.language[:3], SETS[row.set_name].role
        name, limit = ("web", given.web) if role in WEB_ROLES else (row.set_name, KNOWLEDGE)
        if language not in given.languages or name not in {"web"} | ALL:
            continue
        most = LENGTH // 3 if language in ("cmn", "jpn") else LENGTH
        text = re.sub(r"\s+", " ", re.sub(r"[#*`|>_\[\]]+", " ", row.text)).strip()
        for _ in range(PIECES[role]):
            if len(text) < 0.85 * most or len(found[language][name]) >= limit:
                break
            piece = cut(text, most)
            text = text[len(piece):].lstrip()
            passages = {piece[at : at + 40] for at in range(len(piece) - 40)}
            if all(seen.get(passage, row.group) == row.group for passage in passages):
                seen.update(dict.fromkeys(passages, row.group))
                found[language][name].append((row.group, piece))
    return found


def deal(given, found, setting, seed):
    """The texts of each part by language, without languages that have too few of a kind."""
    (of_positives, of_planted), dealt = SETTINGS[setting], {}
    planted_until, tested_until, positives_from = (0.25, 0.6, 0.6) if setting == "same" else (0.4, 1, 0)
    for language in found:
        def part(name, low, high):
            of_part = (text for group, text in found[language][name] if low <= unit_hash(group, f"negatives {seed}") < high)
            return sorted(of_part, key=lambda text: (unit_hash(text, f"{seed}"), text))

        def in_turns(sets, low, high, count):
            turns = itertools.zip_longest(*(reversed(part(name, low, high)) for name in sorted(sets)))
            return [text for turn in turns for text in turn if text is not None][:count]

        web = part("web", 0, 0.6)[: 4 * given.negatives]
        num_planted = round(len(web) * given.planted / (1 - given.planted))
        planted = in_turns(of_planted, 0, planted_until, num_planted)
        tested = in_turns(of_planted, planted_until, tested_until, TESTED)
        positives = in_turns(of_positives, positives_from, 1, given.positives)
        if min(len(positives), len(tested)) >= 20 and len(planted) >= min(num_planted, 20):
            dealt[language] = {"corpus": web + planted, "file": part("web", 0.6, 0.8)[: given.negatives],
                               "num_web": len(web), "positives": positives, "tested": tested, "web": part("web", 0.8, 1)}
    return dealt


def write(path, texts, label):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text in texts))


def train(given, settings, run):
    run.with_suffix(".toml").write_text(settings)
    subprocess.run([given.polysift, "train", "--config", run.with_suffix(".toml"), "--run", run, "--quiet"], check=True)


def encode(given, found):
    """Vectors by digest of the text: polysift keeps those of the samples of a head, which is not used."""
    run, files = given.out / "encoded", [str(given.out / f"texts/{label}.jsonl") for label in ("positive", "negative")]
    if not run.exists():
        texts = [text for sets in found.values() for of_set in sets.values() for _, text in of_set]
        for number, file in enumerate(files):
            write(pathlib.Path(file), texts[number::2], number)
        train(given, f'[heads.unused]\nkind = "logistic"\nlanguages = "all"\ntrain = {json.dumps(files)}\n', run)
    vectors = {}
    for path in sorted((run / "samples").glob("*/*.parquet")):
        table = parquet.read_table(path)
        values = np.stack([np.asarray(value[0], dtype=np.float32) for value in table["embeddings"].to_pylist()])
        vectors |= zip(table["id"].to_pylist(), values)
    return vectors


def heads(given, folder, languages, kind):
    """Settings of the heads of one deal, and the arm and the sharing of each."""
    families = [sorted(family & set(languages)) for family in FAMILIES]
    # Families differ in size, so each has a head of its own.
    shared = [("families", [family], len(family)) for family in families if family]
    shared += [("all", "all", len(languages))] + [("others", "others", len(languages) - 1)] * (not given.quick)
    lines, names = [f'[input]\nfiles = ["{folder}/corpus/{{lang}}.jsonl"]\n'], {}
    for arm, negatives in [item for item in ARMS.items() if not given.quick or "rounds" not in item[0]]:
        for sharing, served, count in [("each", "each", 1)] + shared * (arm in SHARED and len(languages) > len(FAMILIES)):
            name = f"head{len(names)}"
            names[name] = (arm, sharing)
            files = [f"{folder}/positives/{{lang}}.jsonl"] + [f"{folder}/file/{{lang}}.jsonl"] * (negatives is None)
            lines.append(f'[heads.{name}]\nkind = "{kind}"\ntrain = {json.dumps(files)}\nlanguages = {json.dumps(served)}\n')
            if negatives is not None:
                drawn = negatives.format(n=given.negatives * count, n4=4 * given.negatives * count)
                lines.append(f"negatives = {{ {drawn} }}\n")
    return "".join(lines), names


def logits(path, x):
    content = path.read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    values = {name: np.frombuffer(content[size:][slice(*about["data_offsets"])], "<f4").reshape(about["shape"])
              for name, about in json.loads(content[8:size]).items() if name != "__metadata__"}
    layers = sorted(name.removesuffix(".weight") for name in values if name.endswith(".weight"))
    for layer in layers:
        x = x @ values[f"{layer}.weight"].T + values[f"{layer}.bias"]
        x = np.maximum(x, 0) if layer != layers[-1] else x
    return x[:, 0]


def measures(scores, labels, share):
    """The texts weigh as in a corpus with this share of positives; at that rate, the precision is the recall too."""
    weights = np.where(labels, share / labels.sum(), (1 - share) / (~labels).sum())
    order = np.argsort(-scores, kind="stable")
    at = lambda rate: np.interp(rate, np.cumsum(weights[order]), np.cumsum((weights * labels)[order]))
    return {"roc_auc": roc_auc_score(labels, scores), "ap": average_precision_score(labels, scores, sample_weight=weights),
            "precision": at(share) / share, "recall_10": at(0.1) / share}


def one_deal(given, found, vectors, kind, setting, seed):
    """Trains the heads of a kind on one deal, and returns a row for each and each language that it serves."""
    dealt, folder, results = deal(given, found, setting, seed), given.out / f"{kind}-{setting}-{seed}", []
    run = folder / "run"
    shutil.rmtree(folder, ignore_errors=True)
    for language, texts in dealt.items():
        for name, label in {"corpus": None, "positives": 1, "file": 0}.items():
            write(folder / f"{name}/{language}.jsonl", texts[name], label)
    shutil.copytree(given.out / "encoded/samples", run / "samples", copy_function=os.link)
    settings, names = heads(given, folder, list(dealt), kind)
    train(given, f"seed = {seed}\n{settings}", run)
    for path in sorted((run / "heads").glob("*/*.safetensors")):
        arm, sharing = names[path.parent.name]
        lists = [file for file in path.parent.glob("*.jsonl") if path.stem in file.name.split(".")[0].split("+")]
        drawn = [json.loads(line) for file in lists for line in file.read_text().splitlines()]
        planted = sum(place["row"] >= dealt[pathlib.Path(place["file"]).stem]["num_web"] for place in drawn)
        for language in dealt if path.stem == "_all" else [path.stem]:
            tested, web = dealt[language]["tested"], dealt[language]["web"]
            x = np.stack([vectors[blake3.blake3(text.encode()).hexdigest()] for text in tested + web])
            labels = np.arange(len(x)) < len(tested)
            row = {"kind": kind, "setting": setting, "seed": seed, "arm": arm, "sharing": sharing, "language": language,
                   "planted": planted / max(len(drawn), 1)}
            results.append(row | measures(logits(path, x), labels, given.planted))
    shutil.rmtree(folder)
    return results


def difference(rows, measure, one, other, repeats=4000):
    """Mean difference of two heads, given as (sharing, arm), with its 95% interval: a bootstrap that draws languages, and
    seeds for each. Settings of a language stay together."""
    pairs, by_language = (collections.defaultdict(lambda: collections.defaultdict(dict)) for _ in range(2))
    for row in rows:
        pairs[row["language"], row["seed"]][row["setting"]][row["sharing"], row["arm"]] = row[measure]
    for (language, seed), settings in pairs.items():
        by_language[language][seed] = np.mean([pair[one] - pair[other] for pair in settings.values()])
    values, random = [list(of_seed.values()) for of_seed in by_language.values()], np.random.default_rng(7)
    draw = lambda items: [items[at] for at in random.integers(0, len(items), len(items))]
    means = [np.mean([np.mean(draw(seeds)) for seeds in draw(values)]) for _ in range(repeats)]
    low, high = np.percentile(means, [2.5, 97.5])
    return f"{np.mean([np.mean(seeds) for seeds in values]):+.3f} ({low:+.3f} to {high:+.3f})"


def report(rows):
    """Prints tables of heads: means, and differences from own heads with uniform negatives, and from uniform ones alone."""
    parts = {"all": lambda row: True} | {name: lambda row, name=name: row["setting"] == name for name in SETTINGS}
    parts |= {"crawled": lambda row: row["language"] in CRAWLED, "web-like": lambda row: row["language"] not in CRAWLED}
    for kind, part, measure in itertools.product(sorted({row["kind"] for row in rows}), parts, MEASURES):
        chosen = [row for row in rows if row["kind"] == kind and parts[part](row)]
        print(f"\n{kind}, {part}, {measure}\n\n| languages | negatives | planted, of them | mean | less each, uniform "
              "| less uniform |\n|---|---|---|---|---|---|")
        for of in itertools.product(SHARINGS, ARMS):
            if of_head := [row for row in chosen if (row["sharing"], row["arm"]) == of]:
                mean, planted = (np.mean([row[name] for row in of_head]) for name in (measure, "planted"))
                less = [difference(chosen, measure, of, other) for other in (("each", "uniform"), (of[0], "uniform"))]
                print("|", " | ".join([*of, f"{planted:.3f}", f"{mean:.3f}", *less]), "|")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("data", "out", "polysift"):
        parser.add_argument(name, type=lambda path: pathlib.Path(path).absolute())
    for name, number in {"seeds": 5, "planted": 0.08, "positives": 80, "negatives": 80, "web": 1000}.items():
        parser.add_argument(f"--{name}", type=type(number), default=number)
    for name, values in {"kinds": ["logistic", "mlp"], "languages": LANGUAGES, "settings": list(SETTINGS)}.items():
        parser.add_argument(f"--{name}", nargs="+", choices=values, default=values)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    vectors = encode(given, found := pieces(given))
    for seed, kind, setting in itertools.product(range(1, given.seeds + 1), given.kinds, given.settings):
        path = given.out / f"results-{kind}-{setting}-{seed}.json"
        if not path.exists():
            path.write_text(json.dumps(one_deal(given, found, vectors, kind, setting, seed)))
    report([row for path in sorted(given.out.glob("results-*.json")) for row in json.loads(path.read_text())])


if __name__ == "__main__":
    main()
