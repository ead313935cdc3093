"""Makes tiny random XLM-R models and their embeddings with transformers (f32, eager attention).

    encoder.py OUT_DIR          the committed goldens, one directory per model
    encoder.py --base DIR       the shape of xlm-roberta-base with a small vocabulary (350 MB)

Each directory is what `encoder.model` takes, plus expected.safetensors: input_ids [N],
cu_seqlens [B + 1] (i32), mean [B, H], cls [B, H] (f32). Made with torch 2.15, transformers 5.23.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import XLMRobertaConfig, XLMRobertaModel

BOS, EOS = 0, 2
LENGTHS = [2, 3, 5, 17, 31, 32, 33, 64, 100, 129, 257, 511, 512]
TINY = {
    "head16-prefixed": {
        "config": {"hidden_size": 48, "num_attention_heads": 3, "intermediate_size": 98},
        "prefix": "roberta.",
    },
    "head20-sharded": {
        "config": {
            "hidden_size": 60,
            "num_attention_heads": 3,
            "intermediate_size": 130,
            "max_position_embeddings": 130,
            "pad_token_id": 0,
            "type_vocab_size": 3,
            "layer_norm_eps": 1e-12,
        },
        "shards": 3,
        "pooler": True,
    },
    "head32-bf16": {
        "config": {
            "hidden_size": 64,
            "num_attention_heads": 2,
            "intermediate_size": 96,
            "max_position_embeddings": 260,
        },
        "dtype": torch.bfloat16,
    },
    "head64-f16": {
        "config": {
            "hidden_size": 128,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "max_position_embeddings": 132,
        },
        "dtype": torch.float16,
    },
}


def make_model(settings, std, pooler=False):
    config = XLMRobertaConfig(
        **{
            "vocab_size": 120,
            "num_hidden_layers": 2,
            "max_position_embeddings": 514,
            "type_vocab_size": 1,
            "layer_norm_eps": 1e-5,
            "bos_token_id": BOS,
            "eos_token_id": EOS,
            **settings,
        }
    )
    model = XLMRobertaModel(config, add_pooling_layer=pooler).eval().float()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(0.0, std)
            if name.endswith("LayerNorm.weight"):
                weight.add_(1.0)
    return config, model


def make_sequences(config):
    limit = config.max_position_embeddings - config.pad_token_id - 1
    sequences = []
    for length in [n for n in LENGTHS if n <= limit]:
        # A padding id among the content (someone writes "<pad>") happens and has its own rule.
        content = torch.randint(3, config.vocab_size, (length - 2,))
        if length == 33:
            content[7] = config.pad_token_id
        sequences.append([1 if config.pad_token_id == 0 else BOS, *content.tolist(), EOS])
    return sequences


@torch.no_grad()
def write(directory, config, model, sequences, prefix="", dtype=torch.float32, shards=1):
    directory.mkdir(parents=True, exist_ok=True)
    model.to(dtype).to(torch.float32)
    tensors = {prefix + k: v.to(dtype).contiguous() for k, v in model.state_dict().items()}
    tensors = {k: v for k, v in tensors.items() if v.is_floating_point()}
    if shards == 1:
        save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    else:
        names = sorted(tensors)
        weight_map = {}
        for i in range(shards):
            file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
            part = {name: tensors[name] for name in names[i::shards]}
            save_file(part, directory / file, {"format": "pt"})
            weight_map.update(dict.fromkeys(part, file))
        index = {"metadata": {}, "weight_map": weight_map}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    keys = "model_type hidden_act hidden_size num_hidden_layers num_attention_heads"
    keys += " intermediate_size vocab_size max_position_embeddings type_vocab_size"
    keys += " pad_token_id layer_norm_eps"
    settings = {key: getattr(config, key) for key in keys.split() if hasattr(config, key)}
    (directory / "config.json").write_text(json.dumps(settings, indent=1) + "\n")
    (directory / "tokenizer.json").write_text(json.dumps(TOKENIZER) + "\n")

    mean, cls = [], []
    for ids in sequences:
        ids = torch.tensor([ids])
        hidden = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
        mean.append(hidden.double().mean(0).float())
        cls.append(hidden[0])
    lengths = torch.tensor([0] + [len(s) for s in sequences])
    expected = {
        "input_ids": torch.tensor(sum(sequences, []), dtype=torch.int32),
        "cu_seqlens": lengths.cumsum(0).int(),
        "mean": torch.stack(mean),
        "cls": torch.stack(cls).contiguous(),
    }
    save_file(expected, directory / "expected.safetensors")


PIECES = [["<s>", 0.0], ["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["▁", -1.0], ["a", -2.0]]
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "</s>", "type_id": 0}},
        ],
        "pair": [],
        "special_tokens": {
            "<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]},
            "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]},
        },
    },
    "decoder": None,
    "model": {"type": "Unigram", "unk_id": 3, "vocab": PIECES},
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--base", type=Path)
    args = parser.parse_args()
    torch.manual_seed(20)
    if args.out:
        for name, options in TINY.items():
            options = dict(options)
            config, model = make_model(
                options.pop("config"), 0.2, options.pop("pooler", False)
            )
            write(args.out / name, config, model, make_sequences(config), **options)
    if args.base:
        shape = {
            "vocab_size": 1000,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
        }
        config, model = make_model(shape, 0.05)
        write(args.base, config, model, make_sequences(config))


if __name__ == "__main__":
    main()
