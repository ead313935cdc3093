"""The student's weights at rest: the ``pack-quantized`` form of compressed-tensors, 4 bits.

Each matrix is three tensors: ``weight_packed`` (int32 ``[rows, columns / 8]``, eight codes each, the
first in the lowest bits), ``weight_scale`` (f16 ``[rows, columns / 32]``) and ``weight_shape``. A
value is ``(code - 8) * scale``. The rest is in half precision.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import XLMRobertaConfig, XLMRobertaModel

from teacher import BLOCK, Quantized


HAS_BF16 = "bf16" in Path("/proc/cpuinfo").read_text(encoding="utf-8")


def fast_products() -> torch.autocast:
    """Products in bf16, unless the processor has none: then they take 50 times as long as in f32."""
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=HAS_BF16)


def quantize(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes (0 to 15) and scales of each 32 columns: the largest value by size gets code 0."""
    blocks = weight.reshape(weight.shape[0], -1, BLOCK)
    largest = blocks.gather(2, blocks.abs().argmax(2, keepdim=True))
    scales = (largest / -8).half()
    divisor = scales.float()
    codes = torch.where(divisor == 0, 8.0, (blocks / divisor).round() + 8).clamp(0, 15)
    return codes.reshape(weight.shape), scales.squeeze(2)


def fake_quantize(weight: torch.Tensor) -> torch.Tensor:
    """The values that ``quantize`` leaves of a matrix."""
    codes, scales = quantize(weight)
    return (codes - 8) * scales.float().repeat_interleave(BLOCK, dim=1)


def packed(name: str, codes: np.ndarray, scales: np.ndarray) -> dict[str, torch.Tensor]:
    """The three tensors of a matrix."""
    rows, columns = codes.shape
    nibbles = codes.astype(np.uint32).reshape(rows, columns // 8, 8)
    words = (nibbles << (4 * np.arange(8, dtype=np.uint32))).sum(2, dtype=np.uint32)
    return {f"{name}_packed": torch.from_numpy(words.view(np.int32)),
            f"{name}_scale": torch.from_numpy(np.ascontiguousarray(scales, dtype=np.float16)),
            f"{name}_shape": torch.tensor([rows, columns])}


def save_student(model: XLMRobertaModel, words: Quantized, kept: np.ndarray, out_dir: Path) -> None:
    """``model.safetensors`` and ``config.json`` of the student."""
    linear = {f"{name}.weight" for name, module in model.named_modules()
              if isinstance(module, nn.Linear)}
    tensors: dict[str, torch.Tensor] = {}
    for name, value in model.state_dict().items():
        if name == "embeddings.word_embeddings.weight":
            tensors |= packed(name, words.codes[kept], words.scales[kept])
        elif name in linear:
            codes, scales = quantize(value)
            tensors |= packed(name, codes.numpy(), scales.numpy())
        elif not name.endswith(("position_ids", "token_type_ids")):
            tensors[name] = value.half().contiguous()
    save_file(tensors, out_dir / "model.safetensors", metadata={"format": "pt"})
    c = model.config
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group",
               "group_size": BLOCK}
    config = {
        "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta",
        "vocab_size": c.vocab_size, "hidden_size": c.hidden_size,
        "num_hidden_layers": c.num_hidden_layers, "num_attention_heads": c.num_attention_heads,
        "intermediate_size": c.intermediate_size, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": c.max_position_embeddings, "type_vocab_size": 1,
        "layer_norm_eps": c.layer_norm_eps, "bos_token_id": 0, "pad_token_id": 1,
        "eos_token_id": 2,
        "quantization_config": {
            "quant_method": "compressed-tensors", "format": "pack-quantized",
            "quantization_status": "compressed",
            "config_groups": {"group_0": {"targets": ["Linear", "Embedding"], "weights": weights}},
            "ignore": ["embeddings.position_embeddings", "embeddings.token_type_embeddings"],
        },
    }
    (out_dir / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def unpacked(name: str, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """The single-precision values of the packed matrix ``name``."""
    words = tensors[f"{name}_packed"].numpy().view(np.uint32)
    nibbles = (words[:, :, None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
    codes = nibbles.reshape(len(words), -1).astype(np.uint8)
    return torch.from_numpy(Quantized(codes, tensors[f"{name}_scale"].numpy()).values())


def load_model(directory: Path) -> XLMRobertaModel:
    """An encoder directory, its weights plain or packed, in single precision.

    transformers 5.23 with compressed-tensors 0.20 stops at a packed word table.
    """
    settings = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    if "quantization_config" not in settings:
        return XLMRobertaModel.from_pretrained(
            directory, add_pooling_layer=False, dtype=torch.float32).eval()
    del settings["quantization_config"]
    stored = load_file(directory / "model.safetensors")
    packed_names = [n.removesuffix("_packed") for n in stored if n.endswith("_packed")]
    tensors = {n: t.float() for n, t in stored.items() if t.dtype == torch.float16
               and not n.endswith("_scale")}
    tensors |= {name: unpacked(name, stored) for name in packed_names}
    model = XLMRobertaModel(XLMRobertaConfig(**settings), add_pooling_layer=False)
    model.load_state_dict(tensors, strict=False)
    return model.eval()
