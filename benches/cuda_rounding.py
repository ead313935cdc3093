"""What the CUDA path's roundings do to embeddings, scores and selections, computed without a GPU.

The forward pass of `src/encoder/cuda` in PyTorch f32, with every value rounded where a kernel there
writes bf16 or e4m3 (sums stay in f32, as on the GPU; only their order differs). The forms:

    erf    bf16; the product's epilogue applies erf-GELU, or adds the residual, to the f32 sum
    fp8    e4m3 inputs and weights of the four products; a scale per output, and a constant per input, from
           what no value can reach (kernels/src/cuda/e4m3.rs); inputs are rounded once, from f32, after a
           GELU whose exponent is cubic; attention is bf16

`fp8:qkv+ffn1` computes only these products in fp8 (of qkv, out, ffn1, ffn2), `fp8@1:-1` all but the first
and the last layer; both go together. `fp8-rows` and `fp8-hidden` are what was before constants: a scale per
token from its largest value, or for FFN2 from a bound of the token; `fp8-hidden` has constants after layer norms.

    python cuda_rounding.py MODEL_DIR FILE.jsonl.zst... [--documents 20000] [--forms erf fp8 ...] [--base]

prints a line of JSON per form. Against f32 with erf: relative L2, also without what all embeddings share
(centred), cosine, and how many of the best 10% and 5% agree, by heads trained on the f32 embeddings of other
documents (rows whose `source` starts with one of POSITIVE against the rest; means over HEADS heads).
`refined` is what `--refine` would select: documents near the threshold again in bf16, as `refine.py`
restates it; against bf16, with the share of documents that this computes again. `--base` measures
instead random weights of the base shape on random ids (no head that means anything: only the distances).
Needs torch, transformers, tokenizers, zstandard.
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
from refine import refine
from transformers import AutoModel, AutoTokenizer, XLMRobertaConfig, XLMRobertaModel

POSITIVE = ("exams", "cmrc2018", "gaokao", "xquad", "facqa", "jcommonsenseqa", "security101", "cncf")
BATCH_TOKENS = 4_096
TRAINING_SHARE = 0.2
HEADS = 5
RATES = (0.1, 0.05)
RISK = 1e-4
PRODUCTS = ("qkv", "out", "ffn1", "ffn2")
E4M3_MAX = 448.0
MARGIN = 65 / 64
GELU = (-1.1281823, -0.50793457, -0.021332966)


def bf16(x):
    return x.to(torch.bfloat16).to(torch.float32)


def e4m3(rows, scale):
    """Rows in e4m3, as f32, and their scale."""
    scale = torch.where(scale > 0, scale, 1.0)
    return (rows / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).to(torch.float32), scale


def row_scale(rows):
    return rows.abs().amax(-1, keepdim=True) / E4M3_MAX


def norm_bound(norm):
    """What no value after a layer norm reaches."""
    return MARGIN * (math.sqrt(len(norm.weight)) * norm.weight.abs() + norm.bias.abs()).max()


class Product:
    """A linear map in f32, bf16 or fp8; what it returns is not rounded. In fp8, `bound` is the largest
    magnitude of its input, or None for scales of rows."""

    def __init__(self, layers, kind):
        weight = torch.cat([layer.weight for layer in layers])
        bias = torch.cat([layer.bias for layer in layers])
        self.is_fp8 = kind == "fp8"
        self.round = (lambda x: x) if kind == "f32" else bf16
        self.bias = self.round(bias)
        if self.is_fp8:
            # As loaded: rounded to bf16 first.
            self.weight, self.scale = e4m3(bf16(weight), row_scale(bf16(weight)))
        else:
            self.weight = self.round(weight)
        self.bound = None
        self.factor = weight.norm(dim=1).max() * math.sqrt(weight.shape[1]) * 17 / 16
        self.least = bias.abs().max()

    def row_bound(self, x):
        """What no result for the rows of x is larger than."""
        return self.factor * x.abs().amax(-1, keepdim=True) + self.least

    def bounds(self, norm):
        """What no result reaches, by output, if x comes out of `norm`."""
        w, inputs = (self.weight * self.scale).double(), self.weight.shape[1]
        gamma, beta = norm.weight.double(), norm.bias.double()
        sphere = math.sqrt(inputs) * (w * gamma).norm(dim=1)
        rounding = 17 / 16 * (1 + 33 / 32 * inputs / 8192) - 1
        step = norm_bound(norm) / E4M3_MAX / 1024
        sums = rounding * (sphere + w.abs() @ beta.abs()) + step * w.abs().sum(1)
        return (MARGIN * (sphere + (w @ beta + self.bias).abs() + sums)).float()

    def __call__(self, x, bound=None):
        if not self.is_fp8:
            return torch.nn.functional.linear(self.round(x), self.weight, self.bias)
        bound = self.bound if bound is None else bound
        x, scale = e4m3(x, row_scale(x) if bound is None else bound / E4M3_MAX)
        return torch.nn.functional.linear(x, self.weight) * scale * self.scale[:, 0] + self.bias


def gelu_of_fp8(x):
    """x Phi(x) with the cubic exponent of kernels/src/cuda/gelu.cuh."""
    t = x.abs()
    below = torch.exp2(((GELU[2] * t + GELU[1]) * t + GELU[0]) * t - 1)
    return x * torch.where(x < 0, below, 1 - below)


def kinds(form, layers):
    """The kind of each product of each layer."""
    name, _, span = form.partition("@")
    name, _, products = name.partition(":")
    if name not in ("f32", "erf", "fp8", "fp8-rows", "fp8-hidden"):
        raise SystemExit(f"no form named {form}")
    first, last = (int(end) if end else None for end in (span or ":").split(":"))
    fp8 = set(range(layers)[first:last])
    chosen = products.split("+") if products else PRODUCTS

    def kind(layer, product):
        if name.startswith("fp8") and layer in fp8 and product in chosen:
            return "fp8"
        return "f32" if name == "f32" else "bf16"

    return [{product: kind(layer, product) for product in PRODUCTS} for layer in range(layers)]


def norm(layer, x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], layer.weight, layer.bias, layer.eps)


class Rounded:
    """A model whose forward pass rounds as `form` says."""

    def __init__(self, model, form):
        self.model, self.config = model, model.config
        self.round = (lambda x: x) if form == "f32" else bf16
        self.products = []
        of_layers = kinds(form, self.config.num_hidden_layers)
        for layer, kind in zip(model.encoder.layer, of_layers, strict=True):
            own = layer.attention.self
            maps = ([own.query, own.key, own.value], [layer.attention.output.dense],
                    [layer.intermediate.dense], [layer.output.dense])
            both = zip(PRODUCTS, maps, strict=True)
            self.products.append({name: Product(parts, kind[name]) for name, parts in both})
        self.is_constant = form.startswith("fp8") and not form.startswith(("fp8-rows", "fp8-hidden"))
        if form.startswith("fp8") and not form.startswith("fp8-rows"):
            self.bound_inputs()

    def bound_inputs(self):
        before = self.model.embeddings.LayerNorm
        for layer, maps in zip(self.model.encoder.layer, self.products, strict=True):
            between = layer.attention.output.LayerNorm
            for product, norm in (("qkv", before), ("ffn1", between)):
                maps[product].bound = norm_bound(norm)
            if self.is_constant:
                width = self.config.hidden_size
                if maps["qkv"].is_fp8:
                    maps["out"].bound = maps["qkv"].bounds(before)[2 * width:].max()
                if maps["ffn1"].is_fp8:
                    maps["ffn2"].bound = maps["ffn1"].bounds(between).max()
            before = layer.output.LayerNorm

    def attention(self, qkv, mask):
        r = self.round
        batch, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        heads = self.config.num_attention_heads
        q, k, v = (
            part.view(batch, length, heads, -1).transpose(1, 2) for part in qkv.split(width, -1)
        )
        scores = q @ k.transpose(2, 3) / math.sqrt(width // heads)
        scores = scores.masked_fill(~mask[:, None, None], -math.inf)
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        context = (r(weights) @ v) / weights.sum(-1, keepdim=True)
        return context.transpose(1, 2).reshape(batch, length, width)

    @torch.no_grad()
    def __call__(self, input_ids, lengths):
        """Mean-pooled states of padded `input_ids` [B, L]."""
        r, e = self.round, self.model.embeddings
        positions = torch.arange(input_ids.shape[1]) + self.config.pad_token_id + 1
        fixed = e.position_embeddings.weight[positions] + e.token_type_embeddings.weight[0]
        # What a norm writes is rounded where it is used: an fp8 product quantises the f32 values.
        hidden = norm(e.LayerNorm, r(e.word_embeddings.weight[input_ids]) + fixed)
        mask = torch.arange(input_ids.shape[1])[None] < lengths[:, None]
        for layer, maps in zip(self.model.encoder.layer, self.products, strict=True):
            context = self.attention(r(maps["qkv"](hidden)), mask)
            # The attention kernel rounds once: to bf16, or to e4m3 for an fp8 product.
            context = context if self.is_constant and maps["out"].is_fp8 else r(context)
            attended = r(maps["out"](context) + r(hidden))
            hidden = norm(layer.attention.output.LayerNorm, attended)
            is_narrow = self.is_constant and maps["ffn2"].is_fp8
            inner = (gelu_of_fp8 if is_narrow else torch.nn.functional.gelu)(maps["ffn1"](hidden))
            by_row = maps["ffn1"].is_fp8 and maps["ffn2"].bound is None
            bound = maps["ffn1"].row_bound(hidden) if by_row else None
            hidden = norm(layer.output.LayerNorm, r(maps["ffn2"](inner, bound) + r(hidden)))
        mask = mask[..., None].float()
        return (r(hidden) * mask).sum(1) / mask.sum(1)


def embed(model, sequences, form):
    rounded = Rounded(model, form)
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
        out[group] = rounded(ids, lengths).numpy()
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
    difference = np.linalg.norm(rounded - exact, axis=1)
    norms, own = np.linalg.norm(exact, axis=1), np.linalg.norm(exact - exact.mean(0), axis=1)
    cosine = (exact * rounded).sum(1) / (norms * np.linalg.norm(rounded, axis=1))
    return {
        "relative_l2_max": float((difference / norms).max()),
        "relative_l2_mean": float((difference / norms).mean()),
        "centred_l2_mean": float((difference / own).mean()),
        "cosine_min": float(cosine.min()),
        "cosine_mean": float(cosine.mean()),
    }


def agreement(exact, rounded, rate):
    """Share of the best `rate` by `exact` that is among the best by `rounded`."""
    keep = round(len(exact) * rate)
    best = [set(np.argsort(-scores, kind="stable")[:keep]) for scores in (exact, rounded)]
    return len(best[0] & best[1]) / keep


def selections(heads, exact, half, rounded, seed):
    """What heads select by `rounded`, against f32 and, refined, against bf16; means over the heads."""
    found = {}

    def add(name, value):
        found.setdefault(name, []).append(float(value))

    for head in heads:
        of_f32, of_bf16, scores = head(exact), head(half), head(rounded)
        add("score_noise_in_sd", (scores - of_f32).std() / of_f32.std())
        for rate in RATES:
            add(f"agreement_{rate}", agreement(of_f32, scores, rate))
            add(f"agreement_with_bf16_{rate}", agreement(of_bf16, scores, rate))
            again = refine(scores, of_bf16, [rate], RISK, np.random.default_rng(seed))
            add(f"refined_{rate}", agreement(of_bf16, np.where(again, of_bf16, scores), rate))
            add(f"computed_again_{rate}", again.mean())
    return {name: float(np.mean(values)) for name, values in found.items()}


def random_model(seed, spread, documents):
    """The base shape with random weights, and random ids."""
    torch.manual_seed(seed)
    config = XLMRobertaConfig(vocab_size=5000, max_position_embeddings=514, type_vocab_size=1,
                              initializer_range=spread, layer_norm_eps=1e-5)
    model = XLMRobertaModel(config, add_pooling_layer=False).eval()
    draw = random.Random(seed)
    lengths = [min(512, max(8, int(draw.lognormvariate(5.7, 0.9)))) for _ in range(documents)]
    return model, [[draw.randrange(3, 5000) for _ in range(n)] for n in lengths]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--forms", nargs="+", default=["erf", "fp8"])
    parser.add_argument("--base", action="store_true")
    parser.add_argument("--spread", type=float, default=0.05, help="of the weights of --base")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    heads = []
    if args.base:
        model, sequences = random_model(args.seed, args.spread, args.documents)
        exact = embed(model, sequences, "f32")
    else:
        model = AutoModel.from_pretrained(args.model, dtype=torch.float32).eval()
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        rows = read(args.files, round(args.documents / (1 - TRAINING_SHARE)), args.seed)
        texts = [text for text, _ in rows]
        sequences = tokenizer(texts, truncation=True, max_length=512)["input_ids"]
        digest = hashlib.sha256(json.dumps(sequences).encode()).hexdigest()[:16]
        exact = embed(model, sequences, "f32")
        training = len(rows) - args.documents
        good = [is_good for _, is_good in rows[:training]]
        heads = [train_head(exact[:training], good, args.seed + i) for i in range(HEADS)]
        exact, sequences = exact[training:], sequences[training:]
        print(json.dumps({"digest": digest, "documents": len(exact)}), flush=True)
    print(json.dumps({"tokens": sum(map(len, sequences))}), flush=True)
    half = embed(model, sequences, "erf")
    for form in args.forms:
        rounded = half if form == "erf" else embed(model, sequences, form)
        result = {"form": form, **distances(exact, rounded)}
        if heads:
            result |= selections(heads, exact, half, rounded, args.seed)
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
