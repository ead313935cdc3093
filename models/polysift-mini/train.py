"""Train polysift-mini: tokenizer, masked language model, export.

Usage: train.py DATA_DIR OUT_DIR [--work-dir DIR]

The encoder is trained on the rows of DATA_DIR that are not held out (see corpora.py) with a fixed
seed and a fixed number of steps. A run that is interrupted goes on from its last checkpoint in the
work directory when it is started again with the same arguments.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from sklearn.utils.extmath import randomized_svd
from torch import nn
from transformers import XLMRobertaConfig, XLMRobertaModel

from corpora import Row, held_out, read_all
from vocabulary import BOS, EOS, PAD, UNK, learn_pieces, load_tokenizer, write_tokenizer

FIRST_PIECE = UNK + 1
PACKAGES = ("torch", "transformers", "tokenizers", "sentencepiece", "scikit-learn", "scipy",
            "numpy")


@dataclass(frozen=True)
class Recipe:
    """Everything that the result depends on besides the data."""

    seed: int = 17
    vocab_size: int = 16_000
    hidden_size: int = 192
    layers: int = 4
    heads: int = 6
    intermediate_size: int = 768
    dropout: float = 0.0
    source_cap_chars: int = 2_500_000
    vocabulary_chars: int = 14_000_000
    language_exponent: float = 0.5
    steps: int = 1_700
    decay_steps: int = 600
    short_length: int = 128
    long_length: int = 512
    long_every: int = 8
    tokens_per_step: int = 4_096
    languages_per_batch: int = 2
    mask_share: float = 0.15
    contrast_weight: float = 0.5
    contrast_temperature: float = 0.07
    learning_rate: float = 1.0e-3
    warmup_steps: int = 100
    final_rate_share: float = 0.05
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    cooccurrence_window: int = 4
    embedding_std: float = 0.03


def training_rows(rows: list[Row], recipe: Recipe) -> list[Row]:
    """Rows open to training, shuffled, each SET.LANG cut off at the cap."""
    kept: list[Row] = []
    spent: dict[str, int] = {}
    for index in np.random.default_rng(recipe.seed).permutation(len(rows)):
        row = rows[index]
        used = spent.get(row.source, 0)
        if not held_out(row.set_name, row.group) and used < recipe.source_cap_chars:
            spent[row.source] = used + len(row.text)
            kept.append(row)
    return kept


def by_language(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows grouped by language, languages in order of name."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.language, []).append(row)
    return dict(sorted(groups.items()))


def vocabulary_lines(groups: dict[str, list[Row]], recipe: Recipe) -> list[str]:
    """Lines to learn the vocabulary from, with languages balanced by temperature."""
    sizes = {name: sum(len(row.text) for row in rows) for name, rows in groups.items()}
    scale = sum(size ** recipe.language_exponent for size in sizes.values())
    lines: list[str] = []
    for name, rows in groups.items():
        quota = recipe.vocabulary_chars * sizes[name] ** recipe.language_exponent / scale
        for row in rows:
            if quota <= 0:
                break
            lines.extend(line for line in row.text.split("\n") if line.strip())
            quota -= len(row.text)
    return lines


@dataclass(frozen=True)
class Stream:
    """One language's token ids, cut into units that are long enough for two crops."""

    ids: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray


def make_stream(rows: list[Row], tokenizer, unit_tokens: int) -> Stream:
    """Tokenise rows source by source; short documents share a unit, ``</s>`` between them."""
    ordered = sorted(range(len(rows)), key=lambda i: rows[i].source)
    encodings = tokenizer.encode_batch([rows[i].text for i in ordered], add_special_tokens=False)
    ids: list[int] = []
    starts = [0]
    for encoding in encodings:
        ids.extend(encoding.ids)
        ids.append(EOS)
        if len(ids) - starts[-1] >= unit_tokens:
            starts.append(len(ids))
    lengths = np.diff(np.array(starts))
    return Stream(np.array(ids, dtype=np.int32), np.array(starts[:-1]), lengths)


def embedding_start(streams: dict[str, Stream], recipe: Recipe) -> torch.Tensor:
    """Word vectors to start from: a truncated SVD of positive pointwise mutual information.

    With so few training steps this is worth many of them: words that occur in like places begin
    close together.
    """
    size = recipe.vocab_size
    counts = sp.csr_matrix((size, size), dtype=np.float32)
    for stream in streams.values():
        ids = stream.ids
        for offset in range(1, recipe.cooccurrence_window + 1):
            ones = np.full(len(ids) - offset, 1.0 / offset, dtype=np.float32)
            pairs = (ids[:-offset], ids[offset:])
            counts += sp.coo_matrix((ones, pairs), shape=(size, size)).tocsr()
    counts = (counts + counts.T).tocoo()
    occurrences = np.bincount(counts.row, counts.data, size)
    context = occurrences ** 0.75
    expected = occurrences[counts.row] * context[counts.col] / context.sum()
    ppmi = np.maximum(np.log(counts.data / expected), 0.0)
    matrix = sp.csr_matrix((ppmi, (counts.row, counts.col)), shape=(size, size))
    left, singular, _ = randomized_svd(matrix, recipe.hidden_size, n_iter=2,
                                       random_state=recipe.seed)
    vectors = left * np.sqrt(singular)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    noise = np.random.default_rng(recipe.seed).standard_normal(vectors.shape)
    unit = np.where(norms > 1e-6, vectors / np.maximum(norms, 1e-6) * math.sqrt(recipe.hidden_size),
                    noise)
    unit[PAD] = 0.0
    return torch.tensor(unit * recipe.embedding_std, dtype=torch.float32)


class MaskedLanguageModel(nn.Module):
    """The encoder with RoBERTa's prediction head, tied to the word embeddings."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        config = encoder_config(recipe)
        self.encoder = XLMRobertaModel(config, add_pooling_layer=False)
        self.dense = nn.Linear(recipe.hidden_size, recipe.hidden_size)
        self.norm = nn.LayerNorm(recipe.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(recipe.vocab_size))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.encoder(input_ids=ids).last_hidden_state

    def predict(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits over the vocabulary for selected positions."""
        hidden = self.norm(F.gelu(self.dense(hidden)))
        return F.linear(hidden, self.encoder.embeddings.word_embeddings.weight, self.bias)


def encoder_config(recipe: Recipe) -> XLMRobertaConfig:
    """The architecture in XLM-RoBERTa's terms."""
    return XLMRobertaConfig(
        vocab_size=recipe.vocab_size, hidden_size=recipe.hidden_size,
        num_hidden_layers=recipe.layers, num_attention_heads=recipe.heads,
        intermediate_size=recipe.intermediate_size, hidden_act="gelu",
        hidden_dropout_prob=recipe.dropout, attention_probs_dropout_prob=recipe.dropout,
        max_position_embeddings=recipe.long_length + 2, type_vocab_size=1, layer_norm_eps=1e-5,
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS,
    )


class Sampler:
    """Draws the batch of any step from the seed and the step number alone."""

    def __init__(self, streams: dict[str, Stream], recipe: Recipe) -> None:
        self.streams = list(streams.values())
        self.recipe = recipe
        sizes = np.array([len(stream.ids) for stream in self.streams], dtype=np.float64)
        weights = sizes ** recipe.language_exponent
        self.language_weights = weights / weights.sum()
        self.unit_weights = [stream.lengths / stream.lengths.sum() for stream in self.streams]

    def is_long(self, step: int) -> bool:
        """Every ``long_every``-th step uses full-length sequences."""
        return step % self.recipe.long_every == self.recipe.long_every - 1

    def batch(self, step: int) -> tuple[np.ndarray, np.random.Generator]:
        """Token ids of one step, and the generator to go on with."""
        rng = np.random.default_rng((self.recipe.seed, step))
        content = self._long(rng) if self.is_long(step) else self._pairs(rng)
        edge = np.ones((len(content), 1), dtype=np.int64)
        return np.hstack([edge * BOS, content, edge * EOS]), rng

    def _pairs(self, rng: np.random.Generator) -> np.ndarray:
        """Two crops of each unit; rows i and i + half belong together."""
        recipe = self.recipe
        units = recipe.tokens_per_step // recipe.short_length // 2
        length = recipe.short_length - 2
        languages = rng.choice(len(self.streams), recipe.languages_per_batch, replace=False,
                               p=self.language_weights)
        first, second = [], []
        for index in np.repeat(languages, units // recipe.languages_per_batch):
            stream = self.streams[index]
            unit = rng.choice(len(stream.lengths), p=self.unit_weights[index])
            slack = stream.lengths[unit] - 2 * length
            gaps = np.sort(rng.integers(0, slack + 1, 2))
            start = stream.starts[unit]
            first.append(stream.ids[start + gaps[0]:][:length])
            second.append(stream.ids[start + gaps[1] + length:][:length])
        return np.stack(first + second).astype(np.int64)

    def _long(self, rng: np.random.Generator) -> np.ndarray:
        """Runs of text of the full length, across document borders where documents are short."""
        recipe = self.recipe
        length = recipe.long_length - 2
        rows = recipe.tokens_per_step // recipe.long_length
        crops = []
        for index in rng.choice(len(self.streams), rows, p=self.language_weights):
            ids = self.streams[index].ids
            crops.append(ids[rng.integers(0, len(ids) - length):][:length])
        return np.stack(crops).astype(np.int64)


def mask_tokens(ids: np.ndarray, rng: np.random.Generator,
                recipe: Recipe) -> tuple[np.ndarray, np.ndarray]:
    """BERT's corruption (80% mask, 10% random, 10% kept) and the flat positions to predict."""
    flat = ids.reshape(-1).copy()
    candidates = np.flatnonzero(flat >= UNK)
    count = int(recipe.mask_share * len(flat))
    positions = np.sort(rng.choice(candidates, min(count, len(candidates)), replace=False))
    draw = rng.random(len(positions))
    flat[positions[draw < 0.8]] = recipe.vocab_size - 1
    replaced = positions[draw >= 0.9]
    flat[replaced] = rng.integers(FIRST_PIECE, recipe.vocab_size - 1, len(replaced))
    return flat.reshape(ids.shape), positions


def contrast_loss(hidden: torch.Tensor, temperature: float) -> torch.Tensor:
    """In-batch contrast of mean-pooled crops: row i against row i + half."""
    pooled = F.normalize(hidden.mean(dim=1), dim=1)
    first, second = pooled.chunk(2)
    scores = first @ second.T / temperature
    target = torch.arange(len(first))
    return (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target)) / 2


def rate_share(step: int, recipe: Recipe) -> float:
    """Learning-rate factor: linear warm-up, a constant run, linear decay to the final share."""
    warm = (step + 1) / recipe.warmup_steps
    left = (recipe.steps - step) / recipe.decay_steps
    return max(recipe.final_rate_share, min(1.0, warm, left))


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW without decay on biases and normalisation weights."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay},
              {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.98), eps=1e-6,
                             foreach=True)


def train_step(model: MaskedLanguageModel, optimizer: torch.optim.Optimizer, sampler: Sampler,
               step: int, recipe: Recipe) -> dict[str, float]:
    """One update; returns the losses of the batch."""
    ids, rng = sampler.batch(step)
    corrupted, positions = mask_tokens(ids, rng, recipe)
    targets = torch.from_numpy(ids.reshape(-1)[positions])
    hidden = model(torch.from_numpy(corrupted))
    chosen = hidden.reshape(-1, hidden.shape[-1])[torch.from_numpy(positions)]
    masked = F.cross_entropy(model.predict(chosen), targets)
    losses = {"masked": masked.item()}
    total = masked
    if not sampler.is_long(step):
        contrast = contrast_loss(hidden, recipe.contrast_temperature)
        losses["contrast"] = contrast.item()
        total = total + recipe.contrast_weight * contrast
    for group in optimizer.param_groups:
        group["lr"] = recipe.learning_rate * rate_share(step, recipe)
    optimizer.zero_grad(set_to_none=True)
    total.backward()
    nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
    optimizer.step()
    return losses


def export(model: MaskedLanguageModel, recipe: Recipe, out_dir: Path) -> None:
    """Write the encoder alone, in half precision, with transformers' names and config."""
    state = {name: tensor.detach().to(torch.float16).contiguous()
             for name, tensor in model.encoder.state_dict().items()
             if not name.endswith(("position_ids", "token_type_ids"))}
    save_file(state, out_dir / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta",
        "vocab_size": recipe.vocab_size, "hidden_size": recipe.hidden_size,
        "num_hidden_layers": recipe.layers, "num_attention_heads": recipe.heads,
        "intermediate_size": recipe.intermediate_size, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": recipe.long_length + 2, "type_vocab_size": 1,
        "layer_norm_eps": 1e-5, "initializer_range": 0.02, "position_embedding_type": "absolute",
        "bos_token_id": BOS, "pad_token_id": PAD, "eos_token_id": EOS, "torch_dtype": "float16",
    }
    (out_dir / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


class Checkpoint:
    """The state of a run in the work directory."""

    def __init__(self, work_dir: Path) -> None:
        self.path = work_dir / "checkpoint.pt"

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer, log: list[dict],
             seconds: float) -> None:
        """Replace the last checkpoint in one move."""
        partial = self.path.with_suffix(".partial")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "log": log,
                    "seconds": seconds}, partial)
        partial.replace(self.path)

    def load(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[list[dict], float]:
        """Restore the last checkpoint if there is one; the log says how many steps are done."""
        if not self.path.exists():
            return [], 0.0
        state = torch.load(self.path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return state["log"], state["seconds"]


def loss_curve(log: list[dict]) -> list[dict]:
    """Mean losses over up to 24 equal runs of at least eight steps."""
    points = max(1, min(24, len(log) // 8))
    curve = []
    for part in np.array_split(np.arange(len(log)), points):
        entries = [log[i] for i in part]
        contrast = [entry["contrast"] for entry in entries if "contrast" in entry]
        curve.append({"step": int(part[-1]) + 1,
                      "masked": round(float(np.mean([e["masked"] for e in entries])), 4),
                      "contrast": round(float(np.mean(contrast)), 4)})
    return curve


def write_report(out_dir: Path, recipe: Recipe, streams: dict[str, Stream], log: list[dict],
                 seconds: float) -> None:
    """``training.json``: recipe, amount of text, loss curve, versions, wall time."""
    report = {
        "recipe": asdict(recipe),
        "tokens_available": {name: len(stream.ids) for name, stream in streams.items()},
        "tokens_seen": recipe.tokens_per_step * len(log),
        "loss_curve": loss_curve(log),
        "training_seconds": round(seconds),
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in PACKAGES},
    }
    (out_dir / "training.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def prepare(data_dir: Path, out_dir: Path, recipe: Recipe, threads: int) -> dict[str, Stream]:
    """Tokenizer (learned unless it is there already) and token streams."""
    groups = by_language(training_rows(read_all(data_dir), recipe))
    if not (out_dir / "tokenizer.json").exists():
        lines = vocabulary_lines(groups, recipe)
        write_tokenizer(out_dir, *learn_pieces(lines, recipe.vocab_size, threads))
    tokenizer = load_tokenizer(out_dir)
    unit_tokens = 2 * recipe.short_length
    return {name: make_stream(rows, tokenizer, unit_tokens) for name, rows in groups.items()}


def train(streams: dict[str, Stream], out_dir: Path, work_dir: Path, recipe: Recipe,
          save_every: int) -> None:
    """Run all steps, with a checkpoint and an export every ``save_every`` steps."""
    torch.manual_seed(recipe.seed)
    model = MaskedLanguageModel(recipe)
    optimizer = make_optimizer(model, recipe)
    checkpoint = Checkpoint(work_dir)
    log, seconds = checkpoint.load(model, optimizer)
    if not log:
        with torch.no_grad():
            model.encoder.embeddings.word_embeddings.weight.copy_(embedding_start(streams, recipe))
    sampler = Sampler(streams, recipe)
    model.train()
    for step in range(len(log), recipe.steps):
        began = time.monotonic()
        log.append(train_step(model, optimizer, sampler, step, recipe))
        seconds += time.monotonic() - began
        if len(log) % 20 == 0:
            recent = np.mean([entry["masked"] for entry in log[-20:]])
            contrast = [entry["contrast"] for entry in log[-20:] if "contrast" in entry]
            print(f"step {len(log)} masked {recent:.3f} contrast {np.mean(contrast):.3f} "
                  f"{seconds / len(log):.2f} s/step", flush=True)
        if len(log) % save_every == 0 or len(log) == recipe.steps:
            checkpoint.save(model, optimizer, log, seconds)
            export(model, recipe, out_dir)
            write_report(out_dir, recipe, streams, log, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data_dir", type=Path, help="directory of SET.LANG.jsonl.zst files")
    parser.add_argument("out_dir", type=Path, help="model directory to write")
    parser.add_argument("--work-dir", type=Path, help="checkpoints (default: OUT_DIR/work)")
    parser.add_argument("--steps", type=int, default=Recipe.steps, help="number of updates")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--save-every", type=int, default=200, help="steps between checkpoints")
    args = parser.parse_args()
    work_dir = args.work_dir or args.out_dir / "work"
    for directory in (args.out_dir, work_dir):
        directory.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(args.threads)
    recipe = Recipe(steps=args.steps)
    streams = prepare(args.data_dir, args.out_dir, recipe, args.threads)
    print({name: len(stream.ids) for name, stream in streams.items()}, flush=True)
    train(streams, args.out_dir, work_dir, recipe, args.save_every)


if __name__ == "__main__":
    main()
