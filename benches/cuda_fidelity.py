"""How far embeddings are from those of an oracle, and whether a head selects the same documents.

    python cuda_fidelity.py ORACLE.npy EMBEDDINGS.npy [NAME=OTHER.npy...] --out results/fidelity.json

The bounds hold for the first file; the others are shown beside it. Selections are those of random MLP
heads (width → 256 → 1, ReLU, weights as PyTorch draws them, in f64), one a seed; the median seed is held
to the bound. --bounds says what the files are of: a trained encoder in bf16, polysift-mini in fp8, or
random weights. These magnify roundings as no trained encoder does, and tell documents apart less: there
the mean distance may be 1.1 times that of the file named pytorch-bf16, the cosine bounds the worst
document, and selections are only shown. Exits with 1 if a bound is broken. Needs numpy only.
"""

import argparse
import json
import pathlib
import sys

import numpy as np

BOUNDS = {
    "bf16": {"relative_l2_max": 2e-2, "relative_l2_mean": 5e-3, "cosine_min": 0.9995, "agreement": 0.995},
    # Of polysift-mini: rounding alone makes 2.5e-2, 1.4e-2 and 0.9997 (runs/2026-11-22-cuda-rounding-fp8.md).
    "fp8": {"relative_l2_max": 5e-2, "relative_l2_mean": 2e-2, "cosine_min": 0.999, "agreement": 0.97},
    "random": {"cosine_min": 0.999},
}
YARDSTICK, TIMES_YARDSTICK = "pytorch-bf16", 1.1
RATES = {"10%": 0.10, "5%": 0.05}
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


def broken(result, bounds):
    """The bounds that `result` does not keep, in words."""
    values = dict(result)
    del values["agreement"]
    values |= {f"agreement at {rate}": np.median(of_seeds) for rate, of_seeds in result["agreement"].items()}
    for name, value in values.items():
        bound = bounds.get(name.split(" ")[0])
        if bound is not None and not (value <= bound if "l2" in name else value >= bound):
            yield f"{name} is {value:.4g}, the bound is {bound:.4g}"


def main():
    """Compares, prints, writes, judges."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("oracle")
    parser.add_argument("embeddings")
    parser.add_argument("others", nargs="*", metavar="NAME=FILE")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--bounds", choices=list(BOUNDS), default="bf16")
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
    bounds = dict(BOUNDS[args.bounds])
    if args.bounds == "random" and YARDSTICK in results:
        bounds["relative_l2_mean"] = TIMES_YARDSTICK * results[YARDSTICK]["relative_l2_mean"]
    elif args.bounds == "random":
        print(f"no {YARDSTICK} beside it: only the cosine is judged")
    failures = list(broken(results["polysift"], bounds))
    if len(oracle) < args.documents:
        failures.append(f"{len(oracle)} documents, fewer than {args.documents}")
    if args.out:
        report = {"bounds": bounds, "failures": failures, "results": results}
        args.out.write_text(json.dumps(report, indent=1) + "\n")
    for failure in failures:
        print(f"broken: {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
