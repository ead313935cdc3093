"""Toxicity heads of many languages, tested on sets that they have not seen.

    toxicity.py DATA_DIR OUT_DIR POLYSIFT [--model MODEL] [--texts 1500] [--tested 500]

DATA_DIR holds SET.LANG.jsonl.zst files with labels. Of every set and language, --texts texts are drawn, and as many
toxic ones as others; where texts name the groups that they attack, the toxic ones are drawn equally from all of them.
Equal texts are drawn once. polysift trains a logistic head and an MLP of all languages on every set but one (`mhc`,
translated templates, counts as one set in all its languages), and scores --tested texts of each class of that set.
For comparison, a head of all sets learns from four fifths of the texts of each, and is tested on the rest (`seen`).
Prints ROC-AUC and its 95% interval as `polysift evaluate` gives it, as a Markdown table, and a mean over sets with an
interval of a bootstrap over sets. Needs zstd; no packages.
"""

import argparse
import collections
import hashlib
import json
import pathlib
import random
import subprocess

SETS = ["davidson", "germeval2018", "cold", "swsr", "told-br", "mlma", "mhc"]
KINDS = {"logistic": "kind = 'logistic'\npreset = 'toxicity'\noutput = 'sigmoid'", "mlp": "preset = 'toxicity'"}
SEEN = 0.8
DRAWS = 2000


def unit(text):
    """A number in [0, 1) that is uniform over texts."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def drawn(rows, count):
    """`count` rows in the order of a hash, equally many of each attacked group."""
    groups = collections.defaultdict(list)
    for row in sorted(rows, key=lambda row: unit("order" + row["text"])):
        groups[(row.get("dims") or [""])[0]].append(row)
    found = []
    while len(found) < count and any(groups.values()):
        found += [group.pop(0) for group in groups.values() if group]
    return found[:count]


def read(folder, count):
    """Rows by set and language: equally many of both classes."""
    found = {}
    for name in SETS:
        for path in sorted(folder.glob(f"{name}.*.jsonl.zst")):
            lines = subprocess.run(["zstd", "-dc", path], check=True, capture_output=True).stdout.decode().split("\n")
            rows = list({row["text"]: row for row in map(json.loads, filter(None, lines))}.values())
            classes = [[row for row in rows if row["label"] == label] for label in (0, 1)]
            size = min(count // 2, *map(len, classes))
            found[name, path.name.split(".")[1]] = drawn(classes[0], size) + drawn(classes[1], size)
    return found


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = ("id", "text", "label")
    path.write_text("".join(json.dumps({key: row[key] for key in keys}, ensure_ascii=False) + "\n" for row in rows))


def settings(given, sets):
    """Settings of a run with a head of each kind for each set that is left out, and of all (`seen`)."""
    lines = ["[input]", "id = 'id'", "[encoder]", f"model = {json.dumps(given.model)}"]
    for left_out in [*SETS, "seen"]:
        by_language = collections.defaultdict(list)
        for (name, language), rows in sets.items():
            if left_out == "seen":
                by_language[language] += [row for row in rows if unit(row["text"]) < SEEN]
            elif name != left_out:
                by_language[language] += rows
        for language, rows in by_language.items():
            write(given.out / "train" / left_out / f"{language}.jsonl", rows)
        for kind, keys in KINDS.items():
            files = json.dumps([str(given.out / "train" / left_out / "{lang}.jsonl")])
            lines.append(f"[heads.{kind}_{left_out.replace('-', '_')}]\n{keys}\ntrain = {files}\nlanguages = 'all'")
    (given.out / "run.toml").write_text("\n".join(lines) + "\n")


def tested(given, head, language, rows):
    """ROC-AUC of `head` on `rows`, with its interval."""
    path = given.out / "test" / f"{language}.jsonl"
    write(path, rows)
    file = given.out / "run/heads" / head / "_all.safetensors"
    command = [given.polysift, "evaluate", f"head={file}", "--data", path, "--language", language, "--model", given.model,
               "--set", "heads.head.preset='toxicity'", "--json", "--quiet"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    row = report["measures"][0]
    return row["roc_auc"], row["roc_auc_low"], row["roc_auc_high"]


def main():
    parser = argparse.ArgumentParser()
    for name in ("data", "out"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("polysift")
    parser.add_argument("--model", default="polysift-mini")
    parser.add_argument("--texts", type=int, default=1500)
    parser.add_argument("--tested", type=int, default=500)
    given = parser.parse_args()
    sets = read(given.data, given.texts)
    settings(given, sets)
    command = [given.polysift, "train", "-c", given.out / "run.toml", "--run", given.out / "run", "--quiet"]
    subprocess.run(command, check=True)
    areas = collections.defaultdict(lambda: collections.defaultdict(list))
    print("| set | language | texts | " + " | ".join(f"{kind}, {how}" for kind in KINDS for how in ("unseen", "seen")) + " |")
    print("|---|---|---|" + "---|" * 2 * len(KINDS))
    for (name, language), rows in sets.items():
        classes = [[row for row in rows if row["label"] == label][: given.tested] for label in (0, 1)]
        cells = [name, language, str(sum(map(len, classes)))]
        for kind in KINDS:
            for how in (name, "seen"):
                part = sum(classes, []) if how == name else [row for row in rows if unit(row["text"]) >= SEEN]
                area, low, high = tested(given, f"{kind}_{how.replace('-', '_')}", language, part)
                areas[kind, how == name][name].append(area)
                cells.append(f"{area:.3f} ({low:.3f} to {high:.3f})")
        print("| " + " | ".join(cells) + " |", flush=True)
    for (kind, is_unseen), by_set in areas.items():
        means = [sum(found) / len(found) for found in by_set.values()]
        chance = random.Random(1)
        drawn_means = sorted(sum(chance.choices(means, k=len(means))) / len(means) for _ in range(DRAWS))
        low, high = drawn_means[DRAWS // 40], drawn_means[-DRAWS // 40]
        print(f"{kind}, {'unseen' if is_unseen else 'seen'}: {sum(means) / len(means):.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
