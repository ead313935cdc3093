"""What `--refine` encodes again, and how often it selects other documents, on stored scores.

    refine.py FAST PRECISE [HEAD...] > table.md

FAST is a run in int8, bf16 or fp8 and PRECISE one of the same documents in f32 (bf16), with the same heads; of
PRECISE only scores are read. Restates docs/selection.md with numpy and scipy: margins by a risk, and the widest
margins, for 1,000 random samples a language. Needs numpy, scipy and pyarrow.
"""

import sys
from pathlib import Path

import numpy as np
from scipy.stats import chi2, t

SEEDS = 1000
RATES = [[0.1], [0.02], [0.05, 0.1, 0.33]]
RISKS = [0.0, 1e-3, 1e-4, 1e-5]
LADDER = 2 ** (np.arange(81) / 16)


def scores(run, head):
    """Logit by language and document."""
    import pyarrow.parquet as pq  # cuda_rounding.py needs only `refine`

    found = {}
    for path in sorted(Path(run, "scores", head).rglob("*.parquet")):
        table = pq.read_table(path, columns=["row", "language", "logit"]).to_pydict()
        shard = path.relative_to(Path(run, "scores", head)).parent
        for row, language, logit in zip(*table.values()):
            found.setdefault(language, {})[shard, row] = logit
    return found


def pairs(fast, precise, head):
    fast, precise = scores(fast, head), scores(precise, head)
    for language, logits in fast.items():
        both = [key for key, logit in logits.items() if logit is not None]
        yield tuple(np.array([of[language][key] for key in both], float) for of in (fast, precise))


def spread(differences, is_bound):
    """Scale and degrees of freedom."""
    n, squares = len(differences), differences**2
    if squares.sum() == 0:
        return 0.0, 200.0
    excess = (squares**2).mean() / squares.mean() ** 2 - 3 - np.sqrt(24 / n)
    freedom = min(200.0, 4 + 6 / excess) if excess > 0 else 200.0
    return np.sqrt(squares.sum() / (chi2.ppf(0.05, n) if is_bound else n)), freedom


def refine(x, y, rates, risk, random):
    """Which documents are scored again."""
    n = len(x)
    size = min(max(n // 100, 64), 4096) // (4 if risk else 1)
    done = np.zeros(n, bool)
    done[random.choice(n, min(n, size), False)] = True
    sample = done.copy()
    kept = [int(np.ceil(n * rate)) for rate in rates]
    for number in range(100):
        mixed = np.where(done, y, x)
        bounds = [np.partition(mixed, n - k)[n - k] for k in kept]
        distance = np.min([np.abs(x - bound) for bound in bounds], axis=0)
        near = done & ~sample
        if risk:
            scale, freedom = spread((x - y)[done], number > 0)
            if near.sum() >= 8:
                other = spread((x - y)[near], True)
                scale, freedom = max(scale, other[0]), min(freedom, other[1])
            step = np.searchsorted(LADDER, distance / scale, side="right")
            tail = t.sf(LADDER / np.sqrt(1 - 2 / freedom), freedom)
            beyond = np.bincount(step, minlength=82)[1:] * tail
            expected = np.cumsum(beyond[::-1])[::-1]
            fits = np.flatnonzero(expected <= risk * np.mean([min(k, n - k) for k in kept]))
            margin = scale * LADDER[fits[0]] if len(fits) else np.inf
        else:
            margin = 2 * np.abs(x - y)[done].max()
        new = (distance <= margin) & ~done
        if number and not new.any():
            return done
        done |= new


def selected(x, k):
    return np.argsort(-x, kind="stable")[:k]


def measure(languages, rates, risk):
    again, differ, wrong, kept = [], [], 0, 0
    for x, y in languages:
        for seed in range(SEEDS):
            done = refine(x, y, rates, risk, np.random.default_rng(seed))
            mixed, other = np.where(done, y, x), 0
            for k in [int(np.ceil(len(x) * rate)) for rate in rates]:
                other += len(np.setdiff1d(selected(y, k), selected(mixed, k)))
                kept += k
            again.append(done.mean())
            differ.append(other > 0)
            wrong += other
    return np.mean(again), np.mean(differ), wrong / kept


def main():
    fast, precise, *heads = sys.argv[1:]
    heads = heads or sorted(path.name for path in Path(precise, "scores").iterdir())
    print("| head | rates | risk | encoded again | samples with another selection | of the kept, others |")
    print("|---|---|---|---|---|---|")
    for head in heads:
        languages = list(pairs(fast, precise, head))
        for rates in RATES:
            for risk in RISKS:
                again, differ, wrong = measure(languages, rates, risk)
                name = f"{risk:g}" if risk else "widest"
                rate = ", ".join(f"{rate:g}" for rate in rates)
                print(f"| {head} | {rate} | {name} | {again:.2%} | {differ:.2%} | {wrong:.1e} |", flush=True)


if __name__ == "__main__":
    main()
