"""How often the promise of a cascade holds, and what it costs, on stored scores; thresholds by SciPy.

    cascade.py FULL CORPUS TOKENIZER PASS=RUN ... > table.md

FULL is a run without a cascade over CORPUS/<language>/<shard>.jsonl, each RUN one with the first pass PASS, of which
`polysift cascade` is done; TOKENIZER is the encoder's tokenizer.json, and tokens are those of first chunks. A repetition
draws an evaluation half of the language, makes its threshold as docs/cascade.md says, and counts what that loses of
the whole language. Needs numpy, scipy, pyarrow and tokenizers.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy.stats import binom
from tokenizers import Tokenizer

REPETITIONS = 1000
RATES = [0.05, 0.1, 0.33]
RECALLS = [0.995, 0.98, 0.95]
# A recall that an evaluation half of so many documents can promise at a confidence of 0.99.
HALF, CONFIDENCE = 1500, 0.99
MAX_BYTES = 1800  # about 512 tokens
MAX_TOKENS = 512


def scores(folder):
    """Bytes and score by shard and row."""
    found = {}
    for path in sorted(folder.glob("*/*.parquet")):
        table = pq.read_table(path, columns=["row", "num_bytes", "logit"]).to_pydict()
        for row, num_bytes, logit in zip(*table.values()):
            found[path.parent.name, row] = (num_bytes, logit)
    return found


def token_counts(folder, tokenizer):
    """Tokens of the first chunk by shard and row."""
    found = {}
    for path in sorted(folder.glob("*.jsonl")):
        texts = [json.loads(line)["text"] for line in path.open()]
        for row, encoding in enumerate(tokenizer.encode_batch(texts)):
            found[path.stem, row] = len(encoding.ids)
    return found


def allowed_misses(n, p, risk):
    x = int(binom.ppf(risk, n, p)) + 1
    while x >= 0 and binom.cdf(x, n, p) > risk:
        x -= 1
    return x


def rank(n, rate, risk):
    k = int(n * rate) - 1
    while binom.sf(k, n, rate) > risk:
        k += 1
    return k


def main():
    full_run, corpus, tokenizer, *passes = sys.argv[1:]
    tokenizer = Tokenizer.from_file(tokenizer)
    tokenizer.enable_truncation(MAX_TOKENS)
    random = np.random.default_rng(1)
    risk = (1 - CONFIDENCE) / 2
    costs, promises = [], []
    for folder in sorted(Path(full_run, "scores/quality").iterdir()):
        full, tokens = scores(folder), token_counts(Path(corpus, folder.name), tokenizer)
        keys = sorted(full)
        value = np.array([full[key][1] for key in keys])
        size = np.array([tokens[key] for key in keys], float)
        n, order = len(keys), np.argsort(-value, kind="stable")
        for name, run in (argument.split("=") for argument in passes):
            cheap = scores(Path(run, "cascade/scores", folder.name))
            if not cheap:
                continue
            cheap = np.array([cheap[key][1] for key in keys])
            prefix = int(name.removeprefix("prefix-")) if name.startswith("prefix-") else 0
            of_pass = np.minimum(size, prefix).sum() / size.sum()
            for rate in RATES:
                kept = np.zeros(n, bool)
                kept[order[: int(np.ceil(rate * n))]] = True
                cells = [folder.name, name, f"{of_pass:.1%}", f"{rate}", f"{size[kept].sum() / size.sum():.1%}"]
                for recall in RECALLS:
                    lowest = np.sort(cheap[kept])[int((1 - recall) * kept.sum())]
                    passed = cheap >= lowest
                    cells.append(f"{passed.mean():.1%} / {size[passed].sum() / size.sum():.1%}")
                costs.append(cells)
                # The largest recall of these that the half can promise.
                for recall in [0.98, 0.97, 0.95, 0.9]:
                    allowed = allowed_misses(HALF, (1 - recall) * rate, risk)
                    if allowed >= 0:
                        break
                else:
                    continue
                wide, held, recalls, shares = rank(HALF, rate, risk), 0, [], []
                for _ in range(REPETITIONS):
                    half = random.choice(n, HALF, replace=False)
                    best = half[np.argsort(-value[half], kind="stable")[:wide]]
                    threshold = np.sort(cheap[best])[allowed]
                    found = (cheap[kept] >= threshold).mean()
                    held += found >= recall
                    recalls.append(found)
                    shares.append((cheap >= threshold).mean())
                promises.append([folder.name, name, f"{rate}", f"{recall}", f"{held / REPETITIONS:.1%}",
                                 f"{np.mean(recalls):.4f}", f"{np.min(recalls):.4f}", f"{np.mean(shares):.1%}"])
    for titles, rows in [
        (["language", "first pass", "tokens of it", "rate", "tokens of the kept"] + [f"recall {r}" for r in RECALLS], costs),
        (["language", "first pass", "rate", "promised", "held", "mean recall", "least", "documents encoded"], promises),
    ]:
        for cells in [titles, ["---"] * len(titles)] + rows:
            print("| " + " | ".join(cells) + " |")
        print()


if __name__ == "__main__":
    main()
