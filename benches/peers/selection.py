"""Whether polysift selects the same documents in every dtype as in f32.

    python selection.py PROGRAM DATA OUT [--dtypes "bf16 f16 int8"] [--texts FOLDER] [--documents 20000]

PROGRAM is the executable of the bench `peers`, DATA what `peers prepare` filled, OUT a folder that gets
`selection.json` and `selection.md`. Two models, each with documents to train heads with and others to
select from:

    random       the base shape with random weights, 500 and 2,000 documents of random ids; good are those
                 whose mean word embedding lies on one side of a random plane
    mini         the bundled model; 5,000 and `--documents` texts of FOLDER (.jsonl.zst with `text`); good are
                 those of the sources that `cuda_rounding.py` names

The heads are a logistic regression and an MLP, trained on embeddings in f32. Given is the share of
the best 10% and 5% by f32 that are among the best by the dtype.
"""

import argparse
import json
import os
import pathlib
import sys

import numpy as np
from safetensors import safe_open
from sklearn.linear_model import LogisticRegression

import workload
from engine import Engine

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from cuda_rounding import agreement, distances, read, train_head  # noqa: E402

MODELS = {"SEL": "random weights, base shape", "REAL": "polysift-mini"}
MINI = pathlib.Path(__file__).parents[2] / "models/polysift-mini"
RATES = (0.1, 0.05)
RANDOM_TRAINING, TRAINING_SHARE = 500, 0.2
SEED = 0


def random_documents(args):
    """Whether each document of SEL is good."""
    documents = workload.read(args.data, "SEL")
    with safe_open(args.data / "model/model.safetensors", "numpy") as tensors:
        words = tensors.get_tensor("embeddings.word_embeddings.weight")
    plane = np.random.default_rng(SEED).standard_normal(words.shape[1])
    heights = words @ plane.astype(np.float32)
    means = np.array([heights[ids].mean() for ids in documents])
    return means > np.median(means), RANDOM_TRAINING


def real_documents(args):
    """Tokenizes texts into the workload REAL; whether each is good."""
    from transformers import AutoTokenizer

    count = round(args.documents / (1 - TRAINING_SHARE))
    files = sorted(args.texts.glob("*.jsonl.zst"))
    rows = read(files, count, SEED)
    tokenizer = AutoTokenizer.from_pretrained(MINI)
    ids = tokenizer([text for text, _ in rows], truncation=True, max_length=512)["input_ids"]
    workload.write(args.data, "REAL", ids)
    return np.array([good for _, good in rows]), len(rows) - args.documents


def heads(training, good):
    """Names and scores, as functions of embeddings."""
    logistic = LogisticRegression(max_iter=2000).fit(training, good)
    return {
        "logistic": lambda rows: logistic.decision_function(rows),
        "mlp": train_head(training, good, SEED),
    }


def embed(args, name, model, dtype):
    """Embeddings of the workload `name`, and the pass."""
    command = [args.program, "serve", "polysift", str(args.data), str(model), "--dtype", dtype]
    engine = Engine(f"polysift-{dtype}", command, args.threads)
    out = args.data / "embeddings.npy"
    done = engine.embed(name, out=out)
    engine.close()
    return np.load(out), done


def compare(args, name, model, good, training):
    """One record per dtype."""
    exact, done = embed(args, name, model, "f32")
    scores = heads(exact[:training], good[:training])
    tokens = sum(map(len, workload.read(args.data, name)))
    records = [{"model": MODELS[name], "dtype": "f32", "documents": len(exact) - training,
                "tokens_per_sec": tokens / done["secs"]}]
    exact = exact[training:]
    for dtype in args.dtypes.split():
        if dtype == "f32":
            continue
        rounded, done = embed(args, name, model, dtype)
        rounded = rounded[training:]
        record = {**records[0], "dtype": dtype, "tokens_per_sec": tokens / done["secs"],
                  **distances(exact, rounded)}
        for head, score in scores.items():
            before, after = score(exact), score(rounded)
            for rate in RATES:
                record[f"{head}_agreement_{rate}"] = agreement(before, after, rate)
            record[f"{head}_noise_in_sd"] = float((after - before).std() / before.std())
        records.append(record)
        print(json.dumps(record), flush=True)
    return records


def table(records):
    columns = [f"{head}_agreement_{rate}" for head in ("logistic", "mlp") for rate in RATES]
    names = [f"{head}, best {rate:.0%}" for head in ("logistic", "MLP") for rate in RATES]
    lines = [
        f"| model | documents | dtype | {' | '.join(names)} | relative L2, mean | 1 - cosine, max |",
        "|---|---|---|" + "---|" * (len(names) + 2),
    ]
    for record in records:
        if record["dtype"] != "f32":
            shares = " | ".join(f"{record[column]:.2%}" for column in columns)
            lines.append(
                f"| {record['model']} | {record['documents']:,} | {record['dtype']} | {shares} | "
                f"{record['relative_l2_mean']:.1e} | {1 - record['cosine_min']:.1e} |"
            )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--dtypes", default="bf16 f16 int8")
    parser.add_argument("--texts", type=pathlib.Path)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    records = compare(args, "SEL", args.data / "model", *random_documents(args))
    if args.texts:
        records += compare(args, "REAL", MINI, *real_documents(args))
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "selection.json").write_text(json.dumps(records, indent=1) + "\n")
    (args.out / "selection.md").write_text(table(records))
    print(table(records))


if __name__ == "__main__":
    main()
