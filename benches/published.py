"""The published pipeline (FineWeb2-HQ) on the same model and documents, for speed and agreement.

What it does, step by step, is what `xlmr_embeddings.py` and `mlp.py` of FineWeb2-HQ describe: tokenize
10,000 documents at once with overflow, pad to the longest chunk, run the model in batches of 4,096
chunks in the given order, mean-pool with the mask, keep Python lists of floats, score chunk 0 with the
head, take the threshold from the quantile of a sample, keep what is strictly above.

    python published.py MODEL_DIR HEAD.safetensors RUN_DIR FILE.parquet... [--dtype bfloat16]

RUN_DIR is a polysift run over the same files with `parts.embeddings = "f32"`; prints JSON with the
documents per second of every step, the distance of the embeddings and scores, and the overlap of
the selections. Needs torch, transformers, pyarrow, safetensors, numpy.
"""

import argparse
import json
import pathlib
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

TOKENIZER_BATCH = 10_000
MODEL_BATCH = 4_096
SAMPLE = 1_000_000


def read_texts(files):
    """Ids and texts of all rows with text, in order."""
    ids, texts = [], []
    for path in files:
        table = pq.read_table(path, columns=["id", "text"])
        for key, text in zip(table["id"].to_pylist(), table["text"].to_pylist()):
            if text is not None and text.strip():
                ids.append(key)
                texts.append(text)
    return ids, texts


def mean_pool(hidden, mask):
    """Masked mean as the published code computes it."""
    mask = mask.unsqueeze(-1)
    return (hidden * mask).sum(1) / torch.clamp(mask.sum(1).float(), min=1e-9)


@torch.no_grad()
def embed(model, tokenizer, texts, max_tokens, first_only):
    """One list of chunk vectors per document."""
    documents = []
    for start in range(0, len(texts), TOKENIZER_BATCH):
        batch = texts[start : start + TOKENIZER_BATCH]
        tokens = tokenizer(
            batch,
            truncation=True,
            max_length=max_tokens,
            padding=True,
            return_overflowing_tokens=not first_only,
            return_tensors="pt",
        )
        owners = tokens.pop("overflow_to_sample_mapping", torch.arange(len(batch))).tolist()
        vectors = [[] for _ in batch]
        for at in range(0, len(owners), MODEL_BATCH):
            part = slice(at, at + MODEL_BATCH)
            ids, mask = tokens["input_ids"][part], tokens["attention_mask"][part]
            pooled = mean_pool(model(input_ids=ids, attention_mask=mask)[0], mask)
            for owner, vector in zip(owners[part], pooled.tolist()):
                vectors[owner].append(vector)
        documents.extend(vectors)
    return documents


def mlp_scores(head, first):
    """Sigmoid scores of `[n, D]` chunk-0 embeddings."""
    hidden = torch.relu(first @ head["classifier.0.weight"].T + head["classifier.0.bias"])
    return torch.sigmoid(hidden @ head["classifier.3.weight"].T + head["classifier.3.bias"])[:, 0]


def polysift_sidecars(run):
    """Embeddings of chunk 0 and scores of a run, by id."""
    parts = sorted(pathlib.Path(run, "embeddings").rglob("*.parquet"))
    table = pa.concat_tables(pq.read_table(p, columns=["id", "embeddings"]) for p in parts)
    pairs = zip(table["id"].to_pylist(), table["embeddings"].to_pylist())
    vectors = {key: chunks[0] for key, chunks in pairs if chunks}
    parts = sorted(pathlib.Path(run, "scores", "quality").rglob("*.parquet"))
    table = pa.concat_tables(pq.read_table(p, columns=["id", "score"]) for p in parts)
    return vectors, dict(zip(table["id"].to_pylist(), table["score"].to_pylist()))


def main():
    """Runs the steps and prints the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("head")
    parser.add_argument("run")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--retention", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--first-only", action="store_true", help="embed the first chunk only")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModel.from_pretrained(args.model, dtype=getattr(torch, args.dtype)).eval()
    head = load_file(args.head)

    began = time.perf_counter()
    ids, texts = read_texts(args.files)
    documents = embed(model, tokenizer, texts, args.max_tokens, args.first_only)
    embedded = time.perf_counter()
    first = torch.tensor([vectors[0] for vectors in documents], dtype=torch.float32)
    scores = mlp_scores(head, first).numpy()
    threshold = np.float32(np.quantile(scores[:SAMPLE].astype(np.float64), 1 - args.retention))
    kept = {key for key, score in zip(ids, scores) if score > threshold}
    ended = time.perf_counter()

    vectors, ours = polysift_sidecars(args.run)
    mine = np.array([vectors[key] for key in ids], dtype=np.float64)
    theirs = first.numpy().astype(np.float64)
    distance = np.linalg.norm(mine - theirs, axis=1) / np.linalg.norm(theirs, axis=1)
    our_scores = np.array([ours[key] for key in ids])
    count = int(np.ceil(args.retention * len(ids)))
    our_kept = {ids[i] for i in np.argsort(-our_scores, kind="stable")[:count]}
    print(
        json.dumps(
            {
                "documents": len(ids),
                "chunks": sum(map(len, documents)),
                "embed_secs": round(embedded - began, 3),
                "total_secs": round(ended - began, 3),
                "documents_per_sec": round(len(ids) / (ended - began), 2),
                "relative_l2": {"mean": float(distance.mean()), "max": float(distance.max())},
                "score_difference": float(np.abs(our_scores - scores).max()),
                "kept": {"published": len(kept), "polysift": count, "both": len(kept & our_kept)},
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
