"""How far embeddings are from those of an oracle, and whether a head selects the same documents.

    python cuda_fidelity.py ORACLE.npy EMBEDDINGS.npy [NAME=OTHER.npy...] --out results/fidelity.json

The bounds hold for the first file; the others (PyTorch's bf16, say) are shown beside it. Selections
are those of random MLP heads (width → 256 → 1, ReLU, weights as PyTorch draws them, in f64), one a seed; the
median seed is held to the bound. Exits with 1 if a bound is broken. Needs numpy only.
"""

import argparse
import json
import pathlib
import sys

import numpy as np

BOUNDS = {"relative_l2_max": 2e-2, "relative_l2_mean": 5e-3, "cosine_min": 0.9995}
RATES = {"10%": 0.10, "5%": 0.05}
AGREEMENT = 0.995
DOCUMENTS = 20_000
SEEDS = 5
HIDDEN = 256


def head(width, seed):
    """Scores of a random head, as a function of embeddings."""
    rng = np.random.default_rng(seed)

    def linear(inputs, outputs):
        bound = inputs**-0.5
        return rng.uniform(-bound, bound, (outputs, inputs)), rng.uniform(-bound, bound, outputs)

    (w1, b1), (w2, b2) = linear(width, HIDDEN), linear(HIDDEN, 1)
    return lambda x: (np.maximum(x @ w1.T + b1, 0) @ w2.T + b2)[:, 0]


def best(scores, rate):
    """The documents that a retention at `rate` keeps: exactly the first ceil(rate n)."""
    return set(np.argsort(-scores, kind="stable")[: int(np.ceil(rate * len(scores)))].tolist())


def compare(oracle, embeddings):
    """Distances and agreement of selections."""
    difference = np.linalg.norm(embeddings - oracle, axis=1)
    norms = np.linalg.norm(oracle, axis=1)
    cosine = (embeddings * oracle).sum(1) / (norms * np.linalg.norm(embeddings, axis=1))
    centred = oracle - oracle.mean(0)
    result = {
        "documents": len(oracle),
        "relative_l2_max": float((difference / norms).max()),
        "relative_l2_mean": float((difference / norms).mean()),
        "cosine_min": float(cosine.min()),
        # How much of an embedding is the document's own: what a head can tell documents apart by.
        "own_share": float(np.linalg.norm(centred) / np.linalg.norm(oracle)),
        "score_noise": [],
        "agreement": {name: [] for name in RATES},
    }
    for seed in range(SEEDS):
        score = head(oracle.shape[1], seed)
        expected, actual = score(oracle), score(embeddings)
        result["score_noise"].append(float((actual - expected).std() / expected.std()))
        for name, rate in RATES.items():
            kept = best(expected, rate)
            result["agreement"][name].append(len(kept & best(actual, rate)) / len(kept))
    return result


def broken(result, distances_only):
    """The bounds that `result` does not keep, in words."""
    for name in ("relative_l2_max", "relative_l2_mean"):
        if not result[name] <= BOUNDS[name]:
            yield f"{name} is {result[name]:.2e}, more than {BOUNDS[name]}"
    if not result["cosine_min"] >= BOUNDS["cosine_min"]:
        yield f"cosine_min is {result['cosine_min']:.6f}, less than {BOUNDS['cosine_min']}"
    for name, values in () if distances_only else result["agreement"].items():
        if not np.median(values) >= AGREEMENT:
            yield f"agreement at {name} is {np.median(values):.4f}, less than {AGREEMENT}"


def main():
    """Compares, prints, writes, judges."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("oracle")
    parser.add_argument("embeddings")
    parser.add_argument("others", nargs="*", metavar="NAME=FILE")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--distances-only", action="store_true", help="show selections, judge distances")
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="fewest that are enough")
    args = parser.parse_args()
    oracle = np.load(args.oracle).astype(np.float64)
    named = {"polysift": args.embeddings, **dict(other.split("=", 1) for other in args.others)}
    results = {}
    for name, path in named.items():
        embeddings = np.load(path).astype(np.float64)
        if embeddings.shape != oracle.shape:
            sys.exit(f"{path}: shape {embeddings.shape}, the oracle has {oracle.shape}")
        results[name] = result = compare(oracle, embeddings)
        agreement = ", ".join(f"{k} {np.median(v):.4f}" for k, v in result["agreement"].items())
        print(
            f"{name:<14} relative L2 max {result['relative_l2_max']:.2e} mean {result['relative_l2_mean']:.2e}, "
            f"cosine min {result['cosine_min']:.6f}, selected alike {agreement}"
        )
    failures = list(broken(results["polysift"], args.distances_only))
    if len(oracle) < args.documents:
        failures.append(f"{len(oracle)} documents, fewer than {args.documents}")
    if args.out:
        report = {"bounds": {**BOUNDS, "agreement": AGREEMENT}, "failures": failures, "results": results}
        args.out.write_text(json.dumps(report, indent=1) + "\n")
    for failure in failures:
        print(f"broken: {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
