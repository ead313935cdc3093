"""PyTorch files of heads in every form they come in, their scores, and files to refuse.

    python heads_import.py golden OUT      write the files of tests/golden/heads_import into OUT
    python heads_import.py published OUT   write the files of tests/golden/heads_published into OUT
    python heads_import.py check SAFETENSORS
                                           load a quality head that polysift wrote into the published class

Versions used: torch 2.15.0, transformers 5.23.0, safetensors 0.8.0.
"""

import json
import os
import sys
from collections import OrderedDict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GteConfig,
    GteForSequenceClassification,
    ModernBertConfig,
    ModernBertForSequenceClassification,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
    XLMRobertaModel,
)

import encoder

D = 12


def mlp(*sizes, dropout=0.2):
    """Linear, ReLU, Dropout, Linear: the shape of the published heads."""
    layers = []
    for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
        layers.append(nn.Linear(inputs, outputs))
        if i + 2 < len(sizes):
            layers += [nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers).eval()


class BinaryClassifier(nn.Module):
    """The class of FineWeb2-HQ."""

    def __init__(self, inputs=D, hidden=8):
        super().__init__()
        self.classifier = mlp(inputs, hidden, 1)

    def forward(self, x):
        return self.classifier(x)


class ToxicModel(nn.Module):
    """An encoder and a head in one file, as Apertus's training saves them."""

    def __init__(self):
        super().__init__()
        config = XLMRobertaConfig(
            vocab_size=20, hidden_size=D, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
            max_position_embeddings=10,
        )
        self.roberta = XLMRobertaModel(config)
        self.register_buffer("steps", torch.tensor(3))  # not a float, and not the head's
        self.classifier = mlp(D, D, 2)


class System:
    """Would run a command where a pickle is executed."""

    def __reduce__(self):
        return os.system, ("echo executed > executed",)


def under(prefix, head, dtype=torch.float32):
    """The tensors of `head` with other names, in another type."""
    return OrderedDict((prefix + key, value.to(dtype)) for key, value in head.state_dict().items())


def forms(out):
    """One file per form, all of other weights, with embeddings and the scores that PyTorch gives."""
    torch.manual_seed(0)
    cases = {}

    def case(name, head, content, dtype=torch.float32, **options):
        torch.save(content, out / name, **options)
        x = torch.randn(9, D)
        with torch.no_grad():
            z = head.to(dtype).to(torch.float32)(x)
        scores = torch.sigmoid(z[:, 0]) if z.shape[1] == 1 else torch.softmax(z, dim=1)[:, 1]
        cases.update({f"{name}.embeddings": x, f"{name}.scores": scores.contiguous()})

    head = BinaryClassifier()
    case("deu_Latn.pt", head, head.state_dict())
    head = mlp(D, D, 2)
    case("german_cls.pth", head, head.state_dict())
    for name, prefix, dtype in [
        ("module_f64.pt", "module.classifier.", torch.float64),
        ("head_f16.pt", "head.", torch.float16),
        # 21 characters, a length that misleads a reader of zip files: see src/heads/head/pytorch/read.rs
        ("model_classifier_bf16.pt", "model.classifier.", torch.bfloat16),
    ]:
        head = mlp(D, 8, 1)
        case(name, head, under(prefix, head, dtype), dtype)
    head = BinaryClassifier()
    case("state_dict.pt", head, {"state_dict": head.state_dict(), "epoch": 3, "loss": torch.tensor(0.5)})
    head = BinaryClassifier()
    optimizer = torch.optim.AdamW(head.parameters(), lr=3e-4)
    head(torch.randn(2, D)).sum().backward()
    optimizer.step()
    checkpoint = {"optimizer_state_dict": optimizer.state_dict(), "model_state_dict": head.state_dict()}
    case("model_state_dict.pt", head, checkpoint)
    head = BinaryClassifier()
    case("parameters.pt", head, dict(head.named_parameters()))
    head = BinaryClassifier()
    case("transposed.pt", head, {k: v.t().contiguous().t() for k, v in head.state_dict().items()})
    head = BinaryClassifier()
    large = torch.randn(3000)
    views, at = {}, 5
    for key, value in head.state_dict().items():  # every value two apart, all in one storage
        view = large[at : at + 2 * value.numel()].view(*value.shape, 2)[..., 1]
        view.copy_(value)
        views[key], at = view, at + 2 * value.numel()
    case("views.pt", head, views)
    model = ToxicModel()
    case("full_model.pth", model.classifier, model.state_dict())
    head = BinaryClassifier()
    case("protocol3.pt", head, head.state_dict(), pickle_protocol=3)
    head = mlp(D, 10, 6, 1)
    save_file(under("net.", head), out / "net.safetensors")
    x = torch.randn(9, D)
    with torch.no_grad():
        cases |= {"net.safetensors.embeddings": x, "net.safetensors.scores": torch.sigmoid(head(x)[:, 0])}
    cases |= chunks(out)
    save_file(cases, out / "expected.safetensors")


def chunks(out):
    """Documents of several chunks by every rule, with the head of german_cls.pth."""
    head = mlp(D, D, 2)
    head.load_state_dict(torch.load(out / "german_cls.pth", weights_only=True))
    x, offsets = torch.randn(30, D), [0, 1, 4, 11, 30]
    with torch.no_grad():
        z = head(x)
    probability, logit = torch.softmax(z, dim=1)[:, 1], (z[:, 1] - z[:, 0]).double()
    documents = list(zip(offsets, offsets[1:]))
    return {
        "chunks.embeddings": x,
        "chunks.offsets": torch.tensor(offsets),
        "chunks.first": torch.stack([probability[a] for a, _ in documents]),
        "chunks.max": torch.stack([probability[a:b].max() for a, b in documents]),
        # The mean is that of the log-odds.
        "chunks.mean": torch.stack([torch.sigmoid(logit[a:b].mean()).float() for a, b in documents]),
    }


def refused(out):
    """Files that are no state dict of a head."""
    torch.manual_seed(1)
    head = BinaryClassifier()
    torch.save(head.state_dict(), out / "refused_legacy.pt", _use_new_zipfile_serialization=False)
    torch.save({"classifier": head.state_dict(), "run": System()}, out / "refused_system.pt")
    torch.save(head, out / "refused_module.pt")
    expanded = head.state_dict() | {"classifier.0.bias": torch.zeros(1).expand(8)}
    torch.save(expanded, out / "refused_expanded.pt")
    integers = head.state_dict() | {"classifier.0.bias": torch.arange(8)}
    torch.save(integers, out / "refused_integers.pt")


def scores_of(logits, outputs):
    """What each of `outputs` is of `logits` [n, K]."""
    probabilities = torch.softmax(logits.double(), dim=1)
    scores = {}
    for output in outputs:
        kind, _, k = output.partition(":")
        match kind:
            case "raw":
                column = logits[:, 0]
            case "sigmoid":
                column = torch.sigmoid(logits[:, int(k)])
            case "class":
                column = probabilities[:, int(k)]
            case "expected":
                column = probabilities @ torch.arange(logits.shape[1], dtype=torch.float64)
        scores[output] = column.tolist()
    return scores


def layered(out):
    """Heads with other layers than Linear and ReLU, and of several outputs; one as Lightning saves it."""
    torch.manual_seed(2)
    expected = {}

    def case(name, head, outputs, content=None, normalise=False):
        torch.save(head.state_dict() if content is None else content, out / name)
        x = torch.randn(9, D)
        x = nn.functional.normalize(x) if normalise else x
        with torch.no_grad():
            expected[name] = {"embeddings": x.flatten().tolist(), "scores": scores_of(head.eval()(x), outputs)}

    tanh = nn.Sequential(nn.Linear(D, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1))
    case("tanh.pt", tanh, ["raw"])
    gelu = nn.Sequential(nn.Linear(D, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.1), nn.Linear(8, 6))
    with torch.no_grad():
        for parameter in gelu.parameters():
            parameter.add_(torch.randn_like(parameter))
    case("gelu.pth", gelu, ["class:3", "class:0", "sigmoid:5", "expected"])
    norms = nn.Sequential(
        nn.LayerNorm(D), nn.Linear(D, 8, bias=False), nn.LayerNorm(8, bias=False), nn.ReLU(), nn.Linear(8, 2)
    )
    case("norms.pt", norms, ["class:1", "sigmoid:0"])

    class RegressionHead(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer1, self.layer2 = nn.Linear(D, 10), nn.Linear(10, 1)

        def forward(self, x):
            return self.layer2(torch.relu(self.layer1(x)))

    head = RegressionHead()
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    head(torch.randn(4, D)).square().mean().backward()
    optimizer.step()
    scheduler.step()
    best = torch.tensor(0.25)
    lightning = {
        "epoch": 4,
        "global_step": 1250,
        "pytorch-lightning_version": "2.2.1",
        "state_dict": head.state_dict(),
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 5, "completed": 4}}}},
        "callbacks": {
            "ModelCheckpoint{'monitor': 'val_loss', 'mode': 'min'}": {
                "monitor": "val_loss",
                "best_model_score": best,
                "best_model_path": "/data/epoch=4.ckpt",
                "best_k_models": {"/data/epoch=4.ckpt": best},
                "kth_value": best,
                "last_model_path": "",
            }
        },
        "optimizer_states": [optimizer.state_dict()],
        "lr_schedulers": [scheduler.state_dict()],
        "hparams_name": "kwargs",
        "hyper_parameters": {"hidden": 10, "lr": 1e-3, "betas": (0.9, 0.999), "seed": 2**40, "note": None, "ema": False},
    }
    case("edu-llama-balanced.ckpt", head, ["raw"], lightning, normalise=True)
    (out / "layered.json").write_text(json.dumps(expected) + "\n")


LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENIZER = encoder.TOKENIZER | {
    "model": {
        "type": "Unigram",
        "unk_id": 3,
        "vocab": [*encoder.PIECES[:5], *([letter, -2.0 - i / 8] for i, letter in enumerate(LETTERS))],
    }
}
TEXTS = ["a", "the quick brown fox", "jumps over", "lazy dogs? no 42", "abcdefghijklmnopqrstuvwxyz " * 3]
SHAPE = {
    "vocab_size": 40,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 30,
    "max_position_embeddings": 140,
}
REGISTERS = {0: "MT", 1: "LY", 2: "SP", 3: "ne", 4: "ob"}


def classifiers(out):
    """Directories of the four classes with the scores of texts."""
    several = {"problem_type": "multi_label_classification", "id2label": REGISTERS}
    one = {"num_labels": 1, "problem_type": "regression"}
    modern = {"local_attention": 8, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "cls_token_id": 0, "sep_token_id": 2}
    biases = {"classifier_bias": True, "norm_bias": True, "norm_eps": 0.01}
    for seed, (name, model, config, settings, outputs) in enumerate(
        [
            ("bert", BertForSequenceClassification, BertConfig, one, ["raw"]),
            ("xlm-roberta", XLMRobertaForSequenceClassification, XLMRobertaConfig, several, ["sigmoid:3", "sigmoid:0"]),
            ("gte", GteForSequenceClassification, GteConfig, {"num_labels": 3}, ["class:2", "expected"]),
            (
                "modernbert-cls",
                ModernBertForSequenceClassification,
                ModernBertConfig,
                {**modern, **one, "classifier_pooling": "cls"},
                ["raw"],
            ),
            (
                "modernbert-mean",
                ModernBertForSequenceClassification,
                ModernBertConfig,
                {**modern, **biases, "num_labels": 6, "classifier_pooling": "mean"},
                ["class:0", "expected"],
            ),
        ]
    ):
        torch.manual_seed(seed)
        model = model(config(**SHAPE, **settings)).eval().float()
        model.set_attn_implementation("eager")
        with torch.no_grad():
            for key, weight in model.named_parameters():
                weight.normal_(0.0, 0.3)
                if weight.dim() == 1 and key.endswith("weight"):
                    weight.add_(1.0)
        directory = out / name
        model.save_pretrained(directory, max_shard_size="20KB" if name == "gte" else "1GB")
        (directory / "tokenizer.json").write_text(json.dumps(TOKENIZER) + "\n")
        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        with torch.no_grad():
            logits = [model(torch.tensor([tokenizer.encode(text).ids])).logits[0] for text in TEXTS]
        expected = {"texts": TEXTS, "scores": scores_of(torch.stack(logits), outputs)}
        (directory / "expected.json").write_text(json.dumps(expected) + "\n")
    older(out / "gte", out / "new")


def older(gte, new):
    """The directory `gte` as the hub's older files have it, with code of their own."""
    new.mkdir(exist_ok=True)
    tensors = {}
    for file in gte.glob("*.safetensors"):
        tensors |= {key.replace("gte.", "new.", 1): value for key, value in load_file(file).items()}
    save_file(tensors, new / "model.safetensors", {"format": "pt"})
    config = json.loads((gte / "config.json").read_text())
    theta = config.pop("rope_parameters")["rope_theta"]
    config |= {
        "model_type": "new",
        "architectures": ["NewForSequenceClassification"],
        "auto_map": {"AutoModelForSequenceClassification": "modeling.NewForSequenceClassification"},
        "position_embedding_type": "rope",
        "rope_theta": theta,
        "rope_scaling": None,
    }
    (new / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for name in ["tokenizer.json", "expected.json"]:
        (new / name).write_text((gte / name).read_text())


def check(safetensors):
    """A quality head that polysift wrote."""
    tensors = load_file(safetensors)
    hidden, inputs = tensors["classifier.0.weight"].shape
    head = BinaryClassifier(inputs, hidden)
    print(head.load_state_dict(tensors, strict=True), list(tensors))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["golden", directory]:
            directory = Path(directory)
            directory.mkdir(parents=True, exist_ok=True)
            forms(directory)
            refused(directory)
        case ["published", directory]:
            directory = Path(directory)
            directory.mkdir(parents=True, exist_ok=True)
            layered(directory)
            classifiers(directory)
        case ["check", safetensors]:
            check(safetensors)
        case _:
            sys.exit(__doc__)
