"""A unigram vocabulary in XLM-RoBERTa's tokenizer pipeline.

The pieces are learned by sentencepiece with its ``nmt_nfkc`` character map; the result is written
as a ``tokenizer.json`` of the same structure as XLM-RoBERTa's, with the fairseq order of ids:
``<s>`` 0, ``<pad>`` 1, ``</s>`` 2, ``<unk>`` 3, the pieces, ``<mask>`` last.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer

BOS, PAD, EOS, UNK = range(4)
SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
CONTROL_PIECES = 3
MAX_LENGTH = 512


def learn_pieces(lines: Iterable[str], vocab_size: int, threads: int) -> tuple[list, bytes]:
    """Pieces with scores, and the compiled character map, for ``vocab_size`` ids in all."""
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=buffer, model_type="unigram",
        vocab_size=vocab_size - len(SPECIALS) - 1 + CONTROL_PIECES, character_coverage=0.9998,
        normalization_rule_name="nmt_nfkc", num_threads=threads, max_sentence_length=1_000_000,
        minloglevel=2,
    )
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(buffer.getvalue())
    pieces = [[p.piece, float(f"{p.score:.6g}")] for p in proto.pieces[CONTROL_PIECES:]]
    return pieces, proto.normalizer_spec.precompiled_charsmap


def _added_token(token_id: int, content: str) -> dict:
    return {"id": token_id, "content": content, "single_word": False, "lstrip": content == MASK,
            "rstrip": False, "normalized": False, "special": True}


def _template(*parts: str) -> list[dict]:
    return [{"Sequence" if part in "AB" else "SpecialToken": {"id": part, "type_id": 0}}
            for part in parts]


def tokenizer_json(pieces: list, charsmap: bytes) -> dict:
    """The ``tokenizer.json`` content for the given pieces."""
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always",
                 "split": True}
    vocab = [[token, 0.0] for token in SPECIALS] + pieces + [[MASK, 0.0]]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [_added_token(i, token) for i, token in enumerate(SPECIALS)]
        + [_added_token(len(vocab) - 1, MASK)],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Precompiled",
             "precompiled_charsmap": base64.b64encode(charsmap).decode("ascii")},
            {"type": "Strip", "strip_left": False, "strip_right": True},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
        ]},
        "pre_tokenizer": metaspace,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": _template("<s>", "A", "</s>"),
            "pair": _template("<s>", "A", "</s>", "</s>", "B", "</s>"),
            "special_tokens": {
                token: {"id": token, "ids": [token_id], "tokens": [token]}
                for token, token_id in (("</s>", EOS), ("<s>", BOS))
            },
        },
        "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": UNK, "vocab": vocab, "byte_fallback": False},
    }


def write_tokenizer(out_dir: Path, pieces: list, charsmap: bytes) -> None:
    """``tokenizer.json`` and the two small files that transformers reads beside it."""
    names = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
             "sep_token": "</s>", "unk_token": "<unk>"}
    mask = {key: value for key, value in _added_token(0, MASK).items()
            if key not in ("id", "special")}
    config = {**names, "mask_token": MASK, "clean_up_tokenization_spaces": False,
              "model_max_length": MAX_LENGTH, "tokenizer_class": "XLMRobertaTokenizer"}
    compact = json.dumps(tokenizer_json(pieces, charsmap), ensure_ascii=False,
                         separators=(",", ":"))
    (out_dir / "tokenizer.json").write_text(compact, encoding="utf-8")
    for name, content in (("tokenizer_config.json", config),
                          ("special_tokens_map.json", {**names, "mask_token": mask})):
        (out_dir / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def load_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer of a model directory."""
    return Tokenizer.from_file(str(directory / "tokenizer.json"))
