"""Prune XLM-RoBERTa's vocabulary to the languages of the data, each by its own counts.

Every single character stays. Beyond them each language takes its most frequent pieces until their
share of its tokens reaches one common coverage, the highest for which the union has the wanted size.
A language's counts are the mean of two: its training text, and the words of the PyPI package
wordfreq with their frequencies, since for some languages there is little text.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import wordfreq
from tokenizers import Tokenizer

from corpora import Row

BOS, PAD, EOS, UNK = range(4)
MAX_LENGTH = 512
WORDS = 300_000
WORDFREQ_CODES = {
    "arb_Arab": "ar", "ces_Latn": "cs", "cmn_Hani": "zh", "dan_Latn": "da", "deu_Latn": "de",
    "ell_Grek": "el", "eng_Latn": "en", "fas_Arab": "fa", "fra_Latn": "fr", "hun_Latn": "hu",
    "ind_Latn": "id", "ita_Latn": "it", "jpn_Jpan": "ja", "nld_Latn": "nl", "pol_Latn": "pl",
    "por_Latn": "pt", "rus_Cyrl": "ru", "spa_Latn": "es", "swe_Latn": "sv", "tur_Latn": "tr",
    "vie_Latn": "vi",
}


def load_tokenizer(path: Path) -> Tokenizer:
    """A ``tokenizer.json`` that neither truncates nor pads."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def piece_counts(tokenizer: Tokenizer, texts: list[str],
                 weights: list[float] | None = None) -> np.ndarray:
    """How often each id occurs, each text counted with its weight."""
    counts = np.zeros(tokenizer.get_vocab_size())
    for i, encoding in enumerate(tokenizer.encode_batch(texts, add_special_tokens=False)):
        np.add.at(counts, encoding.ids, weights[i] if weights else 1.0)
    return counts


def shares(tokenizer: Tokenizer, language: str, rows: list[Row]) -> np.ndarray:
    """Each id's share of a language's tokens: the mean over training text and word list."""
    text = piece_counts(tokenizer, [row.text for row in rows])
    frequencies = wordfreq.get_frequency_dict(WORDFREQ_CODES[language], "best")
    words = sorted(frequencies, key=lambda word: (-frequencies[word], word))[:WORDS]
    listed = piece_counts(tokenizer, words, [frequencies[word] for word in words])
    return (text / text.sum() + listed / listed.sum()) / 2


def choose_pieces(pieces: list[str], by_language: dict[str, np.ndarray],
                  size: int) -> tuple[np.ndarray, float]:
    """The ids to keep, ascending, at most ``size``; and the coverage that all languages reach."""
    always = np.array([len(piece.removeprefix("▁")) <= 1 for piece in pieces])
    always[[BOS, PAD, EOS, UNK, -1]] = True
    ranked = []
    for share in by_language.values():
        order = np.argsort(-share, kind="stable")
        ranked.append((order, np.cumsum(share[order])))

    def kept(coverage: float) -> np.ndarray:
        keep = always.copy()
        for order, reached in ranked:
            keep[order[:np.searchsorted(reached, coverage) + 1]] = True
        return keep

    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if kept(middle).sum() > size else (middle, high)
    return np.flatnonzero(kept(low)), low


def prune(source: Path, kept: np.ndarray, out_dir: Path) -> None:
    """Write the tokenizer with the kept pieces only, and the two small files beside it."""
    content = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    new_ids = {int(old): new for new, old in enumerate(kept)}
    vocab = content["model"]["vocab"]
    content["model"]["vocab"] = [[vocab[i][0], float(f"{vocab[i][1]:.6g}")] for i in kept]
    for token in content["added_tokens"]:
        token["id"] = new_ids[token["id"]]
    for token in content["post_processor"]["special_tokens"].values():
        token["ids"] = [new_ids[i] for i in token["ids"]]
    content["truncation"] = content["padding"] = None
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    (out_dir / "tokenizer.json").write_text(text, encoding="utf-8")
    config = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
              "sep_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>",
              "clean_up_tokenization_spaces": False, "model_max_length": MAX_LENGTH,
              "tokenizer_class": "XLMRobertaTokenizer"}
    (out_dir / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
