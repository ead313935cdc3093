"""What lexical heads that learn from N documents' scores leave to the encoder, beside the scores of a full run.

    lexical.py POLYSIFT FULL CORPUS ENCODER WORK > table.md

POLYSIFT is the program, FULL a run with the head `quality` on CORPUS/{lang}/*.jsonl, ENCODER its encoder, whose tokenizer
the heads take, WORK a folder for what is made. N documents of a language, drawn with a seed, teach a head of that
language and one of all; the documents after the first 3,000 are evaluated. Needs what cascade.py does.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
from cascade import MAX_BYTES, RECALLS, scores

NUMBERS = [500, 1000, 2000, 3000]
RATE = 0.1


def main():
    polysift, full, corpus, encoder, work = sys.argv[1:]
    work = Path(work)
    held, known = {}, {}
    for folder in sorted(Path(full, "scores/quality").iterdir()):
        language = folder.name
        known[language] = scores(folder)
        rows = []
        for file in sorted(Path(corpus, language).glob("*.jsonl")):
            for row, line in enumerate(open(file)):
                logit = known[language].get((file.stem, row), (0, None))[1]
                if logit is not None:
                    sample = {"id": f"{file.stem}-{row}", "text": json.loads(line)["text"], "label": logit}
                    rows.append(((file.stem, row), sample))
        random.Random(5).shuffle(rows)
        for number in NUMBERS:
            path = work / f"{number}/{language}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(sample) + "\n" for _, sample in rows[:number]))
        held[language] = [key for key, _ in rows[max(NUMBERS) :]]

    heads = [(f"{kind}{number}", kind, number) for kind in ["own", "all"] for number in NUMBERS]
    settings = f"[input]\nfiles = ['{Path(corpus).absolute()}/{{lang}}/*.jsonl']\n[encoder]\nmodel = '%s'\n"
    train, score = settings % Path(encoder).absolute(), settings % "none"
    for name, kind, number in heads:
        train += f"[heads.{name}]\nkind = 'lexical'\ntraining = {{ loss = 'squared-error' }}\n"
        train += f"train = ['{work.absolute()}/{number}/{{lang}}.jsonl']\n" + ("languages = 'all'\n" * (kind == "all"))
        file = "{lang}" if kind == "own" else "_all"
        score += f"[heads.{name}]\npath = '{work.absolute()}/train/heads/{name}/{file}.safetensors'\n"
    for run, text, stages in [("train", train, ["train"]), ("score", score, ["embed", "score"])]:
        (work / f"{run}.toml").write_text(text)
        for stage in stages:
            command = [polysift, stage, "-c", work / f"{run}.toml", "--run", work / run, "--quiet"]
            subprocess.run(command, check=True)

    titles = ["language", "taught by"] + [f"recall {recall}" for recall in RECALLS] + ["correlation", "bytes of the kept"]
    for cells in [titles, ["---"] * len(titles)]:
        print("| " + " | ".join(cells) + " |")
    for language, keys in held.items():
        value = np.array([known[language][key][1] for key in keys])
        size = np.array([min(known[language][key][0], MAX_BYTES) for key in keys], float)
        kept = np.zeros(len(keys), bool)
        kept[np.argsort(-value, kind="stable")[: int(np.ceil(RATE * len(keys)))]] = True
        for name, kind, number in heads:
            cheap = scores(work / "score/scores" / name / language)
            cheap = np.array([cheap[key][1] for key in keys])
            cells = [language, f"{number}" if kind == "own" else f"{number} of each language"]
            for recall in RECALLS:
                passed = cheap >= np.sort(cheap[kept])[int((1 - recall) * kept.sum())]
                cells.append(f"{passed.mean():.1%} / {size[passed].sum() / size.sum():.1%}")
            cells += [f"{np.corrcoef(value, cheap)[0, 1]:.3f}", f"{size[kept].sum() / size.sum():.1%}"]
            print("| " + " | ".join(cells) + " |")


main()
