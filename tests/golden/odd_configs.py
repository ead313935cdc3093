"""Changes the config.json of the goldens of families.py, and says what transformers then computes.

    odd_configs.py OUT_DIR (the folder of families.py)

Made with torch 2.15, transformers 5.24. `odd.json` has a list of cases: `model`, the keys that are `removed` from
its config.json, the `settings` that are added, and `key`, if it is to be refused by that name. `odd.safetensors` has
CASE.mean and CASE.cls [B, H] (f32) of the input_ids of the model. A case that is to be refused is one whose
embeddings are elsewhere than those of the model as it was (or that transformers does not load), so that it would be
misread.
`classes` of `odd.json` are the keys of the configuration classes with their defaults.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

ROPE, LOCAL = "rope_parameters", {"rope_type": "default", "rope_theta": 50.0}
LINEAR, DYNAMIC = {"rope_type": "linear", "factor": 4.0}, {"rope_type": "dynamic", "factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
SUPPORTED = [
    ("modernbert", [], {ROPE: {"full_attention": {"rope_type": "default", "rope_theta": 500.0}}}),
    ("modernbert", [], {ROPE: {"full_attention": {}, "sliding_attention": LOCAL}}),
    ("modernbert", [], {ROPE: {"sliding_attention": LOCAL}, "global_rope_theta": 300.0, "rope_theta": 7.0}),
    ("modernbert", [], {ROPE: {"full_attention": LINEAR, "sliding_attention": DYNAMIC}}),
    ("modernbert", [ROPE], {"rope_scaling": LINEAR, "global_rope_theta": 900.0, "local_rope_theta": 30.0}),
    ("modernbert", [ROPE], {"rope_scaling": {**DYNAMIC, "rope_theta": 200.0}}),
    ("modernbert", [], {"sliding_window": 3, "head_dim": 16, "position_embedding_type": "sans_pos"}),
    ("modernbert", [], {"layer_norm_eps": 0.5, "hidden_act": "relu", "rope_scaling": {}}),
    ("gte", [], {ROPE: {**LINEAR, "rope_theta": 70.0, "partial_rotary_factor": 1.0}}),
    ("gte", [], {ROPE: DYNAMIC, "rope_theta": 90.0}),
    ("gte", [ROPE], {"rope_scaling": {"type": "linear", "factor": 3.0}, "rope_theta": 400.0}),
    ("bert", [], {"head_dim": 20, "is_decoder": False, "chunk_size_feed_forward": 0, "layer_types": None}),
    ("bert", [], {"rope_parameters": {}, "pad_token_id": -1, "tie_word_embeddings": False}),
]
REFUSED = [
    ("modernbert", [ROPE], {"rope_scaling": YARN}, "rope_scaling.full_attention.rope_type"),
    ("modernbert", [], {ROPE: {"full_attention": YARN}}, "rope_parameters.full_attention.rope_type"),
    ("modernbert", [], {ROPE: {"full_attention": {**LINEAR, "partial_rotary_factor": 0.5}}}, "partial_rotary_factor"),
    ("modernbert", [], {"rope_scaling": LINEAR, ROPE: {"full_attention": LOCAL}}, "rope_scaling"),
    ("modernbert", [], {"hidden_activation": "relu"}, "hidden_activation"),
    ("modernbert", [], {"head_dim": 8}, "head_dim"),
    ("modernbert", [], {"layer_types": ["full_attention"] * 6}, "layer_types"),
    ("gte", [ROPE], {"rope_scaling": {**LINEAR, "factor": 2.0}, ROPE: {"rope_theta": 9.0}}, "rope_scaling"),
    ("gte", [], {ROPE: YARN}, "rope_parameters.rope_type"),
    ("gte", [], {"head_dim": 16}, "head_dim"),
    ("gte", [], {"hidden_act": "silu"}, "hidden_act"),
    ("bert", [], {"is_decoder": True}, "is_decoder"),
    ("bert", [], {"add_cross_attention": True}, "add_cross_attention"),
    ("bert", [], {"hidden_act": "relu"}, "hidden_act"),
    ("bert", [], {"transformers_weights": "other.safetensors"}, "transformers_weights"),
    ("bert", [], {"quantization_config": {"quant_method": "fp8"}}, "quantization_config.quant_method"),
    ("bert", [], {"per_layer_config": {"0": {"num_attention_heads": 6}}}, "per_layer_config"),
]
CLASSES = ["bert", "xlm-roberta", "roberta", "camembert", "gte", "modernbert"]


@torch.no_grad()
def embeddings(source, removed, settings):
    with tempfile.TemporaryDirectory() as directory:
        shutil.copy(source / "model.safetensors", directory)
        config = json.loads((source / "config.json").read_text())
        config = {key: value for key, value in config.items() if key not in removed}
        (Path(directory) / "config.json").write_text(json.dumps({**config, **settings}))
        model = AutoModel.from_pretrained(directory, attn_implementation="eager").eval().float()
    expected = load_file(source / "expected.safetensors")
    ids, ends = expected["input_ids"], expected["cu_seqlens"].tolist()
    mean, cls = [], []
    for start, end in zip(ends, ends[1:]):
        states = model(ids[None, start:end], attention_mask=torch.ones(1, end - start)).last_hidden_state[0]
        mean.append(states.mean(0))
        cls.append(states[0])
    return torch.stack(mean), torch.stack(cls), expected["mean"]


def main(out):
    cases, tensors = [], {}
    for i, (model, removed, settings) in enumerate(SUPPORTED):
        mean, cls, _ = embeddings(out / model, removed, settings)
        tensors |= {f"{i}.mean": mean, f"{i}.cls": cls}
        cases.append({"model": model, "removed": removed, "settings": settings, "key": None})
    for model, removed, settings, key in REFUSED:
        try:
            mean, _, before = embeddings(out / model, removed, settings)
            distance = float((mean - before).norm() / before.norm())
            print(f"{distance:.3f} {model} {settings}")
            assert distance > 1e-3
        except Exception as error:
            print(f"transformers: {type(error).__name__} {model} {settings}")
        cases.append({"model": model, "removed": removed, "settings": settings, "key": key})
    classes = [{**CONFIG_MAPPING[name]().to_dict(), "model_type": name} for name in CLASSES]
    lines = ",\n".join(json.dumps(case) for case in cases)
    defaults = ",\n".join(json.dumps(defaults) for defaults in classes)
    (out / "odd.json").write_text('{"cases": [\n%s\n],\n"classes": [\n%s\n]}\n' % (lines, defaults))
    save_file(tensors, out / "odd.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
