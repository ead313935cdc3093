"""Makes tiny encoders with weights of 4 and 8 bits at rest, and their embeddings with transformers.

    packed.py OUT_DIR

As encoder.py, whose files it writes in the same form. Matrices are packed by compressed-tensors 0.20
(`pack-quantized`), and the embeddings are those of the weights that it unpacks: 4 bits with an f16
scale for 32 values, 8 bits with a bf16 scale for a row.
"""

import sys
from pathlib import Path

import torch
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import load_file, save_file

import encoder

SHAPE = {
    "hidden_size": 64,
    "num_attention_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 132,
}
SCHEMES = {
    "packed-4": ({"num_bits": 4, "strategy": "group", "group_size": 32}, torch.float16),
    "packed-8": ({"num_bits": 8, "strategy": "channel"}, torch.bfloat16),
}


def pack(weight, args, scale_dtype):
    """The tensors of a packed matrix, and the f32 values that they stand for."""
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    groups = weight.unflatten(1, (-1, args.group_size or weight.shape[1]))
    half = 1 << (args.num_bits - 1)
    scale = (groups.abs().amax(2) / (half - 1)).to(scale_dtype)
    tensors = {"weight": weight, "weight_scale": scale.float()}
    packed = PackedQuantizationCompressor.compress(tensors, scheme)
    values = PackedQuantizationCompressor.decompress(packed, scheme)["weight"]
    packed["weight_scale"] = packed["weight_scale"].to(scale_dtype)
    return packed, values


@torch.no_grad()
def main(out):
    torch.manual_seed(22)
    for name, (args, scale_dtype) in SCHEMES.items():
        args = QuantizationArgs(type="int", symmetric=True, **args)
        config, model = encoder.make_model(SHAPE, 0.2)
        packed = {}
        for module_name, module in model.named_modules():
            if isinstance(module, torch.nn.Linear) or module_name.endswith("word_embeddings"):
                tensors, values = pack(module.weight.data, args, scale_dtype)
                module.weight.data = values
                packed |= {f"{module_name}.{k}": v.contiguous() for k, v in tensors.items()}
        encoder.write(out / name, config, model, encoder.make_sequences(config))
        file = out / name / "model.safetensors"
        plain = {k: v for k, v in load_file(file).items() if f"{k}_packed" not in packed}
        save_file(plain | packed, file, {"format": "pt"})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
