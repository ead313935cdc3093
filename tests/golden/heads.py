"""Expected values for the tests of heads, from PyTorch, NumPy and scikit-learn.

    python heads.py golden OUT            write the files of tests/golden/heads into OUT
    python heads.py compare DUMP OUT      train on DUMP with PyTorch, write the accuracies to OUT

DUMP is what the test `dump_comparison` (cargo test -- --ignored) writes where POLYSIFT_TEST_DUMP names it: the samples and, for each seed, the rows of
our splits. Versions used: torch 2.15.0, scikit-learn 1.9.1, safetensors 0.8.0, numpy 2.
"""

import json
import sys
from pathlib import Path

import numpy as np
import sklearn.metrics as metrics
import torch
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler
from torch import nn

# Trainings of which the accuracy is the mean.
RUNS = 12


def mlp(sizes, dropout=0.2):
    """Linear, ReLU, Dropout, ..., Linear: the shape of the published heads."""
    layers = []
    for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
        layers.append(nn.Linear(inputs, outputs))
        if i + 2 < len(sizes):
            layers += [nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)


def rounded(model, dtype):
    """`model` with the weights that a file of `dtype` holds, computing in float32."""
    return model.to(dtype).to(torch.float32).eval()


def scores(out):
    """One file per head, and `scores.safetensors` with embeddings and what PyTorch gives for them."""
    cases = {}
    torch.manual_seed(0)

    model = rounded(mlp([768, 64, 1]), torch.float16)
    x = torch.randn(40, 768)
    x[-1] *= 60  # saturates the sigmoid
    with torch.no_grad():
        logit = model(x)[:, 0]
    cases |= {"quality.embeddings": x, "quality.logits": logit, "quality.scores": torch.sigmoid(logit)}
    save_file(
        {f"classifier.{k}": v.to(torch.float16) for k, v in model.state_dict().items()},
        out / "quality.safetensors",
    )

    model = rounded(mlp([48, 48, 2]), torch.float32)
    x = torch.randn(60, 48)
    offsets = [0, 1, 4, 4, 9, 20, 21, 60]  # one document has no chunks
    with torch.no_grad():
        probabilities = torch.softmax(model(x), dim=1)[:, 1]
    largest = [probabilities[a:b].max() if b > a else torch.tensor(-1.0) for a, b in zip(offsets, offsets[1:])]
    cases |= {
        "toxicity.embeddings": x,
        "toxicity.offsets": torch.tensor(offsets),
        "toxicity.scores": torch.stack(largest),
    }
    save_file(model.state_dict(), out / "toxicity.safetensors")  # keys 0.weight, 3.weight

    for name, dtype in [("raw_bf16", torch.bfloat16), ("raw_f64", torch.float64)]:
        model = rounded(mlp([24, 16, 8, 1]), dtype)
        x = torch.randn(30, 24)
        with torch.no_grad():
            cases |= {f"{name}.embeddings": x, f"{name}.scores": model(x)[:, 0]}
        save_file(
            {f"net.layers.{k}": v.to(dtype) for k, v in model.state_dict().items()},
            out / f"{name}.safetensors",
        )

    # As the reference: both sides divided by their L2 norm in float64, largest dot product.
    references, x = torch.randn(50, 96), torch.randn(40, 96)
    r, d = references.double().numpy(), x.double().numpy()
    r = r / np.linalg.norm(r, axis=1, keepdims=True)
    d = d / np.linalg.norm(d, axis=1, keepdims=True)
    cases |= {"cosine.embeddings": x, "cosine.scores": torch.from_numpy((d @ r.T).max(axis=1))}
    save_file({"references": references}, out / "cosine.safetensors")

    save_file(cases, out / "scores.safetensors")


def centred(out):
    """Samples in a narrow cone, and similarities after their centring."""
    rng = np.random.default_rng(5)
    width = 12
    spread = rng.normal(size=(width, width)) * np.linspace(0.1, 0.5, width)
    draw = lambda count, shift: (rng.normal(size=(count, width)) @ spread + 1.5 + shift).astype(np.float32)
    negatives, positives, queries = draw(30, 0), draw(20, 0.2), draw(25, 0.1)
    cases = {
        "embeddings": np.concatenate([negatives, positives]),
        "labels": np.repeat([0, 1], [30, 20]).astype(np.uint8),
        "queries": queries,
    }
    mean = negatives.astype(np.float64).mean(axis=0)
    r, d = (x.astype(np.float64) - mean for x in (positives, queries))
    r, d = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (r, d))
    cases["mean"] = (d @ r.T).max(axis=1)
    save_file({key: torch.from_numpy(value) for key, value in cases.items()}, out / "centred.safetensors")


def optimisation(out):
    """Weights before and after five full-batch steps of AdamW without dropout."""
    cases = {}
    for outputs in (1, 2, 3):
        torch.manual_seed(outputs)
        model = mlp([6, 5, outputs], dropout=0.0)
        x, y = torch.randn(12, 6), (torch.arange(12) % 3 == 0)
        for key, value in model.state_dict().items():
            cases[f"{outputs}.before.{key}"] = value.clone()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2, weight_decay=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            if outputs == 1:
                loss = nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y.float())
            else:
                # The class of the positives is the last, that of the negatives the first.
                loss = nn.functional.cross_entropy(model(x), y.long() * (outputs - 1))
            loss.backward()
            optimizer.step()
        for key, value in model.state_dict().items():
            cases[f"{outputs}.after.{key}"] = value.clone()
        cases |= {f"{outputs}.embeddings": x, f"{outputs}.labels": y.to(torch.uint8)}
    save_file(cases, out / "optimisation.safetensors")


def logistic(out):
    """Optima of logistic regression on standardised inputs, as weights and bias for inputs as they are."""
    rng = np.random.default_rng(4)
    x = (rng.normal(size=(60, 8)) * rng.uniform(0.01, 10, 8) + rng.normal(size=8) * 5).astype(np.float32)
    x[:, 7] = 3  # does not vary
    y = rng.random(60) < 0.3 + 0.4 * (x[:, 0] > x[:, 0].mean())
    scaler = StandardScaler().fit(x.astype(np.float64))
    cases = {"embeddings": torch.from_numpy(x), "labels": torch.from_numpy(y).to(torch.uint8)}
    for c in (0.1, 10.0):
        model = LogisticRegression(C=c, tol=1e-12, max_iter=100_000)
        model.fit(scaler.transform(x.astype(np.float64)), y)
        weight = model.coef_[0] / scaler.scale_
        cases[f"{c}.weight"] = torch.from_numpy(weight)
        cases[f"{c}.bias"] = torch.from_numpy(model.intercept_ - weight @ scaler.mean_)
    save_file(cases, out / "logistic.safetensors")


def graded(out):
    """Optima of weighted ridge regression, and gradients of the losses of grades."""
    rng = np.random.default_rng(6)
    x = (rng.normal(size=(60, 8)) * rng.uniform(0.1, 3, 8) + rng.normal(size=8)).astype(np.float32)
    y = np.round(2.5 + x @ rng.normal(size=8) * 0.3 + rng.normal(size=60), 1).astype(np.float32)
    weights = rng.integers(0, 4, size=60).astype(np.float32)
    scaler = StandardScaler().fit(x.astype(np.float64))
    cases = {"embeddings": x, "grades": y, "weights": weights}
    for c in (0.1, 10.0):
        model = Ridge(alpha=1 / c, solver="cholesky")
        model.fit(scaler.transform(x.astype(np.float64)), y.astype(np.float64), weights.astype(np.float64) / weights.mean())
        weight = model.coef_ / scaler.scale_
        cases[f"{c}.weight"] = weight
        cases[f"{c}.bias"] = np.array([model.intercept_ - weight @ scaler.mean_])
    cases = {key: torch.from_numpy(np.ascontiguousarray(value)) for key, value in cases.items()}
    torch.manual_seed(6)
    outputs = torch.randn(9, 5) * 2
    grades = torch.tensor([0, 4, 1, 2.5, 3, 3.75, 0.5, 4, 2], dtype=torch.float64)
    shares = torch.tensor([1, 1, 2, 0, 0.5, 1, 1, 3, 1], dtype=torch.float64)
    steps = torch.arange(4)
    losses = {
        "squared": lambda z: (z[:, 0] - grades) ** 2,
        "huber": lambda z: nn.functional.huber_loss(z[:, 0], grades, reduction="none", delta=1.0),
        "ranked_probability": lambda z: (
            (torch.softmax(z, 1).cumsum(1)[:, :4] - (steps + 1 - grades[:, None]).clamp(0, 1)) ** 2
        ).sum(1),
    }
    cases |= {"outputs": outputs, "output_grades": grades.float(), "output_weights": shares.float()}
    for name, loss in losses.items():
        z = outputs.double().requires_grad_()
        (loss(z) * shares).mean().backward()
        cases[f"gradient.{name}"] = z.grad if name == "ranked_probability" else z.grad[:, :1].clone()
    save_file(cases, out / "graded.safetensors")


def measured(logits, labels):
    """All metrics by scikit-learn; what it cannot define is null."""
    z, y = np.array(logits, dtype=np.float32), np.array(labels, dtype=bool)
    result = dict.fromkeys(["accuracy", "precision", "recall", "f1", "roc_auc", "loss"])
    if len(y):
        p = torch.sigmoid(torch.from_numpy(z)).numpy()
        called = p > 0.5
        result["accuracy"] = metrics.accuracy_score(y, called)
        result["precision"] = metrics.precision_score(y, called, zero_division=np.nan)
        result["recall"] = metrics.recall_score(y, called, zero_division=np.nan)
        result["f1"] = metrics.f1_score(y, called, zero_division=np.nan)
        if y.any() and not y.all():
            result["roc_auc"] = metrics.roc_auc_score(y, z)
        result["loss"] = nn.functional.binary_cross_entropy_with_logits(
            torch.from_numpy(z).double(), torch.from_numpy(y).double()
        ).item()
    return {k: None if v is None or np.isnan(v) else float(v) for k, v in result.items()}


def measures(out):
    """Metrics of small lists, ties, single classes and the empty list among them."""
    rng = np.random.default_rng(0)
    cases = {
        "random": (rng.normal(size=200), rng.random(200) < 0.4),
        "ties": (rng.integers(-2, 3, size=150) / 2, rng.random(150) < 0.5),
        "all_equal": (np.zeros(9), np.arange(9) < 4),
        "one_class": (rng.normal(size=8), np.ones(8, dtype=bool)),
        "other_class": (rng.normal(size=8) - 9, np.zeros(8, dtype=bool)),
        "none_called": (rng.normal(size=8) - 9, np.arange(8) < 3),
        "large": (np.array([80.0, -80.0, 80.0, -80.0, 12.0]), np.array([1, 0, 0, 1, 1], dtype=bool)),
        "empty": (np.array([]), np.array([], dtype=bool)),
    }
    table = {}
    for name, (logits, labels) in cases.items():
        logits = [float(np.float32(z)) for z in logits]
        labels = [bool(y) for y in labels]
        table[name] = {"logits": logits, "labels": labels, "expected": measured(logits, labels)}
    (out / "metrics.json").write_text(json.dumps(table) + "\n")


def compare(dump, out):
    """The quality head as FineWeb2-HQ trains it, on our splits: by seed of the split, mean and standard deviation of the
    validation accuracy over RUNS trainings."""
    data = load_file(dump)
    x, y = data["embeddings"], data["labels"].float()
    table = {}
    for seed in sorted({int(key.split(".")[1]) for key in data if key.startswith("train.")}):
        train, validation = data[f"train.{seed}"].long(), data[f"validation.{seed}"].long()
        accuracies = []
        for run in range(RUNS):
            torch.manual_seed(1000 * seed + run)
            model = mlp([x.shape[1], 256, 1])
            optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
            for _ in range(6):
                model.train()
                for rows in train[torch.randperm(len(train))].split(256):
                    optimizer.zero_grad()
                    logits = model(x[rows])[:, 0]
                    nn.functional.binary_cross_entropy_with_logits(logits, y[rows]).backward()
                    optimizer.step()
            model.eval()
            with torch.no_grad():
                called = torch.sigmoid(model(x[validation])[:, 0]) > 0.5
            accuracies.append((called == y[validation].bool()).double().mean().item())
        table[seed] = np.mean(accuracies), np.std(accuracies, ddof=1)
    Path(out).write_text(json.dumps(table) + "\n")
    print(json.dumps(table), "mean", np.mean([mean for mean, _ in table.values()]))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["golden", directory]:
            directory = Path(directory)
            directory.mkdir(parents=True, exist_ok=True)
            scores(directory)
            centred(directory)
            optimisation(directory)
            logistic(directory)
            graded(directory)
            measures(directory)
        case ["compare", dump, result]:
            compare(dump, result)
        case _:
            sys.exit(__doc__)
