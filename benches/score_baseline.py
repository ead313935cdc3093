"""Baselines of score.rs on the same numbers: numpy for thresholds, PyTorch for heads; one thread.

    score_baseline.py threshold RUN     logits.f32 of RUN: sort and partition
    score_baseline.py score RUN         the parts of embeddings of RUN through its two heads
"""

import glob
import os
import resource
import struct
import sys
import json
import time

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
import numpy as np


def timed(name, rows, work):
    before = time.process_time()
    result = work()
    seconds = time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{name}: {seconds:.2f} s of CPU time, {rows / seconds:.0f} rows/s, peak {peak} MiB", flush=True)
    return result


def threshold(root):
    logits = np.fromfile(f"{root}/logits.f32", np.float32)
    rank = len(logits) - -(-len(logits) // 10)
    timed("numpy partition", len(logits), lambda: np.partition(logits, rank)[rank])
    value = timed("numpy sort", len(logits), lambda: np.sort(logits)[rank])
    found = json.load(open(f"{root}/selection/eng_Latn.json"))
    outcome = found["thresholds"][0]["outcomes"][0]
    assert np.float32(outcome["threshold_logit"]) == value, (outcome, value)
    assert outcome["kept"]["num_documents"] == -(-len(logits) // 10), outcome
    print("the thresholds are equal")


def tensors(path):
    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = (8 + length + at for at in entry["data_offsets"])
            yield name, np.frombuffer(data[start:end], np.float32).reshape(entry["shape"])


def score(root):
    import pyarrow.parquet as pq
    import torch

    torch.set_num_threads(1)
    paths = sorted(glob.glob(f"{root}/embeddings/**/*.parquet", recursive=True))[:2]
    mlp = {name: torch.tensor(value) for name, value in tensors(f"{root}/mlp")}
    references = torch.nn.functional.normalize(torch.tensor(dict(tensors(f"{root}/cosine"))["references"]))

    def read():
        columns = [pq.read_table(path, columns=["embeddings"], use_threads=False)["embeddings"] for path in paths]
        flat = [column.combine_chunks().flatten().flatten().to_numpy() for column in columns]
        return torch.tensor(np.concatenate(flat)).reshape(-1, 768)

    rows = sum(pq.read_metadata(path).num_rows for path in paths)
    embeddings = timed("pyarrow, embedding column only", rows, read)

    def layers():
        hidden = torch.relu(embeddings @ mlp["classifier.0.weight"].T + mlp["classifier.0.bias"])
        return torch.sigmoid(hidden @ mlp["classifier.3.weight"].T + mlp["classifier.3.bias"])

    timed("torch MLP, in memory", rows, layers)
    few = embeddings[:4096]
    best = lambda: (torch.nn.functional.normalize(few) @ references.T).amax(1)
    timed("torch cosine, in memory", len(few), best)


{"threshold": threshold, "score": score}[sys.argv[1]](sys.argv[2])
