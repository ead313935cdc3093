"""PyTorch and transformers on the model and the token ids of `cuda prepare`, for speed and as oracle.

    python cuda_baseline.py DATA --engine padded --out results/pytorch-padded.json

Engines:
    padded   bf16, batches of 4,096 chunks in the given order, padded to 512: what the published pipeline
             (FineWeb2-HQ) does
    sorted   bf16, sorted by length, each batch padded to its longest chunk, scaled dot-product attention
    f32      f32 without TF32: the oracle of `cuda_fidelity.py` (--embeddings)

A batch that does not fit into memory is halved until it does; `settings.batch` in the result says so.
Needs torch, transformers and numpy; opens no connection. `--device cpu --layers 2 --documents 50
--length 64` tries it without a GPU.
"""

import argparse
import json
import os
import pathlib
import statistics
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

PAD = 1
BATCHES = {"padded": 4096, "sorted": 128, "f32": 128}


def read_documents(data, workload, count, length):
    """Token ids, one array a document."""
    ids = np.load(data / f"{workload}.ids.npy")
    ends = np.cumsum(np.load(data / f"{workload}.lengths.npy"))
    documents = np.split(ids, ends[:-1])
    return [document[:length] for document in documents[:count]]


def batches_of(documents, args, batch):
    """Ids and mask on the host, with the places of the documents."""
    order = range(len(documents))
    if args.engine != "padded":
        order = sorted(order, key=lambda i: -len(documents[i]))
    for start in range(0, len(documents), batch):
        places = list(order[start : start + batch])
        rows = [documents[i] for i in places]
        width = args.length if args.engine == "padded" else max(map(len, rows))
        ids = np.full((len(rows), width), PAD, dtype=np.int64)
        for row, document in zip(ids, rows):
            row[: len(document)] = document
        ids = torch.from_numpy(ids)
        yield places, ids, (ids != PAD).long()


@torch.no_grad()
def embed(model, documents, args, batch):
    """Mean-pooled embeddings in the given order, on the host; pooled as the published code does."""
    embeddings = torch.empty(len(documents), model.config.hidden_size)
    for places, ids, mask in batches_of(documents, args, batch):
        ids, mask = ids.to(args.device), mask.to(args.device)
        hidden = model(input_ids=ids, attention_mask=mask)[0]
        mask = mask.unsqueeze(-1)
        embeddings[places] = ((hidden * mask).sum(1) / mask.sum(1).float()).cpu()
    return embeddings


def fit(model, documents, args):
    """The largest batch that fits, at most the asked one; its run is the warm-up."""
    batch = args.batch
    while True:
        try:
            return batch, embed(model, documents, args, batch)
        except torch.OutOfMemoryError:
            if batch == 1:
                raise
            batch //= 2
            print(f"out of memory; batch {batch}", flush=True)
            torch.cuda.empty_cache()


def unpacked(path, quantization):
    """The tensors of a file, packed ones (compressed-tensors' pack-quantized) as f32: eight values of four bits a
    word, or four of eight, the first in the lowest bits, with a scale for each group of a row. transformers
    does not read an embedding that is packed."""
    tensors = load_file(path)
    (group,) = quantization["config_groups"].values()
    bits, size = group["weights"]["num_bits"], group["weights"]["group_size"]
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    for name in [name for name in tensors if name.endswith(".weight_packed")]:
        stem = name.removesuffix("_packed")
        rows, columns = tensors.pop(f"{stem}_shape").tolist()
        words, scales = tensors.pop(name), tensors.pop(f"{stem}_scale").float()
        values = (words[..., None] >> shifts) & ((1 << bits) - 1)
        values = values.reshape(rows, -1)[:, :columns].float() - (1 << bits - 1)
        tensors[stem] = values * scales.repeat_interleave(size, 1)[:, :columns]
    return tensors


def load(args):
    """The model, and how many operations a document of n tokens needs."""
    config = transformers.AutoConfig.from_pretrained(args.data / "model")
    if args.layers:
        config.num_hidden_layers = args.layers
    dtype = torch.float32 if args.engine == "f32" else torch.bfloat16
    how = {"attn_implementation": "sdpa", "add_pooling_layer": False}
    if getattr(config, "quantization_config", None):
        weights = unpacked(args.data / "model/model.safetensors", config.quantization_config)
        del config.quantization_config
        model = transformers.AutoModel.from_config(config, **how)
        model.load_state_dict(weights)
        model = model.to(dtype)
    else:
        model = transformers.AutoModel.from_pretrained(args.data / "model", config=config, dtype=dtype, **how)
    hidden, inner = config.hidden_size, config.intermediate_size
    linear = 2 * (4 * hidden * hidden + 2 * hidden * inner)

    def operations(tokens):
        return config.num_hidden_layers * tokens * (linear + 4 * tokens * hidden)

    return model.eval().to(args.device), operations


def parse():
    """Arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--engine", required=True, choices=list(BATCHES))
    parser.add_argument("--workload", default=["W2"], nargs="+")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, help="chunks of a batch (default: the engine's)")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--layers", type=int, help="only the first layers of the model")
    parser.add_argument("--documents", type=int, help="only the first documents")
    parser.add_argument("--length", type=int, default=512, help="only the first tokens of a document")
    parser.add_argument("--embeddings", type=pathlib.Path, help="write the embeddings here (.npy)")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    args.batch = args.batch or BATCHES[args.engine]
    return args


def main():
    """Measures every workload, writes embeddings of the last one."""
    args = parse()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    model, operations = load(args)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    runs = []
    for workload in args.workload:
        documents = read_documents(args.data, workload, args.documents, args.length)
        tokens = sum(map(len, documents))
        batch, embeddings = fit(model, documents, args)
        seconds = []
        for _ in range(args.repetitions):
            began = time.perf_counter()
            embed(model, documents, args, batch)  # ends with a copy to the host, hence waits
            seconds.append(time.perf_counter() - began)
        if args.embeddings:
            np.save(args.embeddings, embeddings.numpy())
        if not seconds:
            continue
        median = statistics.median(seconds)
        runs.append(
            {
                "engine": f"pytorch-{args.engine}",
                "workload": workload,
                "settings": {"dtype": str(model.dtype), "batch": batch},
                "documents": len(documents),
                "tokens": tokens,
                "seconds": seconds,
                "median_seconds": median,
                "documents_per_second": len(documents) / median,
                "tokens_per_second": tokens / median,
                "tflops": sum(operations(len(d)) for d in documents) / median / 1e12,
            }
        )
        print(f"pytorch-{args.engine} {workload}: {tokens / median:,.0f} tokens/s, batch {batch}", flush=True)
        if args.out:
            args.out.write_text(json.dumps({"versions": versions, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
