"""How often the intervals of `polysift evaluate` hold what they are of, by simulation.

    python coverage.py REPEATS

Populations of 20,000 documents of which a tenth or a third is selected; 100 or 500 are drawn as `polysift sample` draws
them (systematic sampling by size from a list in random order), and precision and recall are estimated with the functions
of `evaluate.py`, which are those of the program. Positives that the selection misses lie near the cut or anywhere. Beside
them stands Wilson's interval from the variance alone, which it was before, and beside Newcombe's interval of a ROC-AUC
that of DeLong. Printed is the share of the repeats in which the interval holds the truth, and its mean width. Needs numpy,
scipy and scikit-learn; 500 repeats take five minutes.
"""

import sys

import numpy as np
from evaluate import newcombe, share
from scipy.stats import norm

DOCUMENTS = 20_000
Z = norm.ppf(0.975)
STRATEGIES = [{"uniform": 1}, {"uniform": 0.6, "near": 0.4}, {"uniform": 0.5, "scores": 0.5}, {"uniform": 0.2, "near": 0.8}]
SHARES = [(0.99, 0.5), (0.97, 0.9), (0.95, 0.99), (0.9, 0.7), (0.6, 0.5), (0.1, 0.3), (0.02, 0.05)]  # recall, precision


def sizes(strategy, rate):
    """By what documents are drawn, the best first: as in `src/views/sampling/mixture.rs`."""
    place = (np.arange(DOCUMENTS) + 0.5) / DOCUMENTS
    strata = np.minimum(((1 - np.sqrt(place)) * 10).astype(int), 9)
    parts = {
        "uniform": np.ones(DOCUMENTS),
        "near": np.exp(-abs(place - rate) / (min(rate, 1 - rate) / 2)),
        "scores": 1 / np.bincount(strata, minlength=10)[strata],
    }
    return sum(part * parts[name] / parts[name].sum() for name, part in strategy.items())


def probabilities(size, count):
    found, is_open = np.zeros(len(size)), np.ones(len(size), dtype=bool)
    while True:
        found[is_open] = size[is_open] * (count - (~is_open).sum()) / size[is_open].sum()
        if not (is_open & (found >= 1)).any():
            return found
        is_open &= found < 1
        found[~is_open] = 1


def draw(rng, p):
    order = rng.permutation(len(p))
    ends = np.cumsum(p[order])
    return order[np.searchsorted(ends, np.arange(rng.random(), ends[-1] - 1e-9))]


def wilson(w, p, domain, hits):
    total = w[domain].sum()
    if total <= 0:
        return None
    value, n = w[domain & hits].sum() / total, len(w)
    parts, c = w * domain * (hits - value) / total, (1 - p) * n / (n - 1)
    variance = (c * (parts - (c * parts).sum() / c.sum()) ** 2).sum()
    draws = value * (1 - value) / variance if variance > 1e-20 else total**2 / (w[domain] ** 2).sum()
    square = Z * Z / draws
    half = Z * np.sqrt(value * (1 - value) / draws + square / (4 * draws)) / (1 + square)
    center = (value + square / 2) / (1 + square)
    return {"low": center - half, "high": center + half}


def delong(scores, labels):
    a, b = scores[labels], scores[~labels]
    pairs = (a[:, None] > b) + 0.5 * (a[:, None] == b)
    half = Z * np.sqrt(pairs.mean(axis=1).var(ddof=1) / len(a) + pairs.mean(axis=0).var(ddof=1) / len(b))
    return [pairs.mean() - half, pairs.mean() + half]


def population(rng, rate, recall, precision, is_near):
    """Which documents are positive, the best first."""
    selected = int(rate * DOCUMENTS)
    found = round(precision * selected)
    missed, rest = round(found * (1 - recall) / recall), DOCUMENTS - selected
    if missed > rest:
        return None
    odds = np.exp(-np.arange(rest) / (DOCUMENTS * rate / 2)) if is_near else np.ones(rest)
    positive = np.zeros(DOCUMENTS, dtype=bool)
    positive[rng.choice(selected, found, replace=False)] = True
    positive[selected + rng.choice(rest, missed, replace=False, p=odds / odds.sum())] = True
    return positive


def shares(repeats):
    for strategy in STRATEGIES:
        for rate, count in ((0.1, 100), (0.1, 500), (0.33, 100), (0.33, 500)):
            p = probabilities(sizes(strategy, rate), count)
            selected = np.arange(DOCUMENTS) < int(rate * DOCUMENTS)
            for recall, precision in SHARES:
                for where in ("near", "anywhere"):
                    rng = np.random.default_rng(1)
                    positive = population(rng, rate, recall, precision, where == "near")
                    if positive is None:
                        continue
                    truth = [(selected & positive).sum() / of.sum() for of in (selected, positive)]
                    held = {name: [] for name in ("precision", "before", "recall", "before ")}
                    for _ in range(repeats):
                        i = draw(rng, p)
                        w, q, s, y = 1 / p[i], p[i], selected[i], positive[i]
                        one = np.ones(len(i), dtype=int)
                        found = [share(w, q, one, s, y, False), wilson(w, q, s, y)]
                        found += [share(w, q, one, s, y, True), wilson(w, q, y, s)]
                        for name, interval, value in zip(held, found, np.repeat(truth, 2)):
                            if interval is not None:
                                low, high = interval["low"], interval["high"]
                                held[name].append((low - 1e-12 <= value <= high + 1e-12, high - low))
                    means = {name: np.mean(rows, axis=0) for name, rows in held.items()}
                    told = ", ".join(f"{name} {a:.3f} ({b:.3f})" for name, (a, b) in means.items())
                    print(strategy, rate, count, f"{truth[0]:.3f} {truth[1]:.3f} {where}: {told}", flush=True)


def areas(repeats):
    for positives, negatives in ((5, 15), (12, 24), (25, 25), (50, 200)):
        for area in (0.7, 0.9, 0.97, 0.99):
            rng = np.random.default_rng(1)
            labels = np.arange(positives + negatives) < positives
            held = {"Newcombe": [], "DeLong": []}
            for _ in range(repeats):
                scores = rng.normal(size=len(labels)) + labels * np.sqrt(2) * norm.ppf(area)
                for name, (low, high) in zip(held, (newcombe(scores, labels), delong(scores, labels))):
                    held[name].append((low <= area <= high, high - low))
            means = {name: np.mean(rows, axis=0) for name, rows in held.items()}
            told = ", ".join(f"{name} {a:.3f} ({b:.3f})" for name, (a, b) in means.items())
            print(positives, negatives, area, told, flush=True)


if __name__ == "__main__":
    areas(int(sys.argv[1]))
    shares(int(sys.argv[1]))
