"""Tokenizer goldens, made with transformers' fast tokenizer (transformers 5.23, tokenizers 0.23).

    tokenizer.py train XLMR_TOKENIZER_JSON OUT_DIR TEXT...
        a small unigram tokenizer with XLM-R's pipeline (its normalizer, pre-tokenizer,
        post-processor, special tokens), trained on TEXT files: OUT_DIR/tokenizer.json
    tokenizer.py train-gemma OUT_DIR TEXT...
        a small BPE tokenizer with Gemma-2's pipeline (spaces become ▁, nothing splits the text, bytes
        for unknown characters, runs of line feeds, tabs and ▁ as added tokens) and mmBERT's special
        tokens, trained on TEXT files: OUT_DIR/tokenizer.json
    tokenizer.py expect TOKENIZER_JSON OUT_JSONL [JSONL_ZST...]
        chunks of the tricky texts below and of a sample of each JSONL_ZST's `text`;
        lines {"max_tokens", "text", "chunks"}
"""

import io
import json
import sys
from pathlib import Path

TRICKY = [
    "Hello world!",
    " ",
    "  two  leading spaces\tand\ttabs \u00a0 and no-break ",
    "line\r\nbreaks\nof\rall\u2028kinds\u0085",
    "\u0000NUL \u0001\u0002 control \u007f\u0080\u009f end",
    "zero\u200bwidth\u200c\u200d\ufeffand soft\u00adhyphen",
    "快速的棕色狐狸跳过懒狗。「引用」全角ＡＢＣ１２３",
    "速い茶色の狐 ｶﾞﾊﾟ ㍿ 〜",
    "مرحبا بالعالم ﷺ لا إله \u200fRTL\u200e",
    "שלום עולם हिन्दी में नमस्ते ภาษาไทย 한국어 조합형 한글",
    "👩‍👩‍👧‍👦 👍🏽 🇨🇭 ❤️ 1️⃣",
    "e\u0301 vs é, a\u0308\u0301\u0323 stacked, Ångström \u212b, ﬁ ligature ½ ² ™ …",
    "Z̷͑a̴͝l̶̛g̸͘o̵͠",
    "<s> literal <mask> and <mask>glued </s> <pad><unk> s<s>s",
    "▁ the metaspace ▁▁ itself",
    "\ud7ff\ue000\ufffd\U0010ffff\U00020000",
    "x" * 3000,
    "ab " * 20,
    "https://example.org/a?b=c&d=%20#e foo_bar@example.org 3.14159e-10",
    "runs:\n\n\n of\t\t tabs,     spaces and ▁▁▁; a \n <mask>\n\t<b>bold</b>  ",
    "<0x41> <0xE2><unused0> <bos><eos> \U00013000\U00013001 𝒳",
]
LONG = "The quick brown fox jumps over 13 lazy dogs; 狐狸跳过懒狗。 مرحبا بالعالم! "
MAX_TOKENS = [512, 16]
SAMPLE = 12


def train(source, out, files):
    from tokenizers import Tokenizer, models, trainers

    pipeline = json.loads(Path(source).read_text())
    tokenizer = Tokenizer.from_str(json.dumps({**pipeline, "added_tokens": [], "post_processor": None,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0]]}}))
    trainer = trainers.UnigramTrainer(vocab_size=1500, unk_token="<unk>", show_progress=False)
    lines = [line for file in files for line in Path(file).read_text().splitlines()]
    tokenizer.train_from_iterator(lines, trainer)
    pieces = json.loads(tokenizer.to_str())["model"]["vocab"]
    pieces = [[p, round(s, 4)] for p, s in pieces if p != "<unk>"]
    special = [["<s>", 0.0], ["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0]]
    vocab = [*special, *pieces, ["<mask>", 0.0]]
    pipeline["model"] = {"type": "Unigram", "unk_id": 3, "vocab": vocab, "byte_fallback": False}
    for token in pipeline["added_tokens"]:
        if token["content"] == "<mask>":
            token["id"] = len(vocab) - 1
    # Settings that must not matter.
    pipeline["truncation"] = {
        "direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0,
    }
    pipeline["padding"] = {
        "strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 1, "pad_type_id": 0, "pad_token": "<pad>",
    }
    Path(out).mkdir(parents=True, exist_ok=True)
    text = json.dumps(pipeline, ensure_ascii=False)
    (Path(out) / "tokenizer.json").write_text(text)


def train_gemma(out, files):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=2600, limit_alphabet=600, show_progress=False)
    lines = [line for file in files for line in Path(file).read_text().splitlines()]
    tokenizer.train_from_iterator(lines, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    runs = [c * n for c in "\n▁\t" for n in range(2, 6)]
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    added = [*special, "<unused0>", "\n", *runs, "<b>", "</b>", "<strong>"]
    pieces = [*added, *(f"<0x{b:02X}>" for b in range(256) if b != 9), "\t"]
    pieces += [p for p in model["vocab"] if p not in pieces]
    merges = [[r[:i], r[i:]] for r in reversed(runs) for i in range(1, len(r))] + model["merges"]
    pipeline = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": pieces.index(p), "content": p, "single_word": False, "lstrip": p == "<mask>",
             "rstrip": False, "normalized": False, "special": p in special} for p in added],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "},
                          "behavior": "MergedWithPrevious", "invert": False},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "<eos>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {t: {"id": t, "ids": [pieces.index(t)], "tokens": [t]}
                               for t in ("<bos>", "<eos>")}},
        "decoder": None,
        "model": {**model, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                  "vocab": {p: i for i, p in enumerate(pieces)}, "merges": merges},
    }
    Path(out).mkdir(parents=True, exist_ok=True)
    (Path(out) / "tokenizer.json").write_text(json.dumps(pipeline, ensure_ascii=False) + "\n")


def sample(file):
    import zstandard

    with open(file, "rb") as raw:
        reader = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(raw), "utf-8")
        texts = [t for line in reader if (t := json.loads(line).get("text"))]
    return texts[:: max(1, len(texts) // SAMPLE)][:SAMPLE]


def expect(tokenizer_json, out, files):
    from transformers import PreTrainedTokenizerFast

    pipeline = json.loads(Path(tokenizer_json).read_text())
    pipeline["truncation"] = pipeline["padding"] = None
    clean = Path(out).with_suffix(".tmp.json")
    clean.write_text(json.dumps(pipeline))
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(clean), pad_token="<pad>")
    clean.unlink()
    texts = [(t, n) for t in [*TRICKY, LONG * 50] for n in MAX_TOKENS]
    texts += [(t, 512) for file in files for t in sample(file)]
    with open(out, "w", encoding="utf-8", newline="\n") as lines:
        for text, max_tokens in texts:
            chunks = tokenizer(
                [text], truncation=True, max_length=max_tokens, stride=0,
                return_overflowing_tokens=True,
            )["input_ids"]
            line = {"max_tokens": max_tokens, "text": text, "chunks": chunks}
            lines.write(json.dumps(line, ensure_ascii=False) + "\n")


if sys.argv[1] == "train":
    train(sys.argv[2], sys.argv[3], sys.argv[4:])
elif sys.argv[1] == "train-gemma":
    train_gemma(sys.argv[2], sys.argv[3:])
else:
    expect(sys.argv[2], sys.argv[3], sys.argv[4:])
