"""Quality heads beside scikit-learn's logistic regression on the same vectors, over seeds.

    seeds.py SAMPLES_DIR OUT_DIR POLYSIFT MODEL [SEEDS]

SAMPLES_DIR is what `samples.py` writes. For each seed (5 unless said) a tenth of the groups of the first half is
for validation, one that differs by seed, and the second half is the test. polysift trains its default MLP on the
rest; scikit-learn has both, standardises, and fits with C = 1, and with C chosen by five folds. Its vectors are those
that the run keeps in `samples/`. Writes OUT_DIR/seeds.json and prints the means over languages.
"""

import hashlib
import json
import pathlib
import subprocess
import sys

import blake3
import numpy as np
import pyarrow.parquet as parquet
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def is_validation(group, seed):
    digest = hashlib.blake2b(f"{seed} {group}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < 0.1 * 2**64


def vectors(run):
    """Vectors by digest of the text."""
    found = {}
    for path in sorted((run / "samples").glob("*/*.parquet")):
        table = parquet.read_table(path)
        values = np.stack([np.asarray(v[0], dtype=np.float32) for v in table["embeddings"].to_pylist()])
        found |= zip(table["id"].to_pylist(), values)
    return found


def card(path):
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return json.loads(json.loads(file.read(size))["__metadata__"]["polysift.card"])


def main():
    samples, out, polysift, model = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), *sys.argv[3:5]
    seeds = range(1, int(sys.argv[5]) + 1 if len(sys.argv) > 5 else 6)
    rows = {
        folder.name: [json.loads(line) for name in ("train", "test") for line in open(folder / f"{name}.jsonl", encoding="utf-8")]
        for folder in sorted(samples.iterdir())
    }
    run, table = out / "run", {}
    for seed in seeds:
        folder = out / f"seed-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        for language, of_language in rows.items():
            with open(folder / f"{language}.jsonl", "w", encoding="utf-8") as file:
                for row in of_language:
                    group = row["id"].rsplit("/", 1)[0]
                    split = "test" if row["split"] == "test" else "validation" if is_validation(group, seed) else "train"
                    file.write(json.dumps(row | {"split": split}, ensure_ascii=False) + "\n")
        command = [polysift, "train", "--run", run, "--model", model, "--train-on", f"quality={folder}/{{lang}}.jsonl"]
        command += ["--set", f"seed={seed}", "--redo", "train", "--quiet"]
        subprocess.run(command if run.exists() else command[:-3] + ["--quiet"], check=True)
        of_text = vectors(run)
        for language, of_language in rows.items():
            training = card(run / "heads/quality" / f"{language}.safetensors")["training"]
            x = np.stack([of_text[blake3.blake3(row["text"].encode()).hexdigest()] for row in of_language])
            y = np.array([row["label"] == "positive" for row in of_language])
            test = np.array([row["split"] == "test" for row in of_language])
            result = {"mlp": training["test"]["roc_auc"], "logistic": training["linear_test"]["roc_auc"], "texts": int((~test).sum())}
            for name, fitted in [
                ("sklearn", LogisticRegression(max_iter=5000)),
                ("sklearn_cv", LogisticRegressionCV(Cs=np.logspace(-4, 1, 6), cv=5, scoring="neg_log_loss", max_iter=5000,
                                                     l1_ratios=(0,), use_legacy_attributes=False)),
            ]:
                if seed > seeds[0]:  # the same rows for all seeds
                    result[name] = table[str(seeds[0])][language][name]
                    continue
                pipeline = make_pipeline(StandardScaler(), fitted).fit(x[~test], y[~test])
                result[name] = roc_auc_score(y[test], pipeline.decision_function(x[test]))
            table.setdefault(str(seed), {})[language] = result
        (out / "seeds.json").write_text(json.dumps(table, indent=1) + "\n")
        means = {name: np.mean([r[name] for r in table[str(seed)].values()]) for name in ("mlp", "logistic", "sklearn", "sklearn_cv")}
        print("seed", seed, len(rows), "languages", {name: round(float(mean), 4) for name, mean in means.items()}, flush=True)


if __name__ == "__main__":
    main()
