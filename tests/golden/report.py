"""Expected figures for the tests of `polysift report`, from NumPy and from sorted lists.

    python report.py OUT      write the file of tests/golden/report into OUT

Versions used: numpy 2.4
"""

import json
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np

PERCENTS = ["0.1", "1", "5", "10", "25", "50", "75", "90", "95", "99", "99.9"]
BINS = 200


def figures(scores):
    """Of float32 scores: NaN is left out, of infinite ones quantiles alone know."""
    numbers = np.sort(scores[~np.isnan(scores)])
    finite = numbers[np.isfinite(numbers)].astype(np.float64)
    low, high = (0.0, 1.0) if finite.min() >= 0 and finite.max() <= 1 else (finite.min(), finite.max())

    def quantile(percent):
        rank = -(-Fraction(percent) * len(numbers) // 100)  # the nearest rank: the ceiling
        value = numbers[max(int(rank), 1) - 1]
        # The method of that name in NumPy, as far as its rounding allows to tell.
        near = np.quantile(numbers, float(percent) / 100, method="inverted_cdf")
        assert value == near or abs(rank - float(percent) / 100 * len(numbers)) < 1e-6, (percent, value, near)
        return float(value) if np.isfinite(value) else None

    # NumPy's own edges, but infinite scores lie in the bins at the ends.
    counts, _ = np.histogram(np.clip(numbers.astype(np.float64), low, high), BINS, (low, high))
    return {
        "n": len(numbers),
        "mean": float(np.mean(finite)),
        "std": float(np.std(finite)),
        "min": float(finite.min()),
        "max": float(finite.max()),
        "quantiles": {percent: quantile(percent) for percent in PERCENTS},
        "counts": counts.tolist(),
    }


def case(scores):
    scores = np.asarray(scores, np.float32)
    return {"bits": scores.view(np.uint32).tolist(), **figures(scores)}


def lengths(values):
    return {"values": values.tolist(), "mean": float(np.mean(values)), "std": float(np.std(values)),
            "median": float(np.median(values))}


def main(out):
    rng = np.random.default_rng(9)
    raw = rng.normal(1.0, 2.0, 10_000) * 10.0 ** rng.integers(-3, 3, 10_000)
    raw[::7] = np.round(raw[::7])  # ties, zeros of both signs among them
    raw[rng.permutation(10_000)[:40]] = np.nan
    raw[rng.permutation(10_000)[:20]] = np.inf
    raw[rng.permutation(10_000)[:12]] = -np.inf
    shares = np.round(1 / (1 + np.exp(-rng.normal(-3, 2, 1000))), 2)
    # All but equal: of a large mean a small deviation.
    close = np.float32(0.99) + rng.integers(0, 3, 1000) * np.float32(2.0**-20)
    made = {
        "raw": case(raw),
        "shares": case(shares),
        "close": case(close),
        "one": case([0.25]),
        "lengths": [lengths(np.int64(np.exp(rng.normal(5, 2, n)))) for n in (1, 2, 999, 1000)],
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "scores.json").write_text(json.dumps(made, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
