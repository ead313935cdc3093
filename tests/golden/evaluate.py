"""Expected measures for the tests of `polysift evaluate`, from scikit-learn, SciPy and NumPy.

    python evaluate.py OUT      write the files of tests/golden/evaluate into OUT

Versions used: scikit-learn 1.9.1, scipy 1.17, numpy 2.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
from scipy.special import expit
from scipy.stats import binomtest, kendalltau, norm, spearmanr
from sklearn import metrics


def defined(value):
    """None for what scikit-learn and SciPy call NaN."""
    return None if value is None or np.isnan(value) else float(value)


def delong(scores, labels):
    """95% interval of the area, from the matrix of all pairs: no sorting, no ranks."""
    positives, negatives = scores[labels], scores[~labels]
    m, n = len(positives), len(negatives)
    if m < 2 or n < 2:
        return None
    pairs = (positives[:, None] > negatives) + 0.5 * (positives[:, None] == negatives)
    variance = pairs.mean(axis=1).var(ddof=1) / m + pairs.mean(axis=0).var(ddof=1) / n
    half = norm.ppf(0.975) * np.sqrt(variance)
    return [max(0.0, pairs.mean() - half), min(1.0, pairs.mean() + half)]


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
            "roc_auc_interval": delong(np.float64(logits), labels),
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


def share(weights, probabilities, domain, hits):
    """A ratio of two weighted sums and its interval, with matrices: derivatives by a complex step instead of residuals,
    the variance as a quadratic form, the interval from the roots of Wilson's equation."""
    w, p = np.float64(weights), np.float64(probabilities)
    domain, hits, n = np.asarray(domain, dtype=bool), np.asarray(hits, dtype=bool), len(w)
    if not (domain * w).sum() > 0:
        return None
    ratio = lambda w: (w * (domain & hits)).sum() / (w * domain).sum()
    steps = w[None, :] + 1e-30j * np.eye(n)
    parts = w * np.array([ratio(step).imag / 1e-30 for step in steps])
    c = (1 - p) * n / max(n - 1, 1)
    form = np.diag(c) - np.outer(c, c) / c.sum() if c.sum() > 0 else np.zeros((n, n))
    variance, value = parts @ form @ parts, ratio(w)
    effective = w[domain].sum() ** 2 / (w[domain] ** 2).sum()
    if c.sum() <= 0:
        low, high = value, value
    else:
        # Rounding leaves less than 1e-20 of what is zero.
        draws = value * (1 - value) / variance if variance > 1e-20 else effective
        z = norm.ppf(0.975) ** 2 / draws  # (value - x)² = z x (1 - x)
        low, high = sorted(np.roots([1 + z, -2 * value - z, value**2]).real)
    return {"share": value, "low": low, "high": high, "effective_size": effective}


def weighted(weights, probabilities, domain, hits):
    columns = [np.float64(weights).tolist(), np.float64(probabilities).tolist()]
    flags = [np.asarray(x, dtype=bool).tolist() for x in (domain, hits)]
    return {"columns": columns, "flags": flags, "expected": share(weights, probabilities, domain, hits)}


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
    intervals = [(k, n, *binomtest(k, n).proportion_ci(0.95, method="wilson")) for k, n in counts]
    (out / "grades.json").write_text(json.dumps({"cases": table, "intervals": intervals}) + "\n")
    p = rng.uniform(0.02, 1, size=60)
    domain, hits = rng.random(60) < 0.4, rng.random(60) < 0.3
    shares = {
        "unequal": weighted(1 / p, p, domain, hits),
        "everything": weighted(1 / p, p, np.ones(60), hits),
        "unknown probabilities": weighted(1 / p, np.zeros(60), domain, hits),
        "equal": weighted(np.full(60, 3), np.full(60, 1 / 3), domain, hits),
        "some certain": weighted(1 / np.where(domain, 1, p), np.where(domain, 1, p), rng.random(60) < 0.5, hits),
        "all certain": weighted(np.ones(60), np.ones(60), domain, hits),
        "only hits": weighted(1 / p, p, domain, domain),
        "no hits": weighted(1 / p, p, domain, np.zeros(60)),
        "one": weighted([4], [0.25], [1], [1]),
        "no domain": weighted(1 / p, p, np.zeros(60), hits),
    }
    (out / "shares.json").write_text(json.dumps(shares) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
