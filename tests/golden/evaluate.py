"""Expected measures for the tests of `polysift evaluate`, from scikit-learn, SciPy and NumPy.

    python evaluate.py OUT      write the files of tests/golden/evaluate into OUT

Versions used: scikit-learn 1.9.1, scipy 1.17, numpy 2.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import beta, binomtest, kendalltau, norm, spearmanr
from sklearn import metrics


def defined(value):
    """None for what scikit-learn and SciPy call NaN."""
    return None if value is None or np.isnan(value) else float(value)


def newcombe(scores, labels):
    """95% interval of the area: the roots of Newcombe's equation (2006, method 5) on either side of it."""
    m, n = int(labels.sum()), int((~labels).sum())
    if m < 2 or n < 2:
        return None
    area, z, others = metrics.roc_auc_score(labels, scores), norm.ppf(0.975), (m + n) / 2 - 1

    def distance(x):
        pairs = 1 + others * (1 - x) / (2 - x) + others * x / (1 + x)
        return (area - x) ** 2 - z**2 * x * (1 - x) * pairs / (m * n)

    # Without a sign that changes the area itself is an end: 0 or 1.
    ends = [brentq(distance, *sorted((end, area * (1 - 1e-15) + end * 1e-15)), xtol=1e-15) if area != end else end for end in (0, 1)]
    return [float(x) for x in ends]


def case(logits, labels, other):
    logits, other = np.float32(logits), np.float32(other)
    labels = np.asarray(labels, dtype=bool)
    probabilities = np.float32(expit(np.float64(logits)))
    both = labels.any() and not labels.all()
    called = probabilities > 0.5
    return {
        "logits": [float(x) for x in logits],
        "probabilities": [float(x) for x in probabilities],
        "labels": labels.tolist(),
        "other": [float(x) for x in other],
        "expected": {
            "roc_auc": defined(metrics.roc_auc_score(labels, logits)) if both else None,
            "roc_auc_interval": newcombe(np.float64(logits), labels),
            "average_precision": float(metrics.average_precision_score(labels, logits)) if labels.any() else None,
            "log_loss": float(metrics.log_loss(labels, expit(np.float64(logits)), labels=[False, True])),
            "f1": float(metrics.f1_score(labels, called)) if (labels | called).any() else None,
            "spearman": defined(spearmanr(logits, other).statistic),
        },
    }


def graded(scores, grades):
    """Scores beside grades: rank correlation, and ten groups by score."""
    scores, grades = np.float32(scores), np.float32(grades)
    order = np.lexsort((grades, scores))
    groups = min(10, len(scores))
    ends = [i * len(scores) // groups for i in range(1, groups)]
    groups = [(len(part), np.float64(scores[part]).mean(), np.float64(grades[part]).mean()) for part in np.split(order, ends)]
    return {
        "scores": [float(x) for x in scores],
        "grades": [float(x) for x in grades],
        "kendall": defined(kendalltau(scores, grades, variant="b").statistic),
        "groups": groups,
        "calibration_error": sum(n * abs(s - g) for n, s, g in groups) / len(scores),
    }


def clopper_pearson(value, draws):
    """The interval of a share of `draws`, which need not be a whole number: quantiles of beta distributions."""
    if not np.isfinite(draws):
        return value, value
    hits, misses = value * draws, (1 - value) * draws
    low = beta.ppf(0.025, hits, misses + 1) if hits > 0 else 0.0
    return low, beta.ppf(0.975, hits + 1, misses) if misses > 0 else 1.0


def share(weights, probabilities, copies, selected, positive, recall):
    """Precision or recall and its interval, from the documents one by one, with one more hit and one more miss, whose
    weight is the mean of those that could be one."""
    selected, positive = np.repeat(selected, copies), np.repeat(positive, copies)
    w, p = np.repeat(weights / copies, copies), np.repeat(probabilities, copies)
    domain, hits = (positive, selected) if recall else (selected, positive)
    total = w[domain].sum()
    if not total > 0:
        return None
    value, squares = w[domain & hits].sum() / total, (1 - p) * len(w) / max(len(w) - 1, 1) * w**2
    spreads = []
    for is_hit in (True, False):
        could_be = selected == (is_hit or not recall)
        could_be = could_be if w[could_be].sum() > 0 else np.ones(len(w), dtype=bool)
        one, own = squares[could_be].sum() / w[could_be].sum(), domain & (hits == is_hit)
        weight = w[own].sum() + one
        spreads.append((squares[own].sum() + one**2) / weight if weight > 0 else 0.0)
    variance = (1 - value) * spreads[0] + value * spreads[1]
    low, high = clopper_pearson(value, total / variance if variance > 0 else np.inf)
    return {"share": float(value), "low": float(low), "high": float(high)}


def weighted(weights, probabilities, copies, selected, positive):
    columns = [np.float64(x) for x in (weights, probabilities)] + [np.int64(copies)]
    flags = [np.asarray(x, dtype=bool) for x in (selected, positive)]
    expected = [share(*columns, *flags, recall) for recall in (False, True)]
    return {"columns": [x.tolist() for x in columns], "flags": [x.tolist() for x in flags], "expected": expected}


def main(out):
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(5)
    n = 150
    labels = rng.random(n) < 0.3
    noisy = np.clip(rng.normal(size=n) * 1.5 + labels, -12, 12)
    rounded = np.round(noisy)  # many ties
    cases = {
        "noisy": case(noisy, labels, noisy + rng.normal(size=n)),
        "ties": case(rounded, labels, np.round(noisy + rng.normal(size=n))),
        "reversed": case(-noisy, labels, noisy),
        "separated": case(np.where(labels, 3.0, -3.0) + rng.random(n), labels, rng.random(n)),
        "edges": case([0.0, 0.0, 0.0, np.log(3), -np.log(3), 20.0, -20.0], [1, 0, 1, 1, 0, 1, 0], range(7)),
        "one class": case(noisy[:20], np.ones(20), rng.random(20)),
        "no positives": case(noisy[:20], np.zeros(20), rng.random(20)),
        "one of a class": case(noisy[:9], np.arange(9) == 4, rng.random(9)),
        "constant": case(np.full(12, 0.25), np.arange(12) % 2, rng.random(12)),
        "two": case([0.5, -0.5], [1, 0], [2, 1]),
    }
    out.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(name)}: {json.dumps(values)}" for name, values in cases.items()]
    (out / "metrics.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    grades = rng.integers(0, 6, size=83)
    table = {
        "noisy": graded(grades + rng.normal(size=83), grades),
        "ties": graded(np.round(grades + rng.normal(size=83)), grades),
        "means of annotators": graded(grades * 0.7 + 0.4, grades + rng.integers(-1, 2, size=83) / 3),
        "constant": graded(np.full(12, 2.5), np.arange(12) % 3),
        "few": graded([2.0, 0.5, 1.0], [1, 0, 2]),
    }
    counts = [(0, 1), (1, 1), (0, 30), (7, 30), (30, 30), (450, 1000)]
    intervals = [(k, n, *binomtest(k, n).proportion_ci(0.95, method="exact")) for k, n in counts]
    pairs = [(0.0, 4), (0.3, 20), (-0.9, 36), (1.0, 10)]
    half = [norm.ppf(0.975) * np.sqrt((1 + rho**2 / 2) / (n - 3)) for rho, n in pairs]
    ends = [np.tanh(np.arctanh(rho) + np.array([-h, h])) for (rho, n), h in zip(pairs, half)]
    correlations = [(rho, n, float(low), float(high)) for (rho, n), (low, high) in zip(pairs, ends)]
    grades = {"cases": table, "intervals": intervals, "correlations": correlations}
    (out / "grades.json").write_text(json.dumps(grades) + "\n")
    p = rng.uniform(0.02, 1, size=60)
    selected, positive = rng.random(60) < 0.4, rng.random(60) < 0.3
    one, all, none = np.ones(60, dtype=int), np.ones(60), np.zeros(60)
    some = rng.integers(1, 4, size=60)
    far = np.where(selected, 1, 0.1) * p  # what is not selected was drawn rarely
    certain = np.where(selected, 1, p)
    shares = {
        "unequal": weighted(1 / p, p, one, selected, positive),
        "copies": weighted(some / p, p, some, selected, positive),
        "everything": weighted(1 / p, p, one, all, positive),
        "unknown probabilities": weighted(1 / p, none, one, selected, positive),
        "equal": weighted(3 * all, all / 3, one, selected, positive),
        "some certain": weighted(1 / certain, certain, one, selected, positive),
        "all certain": weighted(some, all, some, selected, positive),
        "no misses": weighted(1 / far, far, one, selected, selected),
        "no hits": weighted(1 / far, far, one, selected, ~selected),
        "one": weighted([4], [0.25], [1], [1], [1]),
        "nothing selected": weighted(1 / p, p, one, none, positive),
        "many": weighted(1e6 / p, p * 1e-6, one, selected, positive),
    }
    (out / "shares.json").write_text(json.dumps(shares) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
