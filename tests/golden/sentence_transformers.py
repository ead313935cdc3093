"""Saves tiny random models with sentence-transformers, and the embeddings that it makes of some texts.

    sentence_transformers.py OUT_DIR

Made with torch 2.15, transformers 5.23, sentence-transformers 6.2. A directory is as that library saves it,
but for `legacy`, whose keys and types are those of its version 2. Beside it `expected.json`: settings of
polysift's encoder by key, and the embeddings [texts][D] (f32) that belong to them.
"""

import json
import shutil
import sys
from pathlib import Path

sys.path.pop(0)  # this folder: the script is called as the library is

import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

WORDS = "the a cat dog sat ran on under mat tree and then it was red blue old new query passage : , .".split()
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
TEXTS = [
    "The cat sat on the mat.",
    "A dog",
    "",
    "then it was old, and the red tree ran under a blue cat, a new dog and the mat on the old tree. It ran.",
]


def tokenizer(directory, most):
    vocabulary = {word: i for i, word in enumerate(SPECIAL + WORDS)}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=most, **names)
    fast.save_pretrained(directory)


def encoder(directory, family, most):
    """A `family` model of width 24 that takes `most` tokens, saved."""
    shape = {
        "vocab_size": len(SPECIAL + WORDS),
        "hidden_size": 24,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "intermediate_size": 40,
        "max_position_embeddings": 70,
        "pad_token_id": 1,
    }
    if family == "bert":
        model = BertModel(BertConfig(**shape), add_pooling_layer=False)
    else:
        model = XLMRobertaModel(XLMRobertaConfig(type_vocab_size=1, **shape), add_pooling_layer=False)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(0.0, 0.3)
            if weight.dim() == 1 and name.endswith("weight"):
                weight.add_(1.0)
    model.save_pretrained(directory)
    tokenizer(directory, most)
    return Transformer(str(directory))


def expected(directory, cases):
    """`cases` are settings of polysift with the arguments of `encode` that say the same."""
    model = SentenceTransformer(str(directory), device="cpu")
    made = []
    for settings, arguments in cases:
        rows = [model.encode([text], convert_to_numpy=True, **arguments)[0] for text in TEXTS]
        made.append({"settings": settings, "embeddings": [[float(x) for x in row] for row in rows]})
    text = ",\n".join(json.dumps(case) for case in made)
    texts = json.dumps(TEXTS)
    (directory / "expected.json").write_text('{"texts": %s,\n"cases": [\n%s\n]}\n' % (texts, text))


def save(out, name, modules, cases, **settings):
    model = SentenceTransformer(modules=modules, device="cpu", **settings)
    directory = out / name
    shutil.rmtree(directory, ignore_errors=True)
    model.save(str(directory), create_model_card=False)
    expected(directory, cases)


def dense(inputs, outputs, **settings):
    module = Dense(inputs, outputs, **settings)
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_(0.0, 0.3)
    return module


def make_legacy(directory):
    """Rewrites a directory with the keys and types of version 2 of sentence-transformers."""
    modules = json.loads((directory / "modules.json").read_text())
    for module in modules:
        module["type"] = "sentence_transformers.models." + module["type"].rsplit(".", 1)[1]
    (directory / "modules.json").write_text(json.dumps(modules, indent=1))
    keys = ["cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens"]
    pooling = {"pooling_mode_" + key: key == "cls_token" for key in keys}
    pooling = {"word_embedding_dimension": 24, **pooling}
    (directory / "1_Pooling/config.json").write_text(json.dumps(pooling, indent=1))
    (directory / "sentence_bert_config.json").unlink()
    limits = {"max_seq_length": 12, "do_lower_case": True}
    (directory / "sentence_xlm-roberta_config.json").write_text(json.dumps(limits))


def main(out):
    torch.manual_seed(30)
    work = out / "work"
    bert, xlmr = encoder(work / "bert", "bert", 16), encoder(work / "xlmr", "xlm-roberta", 68)
    cut = {"processing_kwargs": {"text": {"max_length": 9}}}
    save(out, "mean", [bert, Pooling(24, "mean")], [({}, {}), ({"max_tokens": 9}, cut)])

    prompts = {"query": "query: ", "document": "passage: "}
    cases = [
        ({}, {}),
        ({"prompt_name": "document"}, {"prompt_name": "document"}),
        ({"prompt": ""}, {"prompt": ""}),
        ({"prompt": "the dog:"}, {"prompt": "the dog:"}),
    ]
    modules = [xlmr, Pooling(24, "cls"), Normalize()]
    save(out, "cls", modules, cases, prompts=prompts, default_prompt_name="query")

    # After the cut sentence-transformers leaves the norm below 1 unless it is told to normalise.
    modules = [
        xlmr,
        Pooling(24, "lasttoken"),
        dense(24, 40),
        dense(40, 20, bias=False, activation_function=torch.nn.Identity()),
        Normalize(),
    ]
    cases = [
        ({}, {"normalize_embeddings": True}),
        ({"dimensions": 20}, {"truncate_dim": 20}),
    ]
    save(out, "dense", modules, cases, truncate_dim=12)

    shutil.rmtree(out / "legacy", ignore_errors=True)
    shutil.copytree(out / "cls", out / "legacy")
    (out / "legacy/config_sentence_transformers.json").unlink()
    make_legacy(out / "legacy")
    expected(out / "legacy", [({}, {}), ({"prompt": "query: "}, {"prompt": "query: "})])
    shutil.rmtree(work)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
