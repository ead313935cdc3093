"""Makes tiny random encoders of the families beside XLM-R, and their embeddings with transformers.

    families.py OUT_DIR

As encoder.py, whose files it writes in the same form. Eager attention, f32, one sequence at a time; made
with torch 2.15, transformers 5.23. Weights are N(0, 0.3), so that a wrong half of a gated unit, a window
that is one too wide or a rope on the wrong layer shows.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel, GteConfig, GteModel, ModernBertConfig, ModernBertModel

import encoder

VOCAB = 120
BERT = {
    "hidden_size": 60,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "intermediate_size": 130,
    "max_position_embeddings": 130,
    "type_vocab_size": 3,
    "pad_token_id": 0,
    "layer_norm_eps": 1e-12,
}
GTE = {
    "hidden_size": 96,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "intermediate_size": 70,
    "max_position_embeddings": 512,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 1,
}
# What the hub's files of GTE say as NTK of 20,000 with a factor of 8: `linear` computes the same.
LINEAR = {"rope_type": "linear", "rope_theta": 160_000.0, "factor": 8.0 ** (2 / 32)}
MODERN = {
    "hidden_size": 48,
    "num_attention_heads": 3,
    "num_hidden_layers": 5,
    "intermediate_size": 70,
    "max_position_embeddings": 512,
    "local_attention": 16,
    "pad_token_id": 0,
    "norm_eps": 1e-5,
}
THETAS = {
    "full_attention": {"rope_type": "default", "rope_theta": 160_000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}
SHORT = [2, 3, 8, 9, 17, 18, 33, 64, 100, 129]
LONG = [3_000, 8_192]


def bert(settings):
    return BertModel(BertConfig(vocab_size=VOCAB, **settings), add_pooling_layer=False)


def gte(settings):
    return GteModel(GteConfig(vocab_size=VOCAB, **settings))


def modernbert(settings):
    return ModernBertModel(ModernBertConfig(vocab_size=VOCAB, **settings))


def prepared(model, std):
    model = model.eval().float()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(0.0, std)
            if weight.dim() == 1 and name.endswith("weight"):
                weight.add_(1.0)
    return model


def sequences(lengths, rare):
    made = []
    for length in lengths:
        content = torch.randint(3, VOCAB, (length - 2,))
        if length > 30:
            content[7] = rare
        made.append([2, *content.tolist(), 1])
    return made


def write(directory, model, ids, settings, prefix=""):
    """`settings` are all that config.json says: what each version of these files has."""
    encoder.write(directory, model.config, model, ids)
    # The names of the files, which `state_dict` has not for all families.
    model.save_pretrained(directory)
    file = directory / "model.safetensors"
    save_file({prefix + k: v for k, v in load_file(file).items()}, file, {"format": "pt"})
    settings = {"hidden_act": "gelu", "vocab_size": VOCAB, **settings}
    if settings["model_type"] == "modernbert":
        settings["hidden_activation"] = settings.pop("hidden_act")
    (directory / "config.json").write_text(json.dumps(settings, indent=1) + "\n")


def main(out):
    torch.manual_seed(21)
    model = prepared(bert(BERT), 0.3)
    write(out / "bert", model, sequences(SHORT, 0), {"model_type": "bert", **BERT}, "bert.")

    model = prepared(gte({**GTE, "rope_parameters": LINEAR}), 0.3)
    ids = sequences([*SHORT, 512], 1)
    write(out / "gte", model, ids, {"model_type": "gte", "rope_parameters": LINEAR, **GTE})

    settings = {**GTE, "type_vocab_size": 0, "hidden_size": 64, "num_attention_heads": 1}
    plain = {"rope_type": "default", "rope_theta": 500.0}
    model = prepared(gte({**settings, "rope_parameters": plain}), 0.3)
    described = {"model_type": "gte", "rope_theta": 500.0, **settings}
    write(out / "gte-typeless", model, ids, described)

    model = prepared(modernbert({**MODERN, "rope_parameters": THETAS}), 0.3)
    ids = sequences([*SHORT, 200], 0)
    kinds = model.config.layer_types
    described = {"model_type": "modernbert", "layer_types": kinds, "rope_parameters": THETAS, **MODERN}
    write(out / "modernbert", model, ids, described)

    biases = {"norm_bias": True, "attention_bias": True, "mlp_bias": True}
    settings = {**MODERN, **biases, "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2}
    model = prepared(modernbert({**settings, "rope_parameters": THETAS}), 0.3)
    described = {"model_type": "modernbert", "rope_parameters": THETAS, **settings}
    write(out / "modernbert-biases", model, ids, described)

    shape = {
        "hidden_size": 32,
        "num_attention_heads": 1,
        "num_hidden_layers": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 8_192,
    }
    settings = {**MODERN, **shape, "local_attention": 128}
    model = prepared(modernbert({**settings, "rope_parameters": THETAS}), 0.1)
    described = {"model_type": "modernbert", "rope_parameters": THETAS, **settings}
    write(out / "modernbert-long", model, sequences(LONG, 0), described)
    settings = {**GTE, **shape}
    model = prepared(gte({**settings, "rope_parameters": LINEAR}), 0.1)
    described = {"model_type": "gte", "rope_parameters": LINEAR, **settings}
    write(out / "gte-long", model, sequences(LONG, 1), described)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
