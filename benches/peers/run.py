"""Measures polysift's encoder on the CPU beside other programs, in turns in one run.

    python run.py PROGRAM DATA OUT [--peers "torch ort ov candle"] [--dtypes "f32 bf16 f16 int8"]
                  [--workloads "W1 W2"] [--documents 96] [--repeats 3] [--threads N] [--batch 4]

PROGRAM is the executable of the bench `peers`, DATA what `peers prepare` and `export.py` filled, OUT a
folder that gets `peers.json` and `peers.md` (the fields are told in `report.py`). W1 is chunks of 512
tokens, W2 documents of web-like lengths; `--documents` of W2 are taken (256 at most) and a quarter as
many of W1.

Engines of the same precision (f32, 16 bits, int8) are loaded together and take turns; the first turn's
embeddings are compared with PyTorch's in f32 (kept in DATA). A peer that is slower than SLOW times the
best peer in the first turn sits the others out. Not timed: loading, and a warm-up.
"""

import argparse
import os
import pathlib
import statistics
import sys

import numpy as np

import report
from engine import Engine
from engines import ENGINES
from report import PRECISION, dtype_of, is_ours
from workload import read

SLOW = 0.7


class Bench:
    """What is fixed for a run."""

    def __init__(self, args):
        self.args = args
        self.records = []
        self.failures = {}

    def documents(self, workload):
        return {"W1": self.args.documents // 4}.get(workload, self.args.documents)

    def command(self, name):
        args, data = self.args, [str(self.args.data), str(self.args.data / "model")]
        batch = ["--batch", str(args.batch)]
        kind, _, dtype = name.partition("-")
        if kind in ("polysift", "candle"):
            return [args.program, "serve", kind, *data, "--dtype", dtype, *batch]
        script = str(pathlib.Path(__file__).with_name("engines.py"))
        return [sys.executable, script, name, *data, "--threads", str(args.threads), *batch]

    def start(self, names):
        """The engines that start; why others do not is kept."""
        for name in names:
            try:
                engine = Engine(name, self.command(name), self.args.threads)
                engine.embed("WARM")
                yield engine
            except RuntimeError as error:
                self.failures[name] = str(error)
                print(f"{name}: failed: {error}", flush=True)

    def reference(self, workload):
        """PyTorch's embeddings in f32, made once."""
        path = self.args.data / f"{workload}.reference.npy"
        documents = self.documents(workload)
        if not path.is_file() or len(np.load(path, mmap_mode="r")) < documents:
            print(f"{workload}: reference ...", flush=True)
            engine = Engine("torch-f32", self.command("torch-f32"), self.args.threads)
            engine.embed(workload, documents, path)
            engine.close()
        return np.load(path)[:documents].astype(np.float64)

    def turns(self, engines, workload):
        """All passes of `engines` over `workload`, in turns."""
        documents = self.documents(workload)
        tokens = sum(map(len, read(self.args.data, workload)[:documents]))
        exact = self.reference(workload)
        out = self.args.data / "embeddings.npy"
        passes, fidelity = {engine: [] for engine in engines}, {}
        for turn in range(self.args.repeats):
            for engine in engines:
                if turn and sits_out(engine, passes):
                    continue
                passes[engine].append(engine.embed(workload, documents, out))
                rate = tokens / passes[engine][-1]["secs"]
                print(f"{workload} turn {turn + 1} {engine.name}: {rate:.0f} tokens/s", flush=True)
                if not turn:
                    fidelity[engine] = distances(exact, np.load(out).astype(np.float64))
        for engine, done in passes.items():
            secs = statistics.median(each["secs"] for each in done)
            cores = statistics.median(each["cores"] for each in done)
            self.records.append({
                "engine": engine.name, "dtype": engine.about["dtype"], "workload": workload,
                "tokens": tokens, "documents": documents, "tokens_per_sec": tokens / secs,
                "gflops": report.gflop(self.args.data, workload, documents) / secs,
                "secs": [each["secs"] for each in done],
                "cores": cores, "tokens_per_core_sec": tokens / secs / cores,
                "others_share_max": max(each["others"] for each in done), **fidelity[engine],
                "peak_rss_mib": engine.peak_mib(), "version": engine.about["version"],
            })

    def measure(self, precision, dtypes):
        names = [name for name in peers(self.args.peers) if PRECISION[dtype_of(name)] == precision]
        names += [f"polysift-{dtype}" for dtype in dtypes]
        engines = list(self.start(names))
        for workload in self.args.workloads.split():
            self.turns(engines, workload)
        for engine in engines:
            engine.close()


def peers(wanted):
    """The engines that `wanted` names, alone or by their program."""
    names = wanted.split()
    return [n for n in [*ENGINES, "candle-f32"] if n in names or n.partition("-")[0] in names]


def sits_out(engine, passes):
    """Whether `engine` is a peer that was slow in the first turn."""
    firsts = [done[0]["secs"] for e, done in passes.items() if not is_ours(e.name)]
    return not is_ours(engine.name) and passes[engine][0]["secs"] * SLOW > min(firsts)


def distances(exact, embeddings):
    """How far the embeddings [n, H] are from the exact ones; centred: once the mean is taken off."""
    norms = np.linalg.norm(exact, axis=1)
    difference = np.linalg.norm(embeddings - exact, axis=1)
    cosine = (embeddings * exact).sum(1) / (norms * np.linalg.norm(embeddings, axis=1))
    centred = np.linalg.norm(exact - exact.mean(0), axis=1)
    return {
        "relative_l2_mean": float((difference / norms).mean()),
        "relative_l2_max": float((difference / norms).max()),
        "centred_l2_mean": float((difference / centred).mean()),
        "one_minus_cosine_max": float((1 - cosine).max()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--peers", default="torch ort ov candle")
    parser.add_argument("--dtypes", default="f32 bf16 f16 int8")
    parser.add_argument("--workloads", default="W1 W2")
    parser.add_argument("--documents", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--batch", type=int, default=4)
    args = parser.parse_args()
    bench = Bench(args)
    dtypes = args.dtypes.split()
    for precision in dict.fromkeys(PRECISION[dtype] for dtype in dtypes):
        bench.measure(precision, [dtype for dtype in dtypes if PRECISION[dtype] == precision])
    report.write(args, bench.records, bench.failures)


if __name__ == "__main__":
    main()
