"""Thresholds of reference mode, as numpy computes them.

    python tests/golden/quantiles.py tests/golden/select/quantiles.json

Floats are written as their bits, so that the comparison is exact. The sampled case follows
fineweb2-hq `mlp.py`: the first floor(1,000,000 / files) scores of each file.
"""

import json
import sys

import numpy as np


def bits(value, dtype):
    return int(np.asarray(value, dtype=dtype).view({"f4": np.uint32, "f8": np.uint64}[dtype]))


def case(name, scores, rate):
    scores = np.asarray(scores, dtype=np.float32)
    above = np.quantile(scores.astype(np.float64), 1 - rate)
    below = np.quantile(scores.astype(np.float64), rate)
    return {
        "name": name,
        "scores": [bits(s, "f4") for s in scores],
        "rate": str(rate),
        # kept above: a retention of high scores, a removal of high scores
        "upper": bits(above, "f8"),
        "upper_f32": bits(np.float32(above), "f4"),
        "num_above_upper": int((scores.astype(np.float64) > above).sum()),
        "num_above_upper_f32": int((scores > np.float32(above)).sum()),
        "num_below_upper_f32": int((scores < np.float32(above)).sum()),
        "lower": bits(below, "f8"),
        "num_below_lower": int((scores.astype(np.float64) < below).sum()),
    }


def synthetic_score(ordinal):
    """Uniform in [0, 1), exact in f32; the test computes the same."""
    return (((ordinal * 2654435761) % 2**32) >> 8) / 2**24


def sampled(num_files, rows_per_file, rate):
    """Files of `rows_per_file` rows; row 0 of every seventh file has no score."""
    taken = 1_000_000 // num_files
    sample = []
    for file in range(num_files):
        rows = range(1 if file % 7 == 0 else 0, rows_per_file)[:taken]
        sample.extend(synthetic_score(file * rows_per_file + row) for row in rows)
    threshold = np.quantile(np.asarray(sample, dtype=np.float32).astype(np.float64), 1 - rate)
    return {
        "num_files": num_files,
        "rows_per_file": rows_per_file,
        "rate": str(rate),
        "threshold_f32": bits(np.float32(threshold), "f4"),
    }


def main(path):
    rng = np.random.default_rng(42)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    cases = [
        case("one row", [0.25], 0.1),
        case("two rows", [0.25, 0.1], 0.33),
        case("all equal", np.full(20, 0.7), 0.1),
        case("a plateau at the top", np.concatenate([np.full(20, 1.0), rng.random(80)]), 0.1),
        case("everything", rng.random(11), 1.0),
    ]
    for size in (5, 10, 101, 400):
        for rate in (0.05, 0.1, 0.33, 0.5, 0.9):
            cases.append(case(f"{size} normal logits", sigmoid(rng.normal(-2, 3, size)), rate))
    for rate in (0.1, 0.26):
        cases.append(case("cosines", rng.normal(0.9, 0.05, 60), rate))
    golden = {
        "numpy": np.__version__,
        "cases": cases,
        "sampled": sampled(num_files=300_000, rows_per_file=5, rate=0.1),
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
