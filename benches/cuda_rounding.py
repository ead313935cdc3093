"""What the CUDA path's roundings do to embeddings, scores and selections, computed without a GPU.

The forward pass of `src/encoder/cuda` in PyTorch f32, with every value rounded to bf16 where a kernel
there writes bf16 (sums stay in f32, as on the card; only their order differs). Two ways to the GELU:

    erf    the GEMM writes bf16, a kernel reads it and writes erf-GELU in bf16: two roundings
    tanh   the GEMM's epilogue applies the tanh form to the f32 sum: one rounding

    python cuda_rounding.py MODEL_DIR FILE.jsonl.zst... [--documents 20000] [--base]

prints, against f32 with erf: relative L2 and cosine per document, and how many of the best 10% and 5%
agree, by a head trained on the f32 embeddings of other documents (rows whose `source` starts with one
of POSITIVE against the rest). `--base` measures instead random weights of the base shape on random ids
(no head that means anything: only the distances). Needs torch, transformers, tokenizers, zstandard.
"""

import argparse
import hashlib
import io
import json
import math
import pathlib
import random

import numpy as np
import torch
import zstandard
from transformers import AutoModel, AutoTokenizer, XLMRobertaConfig, XLMRobertaModel

POSITIVE = ("exams", "cmrc2018", "gaokao", "xquad", "facqa", "jcommonsenseqa", "security101", "cncf")
BATCH_TOKENS = 16_384
TRAINING_SHARE = 0.2


def identity(x):
    return x


def bf16(x):
    return x.to(torch.bfloat16).to(torch.float32)


def linear(layer, x, round_to):
    return torch.nn.functional.linear(x, round_to(layer.weight), round_to(layer.bias))


def norm(layer, x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], layer.weight, layer.bias, layer.eps)


@torch.no_grad()
def forward(model, input_ids, lengths, form):
    """Mean-pooled states of padded `input_ids` [B, L]; `form` is f32, erf or tanh."""
    r = identity if form == "f32" else bf16
    e = model.embeddings
    positions = torch.arange(input_ids.shape[1]) + model.config.pad_token_id + 1
    fixed = e.position_embeddings.weight[positions] + e.token_type_embeddings.weight[0]
    hidden = r(norm(e.LayerNorm, r(e.word_embeddings.weight[input_ids]) + fixed))
    mask = torch.arange(input_ids.shape[1])[None] < lengths[:, None]
    batch, length, width = hidden.shape
    heads = model.config.num_attention_heads
    for layer in model.encoder.layer:
        own = layer.attention.self
        q, k, v = (
            r(linear(part, hidden, r)).view(batch, length, heads, -1).transpose(1, 2)
            for part in (own.query, own.key, own.value)
        )
        scores = q @ k.transpose(2, 3) / math.sqrt(width // heads)
        scores = scores.masked_fill(~mask[:, None, None], -math.inf)
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        context = r((r(weights) @ v) / weights.sum(-1, keepdim=True))
        context = context.transpose(1, 2).reshape(batch, length, width)
        attended = r(linear(layer.attention.output.dense, context, r))
        hidden = r(norm(layer.attention.output.LayerNorm, attended + hidden))
        inner = linear(layer.intermediate.dense, hidden, r)
        if form == "tanh":
            inner = r(torch.nn.functional.gelu(inner, approximate="tanh"))
        else:
            inner = r(torch.nn.functional.gelu(r(inner)))
        hidden = r(norm(layer.output.LayerNorm, r(linear(layer.output.dense, inner, r)) + hidden))
    mask = mask[..., None].float()
    return (hidden * mask).sum(1) / mask.sum(1)


def embed(model, sequences, form):
    order = sorted(range(len(sequences)), key=lambda i: -len(sequences[i]))
    out = np.zeros((len(sequences), model.config.hidden_size), np.float32)
    at = 0
    while at < len(order):
        count = max(1, BATCH_TOKENS // len(sequences[order[at]]))
        group = order[at : at + count]
        lengths = torch.tensor([len(sequences[i]) for i in group])
        ids = torch.full((len(group), int(lengths[0])), model.config.pad_token_id)
        for row, i in enumerate(group):
            ids[row, : len(sequences[i])] = torch.tensor(sequences[i])
        out[group] = forward(model, ids, lengths, form).numpy()
        at += count
    return out


def read(files, count, seed):
    """`count` rows of the files, drawn evenly: text and whether its source is a positive one."""
    rows = []
    for path in files:
        with zstandard.open(path, "rb") as raw:
            for line in io.TextIOWrapper(raw, "utf-8"):
                row = json.loads(line)
                rows.append((row["text"], pathlib.Path(path).name.startswith(POSITIVE)))
    random.Random(seed).shuffle(rows)
    return rows[:count]


def train_head(x, y, seed):
    torch.manual_seed(seed)
    width = x.shape[1]
    head = torch.nn.Sequential(torch.nn.Linear(width, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
    x, y = torch.tensor(x), torch.tensor(y, dtype=torch.float32)
    for _ in range(20):
        for rows in torch.randperm(len(x)).split(256):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(head(x[rows])[:, 0], y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return lambda rows: head(torch.tensor(rows))[:, 0].detach().numpy()


def distances(exact, rounded):
    relative = np.linalg.norm(rounded - exact, axis=1) / np.linalg.norm(exact, axis=1)
    cosine = (exact * rounded).sum(1) / (
        np.linalg.norm(exact, axis=1) * np.linalg.norm(rounded, axis=1)
    )
    return {
        "relative_l2_max": float(relative.max()),
        "relative_l2_mean": float(relative.mean()),
        "cosine_min": float(cosine.min()),
    }


def agreement(exact, rounded, rate):
    """Share of the best `rate` by `exact` that is among the best by `rounded`."""
    keep = round(len(exact) * rate)
    best = [set(np.argsort(-scores, kind="stable")[:keep]) for scores in (exact, rounded)]
    return len(best[0] & best[1]) / keep


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--base", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    result = {"documents": args.documents}
    if args.base:
        torch.manual_seed(args.seed)
        config = XLMRobertaConfig(vocab_size=5000, max_position_embeddings=514, type_vocab_size=1,
                                  initializer_range=0.05, layer_norm_eps=1e-5)
        model = XLMRobertaModel(config, add_pooling_layer=False).eval()
        draw = random.Random(args.seed)
        lengths = [min(512, max(8, int(draw.lognormvariate(5.7, 0.9)))) for _ in range(args.documents)]
        sequences = [[draw.randrange(3, 5000) for _ in range(n)] for n in lengths]
    else:
        model = AutoModel.from_pretrained(args.model, dtype=torch.float32).eval()
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        rows = read(args.files, round(args.documents / (1 - TRAINING_SHARE)), args.seed)
        texts = [text for text, _ in rows]
        sequences = tokenizer(texts, truncation=True, max_length=512)["input_ids"]
        result["digest"] = hashlib.sha256(json.dumps(sequences).encode()).hexdigest()[:16]
    exact = embed(model, sequences, "f32")
    if not args.base:
        training = len(rows) - args.documents
        score = train_head(exact[:training], [good for _, good in rows[:training]], args.seed)
        exact, sequences = exact[training:], sequences[training:]
    result["tokens"] = sum(map(len, sequences))
    for form in ("erf", "tanh"):
        rounded = embed(model, sequences, form)
        result[form] = distances(exact, rounded)
        if not args.base:
            for rate in (0.1, 0.05):
                result[form][f"agreement_{rate}"] = agreement(score(exact), score(rounded), rate)
            noise = score(rounded) - score(exact)
            result[form]["score_noise_in_sd"] = float(noise.std() / score(exact).std())
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
