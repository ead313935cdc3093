"""Documents per second on a CPU of the encoders that `polysift models` lists.

    pip install 'transformers==5.23.*' torch
    python benches/encoders.py [--polysift PATH] [--work DIR] [--threads N] [--precision NAME ...] [--only NAME ...]

Each encoder has its shape from models/encoders.toml's upstream configuration, random weights and the bundled
vocabulary (neither changes how long the work takes); polysift-mini is itself. DIR is emptied first. The documents
are `--documents` texts (64, and more for small encoders) of over 512 tokens.
In each of TURNS turns every encoder embeds all documents and then one alone, whose time is subtracted, so that
loading the weights is left out. Printed are medians, as a Markdown table.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import torch
from transformers import (
    BertConfig, BertModel, GteConfig, GteModel, ModernBertConfig, ModernBertModel, XLMRobertaConfig, XLMRobertaModel,
)

TURNS = 3
ROOT = Path(__file__).resolve().parents[1]
MINI = ROOT / "models/polysift-mini"
VOCABULARY = 64_000


def sizes(layers, width, inner):
    return {"vocab_size": VOCABULARY, "num_hidden_layers": layers, "hidden_size": width, "intermediate_size": inner,
            "num_attention_heads": width // 64}


def xlmr(layers, width, inner, **other):
    config = XLMRobertaConfig(**{**sizes(layers, width, inner), "max_position_embeddings": 514, "type_vocab_size": 1, **other})
    return XLMRobertaModel(config, add_pooling_layer=False)


def bert(layers, width, inner):
    return BertModel(BertConfig(**sizes(layers, width, inner), pad_token_id=1), add_pooling_layer=False)


def modern_bert(layers, width, inner):
    tokens = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "cls_token_id": 0, "sep_token_id": 2}
    return ModernBertModel(ModernBertConfig(**sizes(layers, width, inner), **tokens))


def gte(layers, width, inner):
    return GteModel(GteConfig(**sizes(layers, width, inner), max_position_embeddings=8192, pad_token_id=1), add_pooling_layer=False)


# Name in models/encoders.toml, documents for each of `--documents`, and how a random one is made.
ENCODERS = {
    "polysift-mini": (8, None),
    "intfloat/multilingual-e5-small": (4, lambda: xlmr(12, 384, 1536, num_attention_heads=12)),
    "jhu-clsp/mmBERT-small": (4, lambda: modern_bert(22, 384, 1152)),
    "FacebookAI/xlm-roberta-base": (1, lambda: xlmr(12, 768, 3072)),
    "Snowflake/snowflake-arctic-embed-m": (1, lambda: bert(12, 768, 3072)),
    "jhu-clsp/mmBERT-base": (1, lambda: modern_bert(22, 768, 1152)),
    "Snowflake/snowflake-arctic-embed-m-v2.0": (1, lambda: gte(12, 768, 3072)),
    "Snowflake/snowflake-arctic-embed-l-v2.0": (0.5, lambda: xlmr(24, 1024, 4096)),
}


def make(name, build, work):
    """A directory of random weights with the bundled tokenizer."""
    directory = work / name.replace("/", "--")
    torch.manual_seed(1)
    build().save_pretrained(directory)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MINI / file, directory)
    return str(directory)


def documents(path, count):
    """`count` texts of 400 words with numbers, which are over 512 tokens."""
    words = "river winter table garden stone window music paper bridge forest silver kitchen morning letter engine".split()
    with path.open("w") as out:
        for i in range(count):
            text = " ".join(words[(i * 7 + j * j + j // 3) % len(words)] + str(i * j % 97) for j in range(400))
            out.write(json.dumps({"id": str(i), "text": text}) + "\n")


def seconds(args, model, precision, input_file):
    run = args.work / "run"
    shutil.rmtree(run, ignore_errors=True)
    command = [args.polysift, "embed", "--run", run, "--model", model, "--device", "cpu", "--precision", precision, "--chunks", "first",
               "--max-tokens", "512", "--language", "eng_Latn", "--threads", str(args.threads), "--offline", "-q", input_file]
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--polysift", default=str(ROOT / "target/release/polysift"))
    parser.add_argument("--work", type=Path, default=ROOT / "target/bench-encoders")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--documents", type=int, default=64)
    parser.add_argument("--precision", nargs="+", default=["auto", "int8"])
    parser.add_argument("--only", nargs="+", default=list(ENCODERS))
    args = parser.parse_args()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    one = args.work / "one.jsonl"
    documents(one, 1)
    cases = []
    for name in args.only:
        scale, build = ENCODERS[name]
        count = int(args.documents * scale)
        texts = args.work / f"{count}.jsonl"
        documents(texts, count)
        model = name if build is None else make(name, build, args.work)
        cases += [(name, model, precision, texts, count) for precision in args.precision]
    rates = {case[:3]: [] for case in cases}
    for _ in range(TURNS):
        for name, model, precision, texts, count in cases:
            took = seconds(args, model, precision, texts) - seconds(args, model, precision, one)
            rates[name, model, precision].append((count - 1) / took)
    print("| encoder | " + " | ".join(f"{p}: documents/s" for p in args.precision) + " |")
    print("|---" * (1 + len(args.precision)) + "|")
    for name in args.only:
        medians = [statistics.median(found) for (of, _, _), found in rates.items() if of == name]
        print(f"| {name} | " + " | ".join(f"{rate:.1f}" for rate in medians) + " |", flush=True)


if __name__ == "__main__":
    main()
