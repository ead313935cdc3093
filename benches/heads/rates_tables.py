"""The tables of what `rates.py` found.

    rates_tables.py WORK_DIR
"""

import collections
import json
import pathlib
import sys

import numpy as np
from scipy.stats import spearmanr

from rates import RATES


def main(work):
    """Prints what was found; 95% intervals resample the groups of corpora that have the same good texts."""
    values, targets = collections.defaultdict(list), ("same", "small", "head", "third", "wrong")
    for path in sorted(work.glob("results.*.jsonl")):
        for row in map(json.loads, path.read_text().splitlines()):
            for name in row.keys() & {"documents", "area", "symbols", "precision", "f1", *targets}:
                values[tuple(row["corpus"]), row["model"], row["variant"], name].append((row["seed"], row[name]))
    curves = {key: np.array([v for _, v in found]).reshape(found[-1][0] + 1, -1) for key, found in values.items()}
    curves |= {(c, m, "gain", t): bits - curves[c, m, "random", t] for (c, m, variant, t), bits in curves.items()
               if variant == "all" and t in targets}
    corpora, random = list(dict.fromkeys(key[0] for key in curves)), np.random.default_rng(0)
    label = {(c, name): curves[c, "bytes-6", "equal-1", name] for c in corpora
             for name in ("documents", "area", "symbols", "precision", "f1")}
    f1 = {c: label[c, "f1"].mean(0) / label[c, "f1"].mean(0).max() for c in corpora}

    def mean(found):
        groups = [[found[c] for c in found if c[:2] == group] for group in dict.fromkeys(c[:2] for c in found)]
        some = [np.mean(sum((groups[i] for i in random.integers(len(groups), size=len(groups))), []))
                for _ in range(4000)]
        return "{:.2f} ({:.2f} to {:.2f})".format(np.mean(list(found.values())), *np.quantile(some, (0.025, 0.975)))

    def widest(bits):  # the largest rate within two standard errors, of paired seeds, of the lowest
        loss = bits - bits[:, [bits.mean(0).argmin()]]
        near = loss.mean(0) <= 2 * loss.std(0, ddof=1) / len(loss)**0.5 + 1e-12
        return len(RATES) - bits.shape[1] + np.flatnonzero(near)[-1:]
    kinds = {"planted": [c for c in corpora if c[3] and c[2] != "own"], "own": [c for c in corpora if c[2] == "own"],
             "registers": [c for c in corpora if not c[3]], "all": corpora}
    print("corpus; documents; area; bytes at 1%; best rate by F1; rates by targets; bits at 5% less 100%, shuffled")
    for c in corpora:
        found = [curves.get((c, "bytes-6", "equal-5", t)) for t in targets]
        falls = [b[:, 0] - b[:, -1] for b in (curves[c, "bytes-6", v, "same"] for v in ("equal-5", "shuffled"))]
        print(*c, *(f"{label[c, name].mean(0)[0]:.3f}" for name in ("documents", "area", "symbols")),
              RATES[f1[c].argmax()], *(RATES[widest(bits)[0]] if bits is not None else "" for bits in found),
              *(f"{fall.mean():.3f} ± {fall.std(ddof=1) / len(fall)**0.5:.3f}" for fall in falls), sep=" | ")
    for target in targets:
        pairs = [(f1[c].argmax(), widest(curves[c, "bytes-6", "equal-5", target])[0]) for c in corpora
                 if (c, "bytes-6", "equal-5", target) in curves]
        near, rank = sum(abs(best - rate) <= 1 for best, rate in pairs), spearmanr(*zip(*pairs)).statistic
        print(f"{target}: {near} of {len(pairs)} choices within a step, correlation {rank:.2f}")
    print("model; variant; target; corpora; correlation with precision, F1; F1 of lowest, widest, widest less 10%, 20%")
    for model, variant in dict.fromkeys(key[1:3] for key in curves):
        for target, (kind, some) in ((t, k) for t in targets for k in kinds.items()):
            bits = {c: curves[c, model, variant, target] for c in some if (c, model, variant, target) in curves}
            cells = [mean({c: np.mean([spearmanr(-x, y[-len(x):]).statistic for x, y in zip(b, label[c, name])])
                           for c, b in bits.items()}) for name in ("precision", "f1")] if bits else []
            lowest = {c: f1[c][len(RATES) - b.shape[1] + b.argmin(1)].mean() for c, b in bits.items()}
            broad = {c: f1[c][widest(b)].mean() for c, b in bits.items()}
            cells += [mean(lowest), mean(broad)] if bits else []
            cells += [mean({c: v - f1[c][at] for c, v in broad.items()}) for at in (3, 4)] if bits else []
            print(model, variant, target, kind, len(bits), *cells, sep=" | ")
    for at, rate in enumerate(RATES):
        print("always", rate, *(mean({c: f1[c][at] for c in some}) for some in kinds.values() if some), sep=" | ")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
