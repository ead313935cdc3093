"""How far e4m3 is off where a row's scale is the bound of FFN1's rows instead of their largest magnitude.

    python bound.py MODEL_DIR FILE.jsonl...

Prints, for each layer, the mean relative L2 error of GELU's rows with either scale, and how many times their
largest magnitude the bound is. Needs torch, transformers.
"""

import json
import math
import sys

import torch
from transformers import AutoModel, AutoTokenizer

TEXTS = 8  # of each file

model = AutoModel.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
found = {}


def error(rows, bound):
    scale = bound / 448
    rounded = (rows / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale
    return ((rounded - rows).norm(dim=1) / rows.norm(dim=1)).mean().item()


def look(layer, linear):
    factor = linear.weight.norm(dim=1).max() * math.sqrt(linear.weight.shape[1]) * 17 / 16
    least = linear.bias.abs().max()

    def hook(_, args, __):
        x = args[0].reshape(-1, args[0].shape[-1])
        rows = torch.nn.functional.gelu(torch.nn.functional.linear(x, linear.weight, linear.bias))
        largest = rows.abs().amax(1, keepdim=True)
        bound = x.abs().amax(1, keepdim=True) * factor + least
        times = (bound / largest).median().item()
        found.setdefault(layer, []).append((error(rows, largest), error(rows, bound), times))

    return hook


for i, layer in enumerate(model.encoder.layer):
    layer.intermediate.dense.register_forward_hook(look(i, layer.intermediate.dense))
with torch.no_grad():
    for path in sys.argv[2:]:
        for line in open(path).readlines()[:TEXTS]:
            text = "query: " + json.loads(line)["text"]
            model(**tokenizer(text, truncation=True, max_length=512, return_tensors="pt"))
for i, values in sorted(found.items()):
    own, bound, times = torch.tensor(values).mean(0).tolist()
    print(f"layer {i:>2}: largest {own:.4f}, bound {bound:.4f}, which is {times:.0f} times the largest")
