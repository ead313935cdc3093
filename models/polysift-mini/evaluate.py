"""Evaluate a model directory on held-out text, beside a bag-of-words baseline.

Usage: evaluate.py DATA_DIR MODEL_DIR

Three questions, per language, on rows that are held out from the encoder's training (corpora.py):
does a small head on the frozen mean-pooled embedding tell knowledge-rich text from web-like text of
the same length; does it still when the knowledge-rich text comes from a set that the head has not
seen; and does it tell toxic from non-toxic text of the same sets? Heads are trained and tested on
different groups. Results go to a JSON file and, as tables, to standard output. The encoder computes in bf16 where
the processor does.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import StandardScaler

from corpora import SETS, WEB_ROLES, Row, held_out, matched_pairs, read_all, sections, unit_hash, \
    with_text
from packed import fast_products, load_model
from vocabulary import MAX_LENGTH, PAD, load_tokenizer

SEED = 5
TEST_SHARE = 0.5
MAX_PAIRS = 300
MAX_CHARS = 1_000
SECTION_CHARS = 1_300
MIN_CLASS_ROWS = 30
SHORT_SETS = ("jcommonsenseqa",)
BATCH = 32


@dataclass(frozen=True)
class Example:
    """A text, its class, and the group that decides between head training and test."""

    text: str
    positive: bool
    group: str
    source: str
    pair: int = -1

    @property
    def is_test(self) -> bool:
        return unit_hash(self.group, "evaluation") < TEST_SHARE


@dataclass(frozen=True)
class Result:
    """Areas under the ROC curve for one language, and on what they rest."""

    task: str
    language: str
    train: int
    test: int
    linear: float
    mlp: float
    words: float
    positive_sets: list[str]
    negative_sets: list[str]


class Embedder:
    """Mean over all tokens of the last hidden state, for the first 512 tokens of a text."""

    def __init__(self, model_dir: Path) -> None:
        self.model = load_model(model_dir)
        self.tokenizer = load_tokenizer(model_dir / "tokenizer.json")
        self.tokenizer.enable_truncation(MAX_LENGTH)

    @torch.no_grad()
    def __call__(self, texts: list[str]) -> np.ndarray:
        """One row per text."""
        token_ids = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        order = sorted(range(len(texts)), key=lambda i: len(token_ids[i]))
        vectors = np.empty((len(texts), self.model.config.hidden_size), dtype=np.float32)
        for start in range(0, len(order), BATCH):
            chosen = order[start:start + BATCH]
            vectors[chosen] = self._batch([token_ids[i] for i in chosen])
        return vectors

    def _batch(self, token_ids: list[list[int]]) -> np.ndarray:
        width = max(map(len, token_ids))
        ids = torch.tensor([row + [PAD] * (width - len(row)) for row in token_ids])
        mask = (ids != PAD).long()
        with fast_products():
            hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        return ((hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)).numpy()


def shuffled(rows: list[Row], salt: str) -> list[Row]:
    """Rows in a seeded random order."""
    rows = sorted(rows, key=lambda row: (row.source, row.id, row.text))
    random.Random(f"{SEED}/{salt}").shuffle(rows)
    return rows


def pieces(row: Row) -> list[Row]:
    """Crawled pages whole, other long documents in sections."""
    if SETS[row.set_name].role == "web":
        return [row]
    return [with_text(row, part) for part in sections(row.text, SECTION_CHARS)]


def quality_examples(rows: list[Row], language: str) -> list[Example]:
    """Knowledge-rich and web-like texts, paired by length inside each half of the split.

    Where crawled pages exist they alone are the negatives; elsewhere news, web articles and
    comments stand in.
    """
    parts = [piece for row in rows for piece in pieces(row)]
    positives = [row for row in parts
                 if SETS[row.set_name].role == "knowledge" and row.set_name not in SHORT_SETS]
    negatives = [row for row in parts if SETS[row.set_name].role in WEB_ROLES]
    crawled = [row for row in negatives if SETS[row.set_name].role == "web"]
    negatives = crawled or negatives
    examples = []
    for test in (False, True):
        half = [[row for row in side if (unit_hash(row.group, "evaluation") < TEST_SHARE) == test]
                for side in (positives, negatives)]
        pairs = matched_pairs(balanced_sets(half[0], MAX_PAIRS // 2, language),
                              shuffled(half[1], f"{language}/negative"), MAX_CHARS)
        for pair in pairs:
            number = len(examples) // 2
            examples += [Example(row.text, row is pair[0], row.group, row.source, number)
                         for row in pair]
    return examples


def balanced_sets(rows: list[Row], count: int, salt: str) -> list[Row]:
    """Up to ``count`` rows, the sets taking turns."""
    queues: dict[str, list[Row]] = {}
    for row in shuffled(rows, salt):
        queues.setdefault(row.set_name, []).append(row)
    picked: list[Row] = []
    while len(picked) < count and any(queues.values()):
        picked += [queues[name].pop() for name in sorted(queues) if queues[name]]
    return picked[:count]


def toxicity_examples(rows: list[Row], language: str) -> list[Example]:
    """As many toxic as non-toxic rows of each toxicity set: the domain tells nothing."""
    examples = []
    labelled = [row for row in rows if SETS[row.set_name].role == "toxicity"]
    for set_name in sorted({row.set_name for row in labelled}):
        of_set = [row for row in labelled if row.set_name == set_name]
        classes = [shuffled([row for row in of_set if row.label == label],
                            f"{language}/{set_name}/{label}") for label in (0, 1)]
        count = min(MAX_PAIRS, *map(len, classes))
        examples += [Example(row.text, bool(label), row.group, row.source)
                     for label in (0, 1) for row in classes[label][:count]]
    return examples


def word_baseline():
    """Logistic regression on hashed words and character n-grams."""
    features = make_union(
        HashingVectorizer(n_features=2 ** 18, ngram_range=(1, 2), alternate_sign=False),
        HashingVectorizer(n_features=2 ** 18, analyzer="char_wb", ngram_range=(2, 4),
                          alternate_sign=False))
    return make_pipeline(features, LogisticRegression(C=10.0, max_iter=500))


def heads() -> dict:
    """The small heads on frozen embeddings."""
    linear = LogisticRegression(C=0.1, max_iter=2_000)
    mlp = MLPClassifier((64,), alpha=1.0, max_iter=120, early_stopping=False, random_state=SEED)
    return {"linear": make_pipeline(StandardScaler(), linear),
            "mlp": make_pipeline(StandardScaler(), mlp)}


def auc(model, train: tuple, test: tuple) -> float:
    """Fit on one half, area under the ROC curve on the other."""
    model.fit(*train)
    return round(float(roc_auc_score(test[1], model.predict_proba(test[0])[:, 1])), 3)


def embedded(examples: list[Example], embed: Embedder) -> list[tuple[Example, np.ndarray]]:
    """Each example with its vector."""
    return list(zip(examples, embed([e.text for e in examples]), strict=True))


def areas(data: list[tuple[Example, np.ndarray]], train: list[int],
          test: list[int]) -> dict[str, float]:
    """Heads and baseline, fitted on some of the examples and tested on others."""
    labels = np.array([example.positive for example, _ in data], dtype=bool)
    vectors = np.stack([vector for _, vector in data])
    found = {name: auc(head, (vectors[train], labels[train]), (vectors[test], labels[test]))
             for name, head in heads().items()}
    texts = [example.text for example, _ in data]
    found["words"] = auc(word_baseline(), ([texts[i] for i in train], labels[train]),
                         ([texts[i] for i in test], labels[test]))
    return found


def enough(data: list[tuple[Example, np.ndarray]], chosen: list[int]) -> bool:
    """Whether both classes have rows enough to fit or to test on."""
    positives = sum(data[i][0].positive for i in chosen)
    return min(positives, len(chosen) - positives) >= MIN_CLASS_ROWS


def describe(task: str, language: str, examples: list[Example], counts: tuple[int, int],
             found: dict[str, float]) -> Result:
    """A result with the names of the sets of both classes."""
    sets = [sorted({e.source.split(".")[0] for e in examples if e.positive == side})
            for side in (True, False)]
    return Result(task, language, *counts, positive_sets=sets[0], negative_sets=sets[1], **found)


def same_sets(task: str, language: str,
              data: list[tuple[Example, np.ndarray]]) -> Result | None:
    """Train and test on different groups of the same sets."""
    train, test = ([i for i, (e, _) in enumerate(data) if e.is_test == side]
                   for side in (False, True))
    if not (enough(data, train) and enough(data, test)):
        return None
    return describe(task, language, [e for e, _ in data], (len(train), len(test)),
                    areas(data, train, test))


def unseen_sets(language: str, data: list[tuple[Example, np.ndarray]]) -> Result | None:
    """Test each knowledge-rich set on heads that were trained without it; mean over the sets."""
    set_of_pair = {e.pair: e.source for e, _ in data if e.positive}
    results, sizes, tested = [], [], []
    for source in sorted(set(set_of_pair.values())):
        train = [i for i, (e, _) in enumerate(data)
                 if set_of_pair[e.pair] != source and not e.is_test]
        test = [i for i, (e, _) in enumerate(data) if set_of_pair[e.pair] == source and e.is_test]
        if enough(data, train) and enough(data, test):
            results.append(areas(data, train, test))
            sizes.append((len(train), len(test)))
            tested += [data[i][0] for i in test]
    if not results:
        return None
    means = {name: round(float(np.mean([found[name] for found in results])), 3)
             for name in results[0]}
    train_size, test_size = np.mean(sizes, axis=0).round().astype(int).tolist()
    return describe("unseen", language, tested, (train_size, test_size), means)


def table(results: list[Result]) -> str:
    """A Markdown table of one task."""
    lines = ["| language | train / test | linear head | MLP head | words baseline | positives | "
             "negatives |", "|---|---|---|---|---|---|---|"]
    for r in results:
        lines.append(f"| {r.language} | {r.train} / {r.test} | {r.linear:.3f} | {r.mlp:.3f} | "
                     f"{r.words:.3f} | {', '.join(r.positive_sets)} | "
                     f"{', '.join(r.negative_sets)} |")
    means = [np.mean([getattr(r, name) for r in results]) for name in ("linear", "mlp", "words")]
    lines.append("| mean | | " + " | ".join(f"{mean:.3f}" for mean in means) + " | | |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data_dir", type=Path, help="directory of SET.LANG.jsonl.zst files")
    parser.add_argument("model_dir", type=Path, help="directory of the model to evaluate")
    parser.add_argument("--out", type=Path, help="results (default: MODEL_DIR/evaluation.json)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = [row for row in read_all(args.data_dir) if held_out(row.set_name, row.group)]
    embed = Embedder(args.model_dir)
    results: dict[str, list[Result | None]] = {"quality": [], "unseen": [], "toxicity": []}
    for language in sorted({row.language for row in rows}):
        own = [row for row in rows if row.language == language]
        quality = embedded(quality_examples(own, language), embed)
        results["quality"].append(same_sets("quality", language, quality))
        results["unseen"].append(unseen_sets(language, quality))
        toxicity = embedded(toxicity_examples(own, language), embed)
        results["toxicity"].append(same_sets("toxicity", language, toxicity))
    found = {task: [result for result in of_task if result] for task, of_task in results.items()}
    for task, of_task in found.items():
        print(f"{task}\n\n{table(of_task)}\n")
    content = {task: [asdict(result) for result in of_task] for task, of_task in found.items()}
    out = args.out or args.model_dir / "evaluation.json"
    out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
