"""Heads trained on documents that `polysift sample` chose, beside heads trained on random ones.

    python benches/sampling.py POLYSIFT OUT_DIR [SEEDS]

Simulates rounds of annotation on tests/sample/labelled, whose labels answer in the place of annotators. Of each set
(quality, toxicity; all languages together) three tenths are held out by group; the others are the corpus, with so
many positives left that they are a tenth of it. A round of FIRST random documents trains a first head, a second
round of SECOND documents is drawn with each share NEAR near the threshold, and a logistic head is trained on both rounds. Every seed draws
anew. Printed are the mean and the standard error over the seeds of ROC-AUC and average precision on what was held
out, and of the difference from random documents. Needs zstdcat; no packages.
"""

import hashlib
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

SAMPLE = Path(__file__).resolve().parent.parent / "tests/sample/labelled"
POSITIVE = {"positive", "toxic"}
SHARE = 0.1
FIRST, SECOND = 60, 240
NEAR = [None, 0.8, 1]


def draw(text):
    """A number in [0, 1) that is uniform over texts."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def read(task):
    rows = []
    for path in sorted((SAMPLE / task).glob("*.jsonl.zst")):
        lines = subprocess.run(["zstdcat", path], check=True, capture_output=True, text=True).stdout
        rows += [json.loads(line) for line in lines.splitlines()]
    return {row["id"]: row for row in rows}


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


class Simulation:
    def __init__(self, polysift, out, task):
        self.polysift, self.out = polysift, out / task
        shutil.rmtree(self.out, ignore_errors=True)
        rows = list(read(task).values())
        group = lambda row: row["id"].split("#")[0]
        held = [row for row in rows if draw("held " + group(row)) < 0.3]
        corpus = [row for row in rows if draw("held " + group(row)) >= 0.3]
        negatives = [row for row in corpus if row["label"] not in POSITIVE]
        positives = sorted((row for row in corpus if row["label"] in POSITIVE), key=lambda row: draw(row["id"]))
        corpus = negatives + positives[: round(len(negatives) * SHARE / (1 - SHARE))]
        corpus.sort(key=lambda row: draw("order " + row["id"]))
        self.labels = {row["id"]: row["label"] for row in corpus}
        self.size = len(corpus)
        self.corpus = write(self.out / "corpus.jsonl", ({"id": r["id"], "text": r["text"]} for r in corpus))
        self.held = {row["id"]: row["label"] in POSITIVE for row in held}
        held = write(self.out / "held.jsonl", ({"id": r["id"], "text": r["text"]} for r in held))
        for name, file in (("run", self.corpus), ("held", held)):
            self.run("embed", file, "--run", self.out / name, "--chunks", "first")

    def run(self, *arguments):
        command = [self.polysift, *map(str, arguments), "--quiet"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def sample(self, name, count, near, seed, *more):
        """Draws and annotates a round."""
        out = self.out / name
        out.unlink(missing_ok=True)
        more += ("--near", near) if near else ()
        self.run("sample", self.out / "run", "--out", out, "--count", count, "--seed", seed, *more)
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        return write(out, ({**row, "label": self.labels[row["id"]]} for row in rows)), rows

    def train(self, run, files, *redo):
        head = f"heads.head={{kind='logistic', train={json.dumps([str(file) for file in files])}}}"
        self.run("train", "--run", run, "--set", head, *redo)
        return run / "heads/head/_all.safetensors"

    def round(self, near, seed):
        """The measures of a head trained on two rounds, the second of which is drawn with `near`."""
        run = self.out / "run"
        first, _ = self.sample("first.jsonl", FIRST, None, seed)
        self.train(run, [first], "--redo", "train")
        self.run("score", "--run", run)
        second, rows = self.sample("second.jsonl", SECOND, near, seed, "--exclude", first, "--rate", SHARE)
        found = sum(self.labels[row["id"]] in POSITIVE for row in rows)
        head = self.train(run, [first, second], "--redo", "train")
        return *self.measures(head), found

    def measures(self, head):
        """ROC-AUC and average precision of a head on what was held out: a sample of all of it has its scores."""
        out = self.out / "scores.jsonl"
        out.unlink(missing_ok=True)
        self.run("score", "--run", self.out / "held", "--head", f"head={head}", "--redo", "score")
        self.run("sample", self.out / "held", "--out", out, "--count", len(self.held))
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        rows = [(row["scores"]["head"], self.held[row["id"]]) for row in rows for _ in range(row["copies"])]
        rows.sort(reverse=True)
        positives = negatives = won = precisions = 0
        for place, (_, is_positive) in enumerate(rows, 1):
            positives, negatives = positives + is_positive, negatives + (not is_positive)
            won += 0 if is_positive else positives
            precisions += positives / place if is_positive else 0
        return won / (positives * negatives), precisions / positives


def mean(values):
    return f"{statistics.mean(values):.4f} ± {statistics.stdev(values) / len(values) ** 0.5:.4f}"


def main(polysift, out, seeds):
    print("| set | documents | --near | positives | ROC-AUC | average precision | ROC-AUC gained |")
    print("|---|---|---|---|---|---|---|")
    for task in ("quality", "toxicity"):
        simulation = Simulation(polysift, out, task)
        random = None
        for near in NEAR:
            areas, precisions, found = zip(*(simulation.round(near, seed) for seed in range(seeds)))
            random = random or areas
            gained = "" if near is None else mean([a - b for a, b in zip(areas, random)])
            cells = [task, simulation.size, near or 0, f"{statistics.mean(found):.1f}", mean(areas), mean(precisions), gained]
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 10)
