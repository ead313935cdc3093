"""What several processes on one run directory gain, and what a shard costs beside its documents.

    python benches/scale/measure.py POLYSIFT > benches/runs/DATE-scale.md

Standard library only; POLYSIFT is the program, built for release. The corpus is the sample's, every file
several times over, so that there are shards enough to share out. Processes have one thread each.
Runs of different numbers of processes take turns, because a shared machine drifts.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

SAMPLE = Path(__file__).parents[2] / "tests/sample/corpus"
COPIES = int(os.environ.get("COPIES", "4"))
TURNS = int(os.environ.get("TURNS", "3"))
PROCESSES = [int(n) for n in os.environ.get("PROCESSES", "1 2").split()]
TINY_SHARDS = int(os.environ.get("TINY_SHARDS", "1000"))
SETTINGS = ["--precision", "f32", "--device", "cpu", "--chunks", "first"]
ONE_THREAD = ["--threads", "1", "--quiet"]


class Cost(NamedTuple):
    """Of one command or of several side by side."""

    wall_secs: float
    cpu_secs: float


def main() -> None:
    """Measure and print."""
    program = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        head(program)
        scaling(program, work)
        bookkeeping(program, work)


def head(program: str) -> None:
    """Print where and with what."""
    version = output([program, "--version"])
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    print("# Several processes on one run directory\n")
    print(f"`benches/scale/measure.py`, {time.strftime('%Y-%m-%d %H:%M')}, {version}")
    load = f"{os.getloadavg()[0]:.1f}"
    print(f"\n{cpu}, {os.cpu_count()} cores, Linux {platform.release()}; load at the start {load}.\n")


def scaling(program: str, work: Path) -> None:
    """Print wall times of embed by number of processes."""
    corpus = work / "corpus"
    for file in sorted(SAMPLE.glob("*/*")):
        target = corpus / file.parent.name
        target.mkdir(parents=True, exist_ok=True)
        for copy in range(COPIES):
            shutil.copy(file, target / f"{copy}_{file.name}")
    taken: dict[int, list[Cost]] = {number: [] for number in PROCESSES}
    digests = set()
    for _ in range(TURNS):
        for number in PROCESSES:
            run = plan(program, f"{corpus}/{{lang}}/*", work / "run")
            taken[number].append(embed(program, run, number))
            digests.add(digest(run))
            shutil.rmtree(run)
    shards = sum(1 for _ in corpus.glob("*/*"))
    median = {number: statistics.median(cost.wall_secs for cost in taken[number]) for number in PROCESSES}
    print(f"## embed, {shards} shards, processes of one thread\n")
    print(f"Medians of {TURNS}; the embeddings are the same bytes: {'yes' if len(digests) == 1 else 'NO'}.\n")
    print("| processes | wall, s | all turns | CPU, s | against the first |")
    print("|---|---|---|---|---|")
    for number in PROCESSES:
        turns = ", ".join(f"{cost.wall_secs:.1f}" for cost in taken[number])
        cpu = statistics.median(cost.cpu_secs for cost in taken[number])
        gain = median[PROCESSES[0]] / median[number]
        print(f"| {number} | {median[number]:.1f} | {turns} | {cpu:.1f} | {gain:.2f} |")
    print()


def bookkeeping(program: str, work: Path) -> None:
    """Print what a shard costs beside its documents: as many documents in many files and in one."""
    lines = [
        json.dumps({"id": str(i), "text": f"A short document, number {i}."}) + "\n"
        for i in range(TINY_SHARDS)
    ]
    many, single = work / "many", work / "single"
    for folder in (many, single):
        folder.mkdir()
    for i, line in enumerate(lines):
        (many / f"{i:06}.jsonl").write_text(line)
    (single / "all.jsonl").write_text("".join(lines))
    rows = []
    runs = {}
    for name, folder in (("many", many), ("single", single)):
        run = work / f"run-{name}"
        began = time.perf_counter()
        plan(program, f"{folder}/*.jsonl", run, "--language", "eng_Latn")
        rows.append((f"plan, {name}", Cost(time.perf_counter() - began, float("nan"))))
        rows.append((f"embed, {name}", embed(program, run, 1)))
        rows.append((f"embed again, {name}", embed(program, run, 1)))
        runs[name] = run
    began = time.perf_counter()
    output([program, "status", str(runs["many"])])
    rows.append(("status, many", Cost(time.perf_counter() - began, float("nan"))))
    cost = dict(rows)
    wall = (cost["embed, many"].wall_secs - cost["embed, single"].wall_secs) / TINY_SHARDS
    cpu = (cost["embed, many"].cpu_secs - cost["embed, single"].cpu_secs) / TINY_SHARDS
    print(f"## Bookkeeping, {TINY_SHARDS} documents: a shard each (many), or one shard (single)\n")
    print("| command | wall, s | CPU, s |")
    print("|---|---|---|")
    for name, taken in rows:
        print(f"| {name} | {taken.wall_secs:.3f} | {taken.cpu_secs:.3f} |".replace("nan", ""))
    print(
        f"\nA shard more costs {1000 * wall:.2f} ms of wall time in `embed`, {1000 * cpu:.2f} ms of them CPU."
    )
    calls = system_calls(program, many, work)
    if calls:
        print(f"System calls per shard (strace): {calls}.")


def system_calls(program: str, many: Path, work: Path) -> str:
    """System calls that touch the file system, per shard; nothing where there is no strace."""
    if shutil.which("strace") is None:
        return ""
    run = plan(program, f"{many}/*.jsonl", work / "run-traced", "--language", "eng_Latn")
    counted = work / "calls"
    command = ["strace", "-f", "-c", "-e", "trace=%file,%desc", "-o", str(counted)]
    output([*command, program, "embed", "--run", str(run), *ONE_THREAD])
    counts = {}
    for line in counted.read_text().splitlines()[2:-2]:
        fields = line.split()
        counts[fields[-1]] = int(fields[3]) / TINY_SHARDS
    often = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {count:.1f}" for name, count in often if count >= 0.5)


def plan(program: str, pattern: str, run: Path, *args: str) -> Path:
    """Plan a run."""
    output([program, "plan", pattern, "--run", str(run), *SETTINGS, *args])
    return run


def embed(program: str, run: Path, processes: int) -> Cost:
    """Embed with a number of processes, each with its task."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    tasks = (["--task", str(i), "--num-tasks", str(processes)] for i in range(processes))
    command = [program, "embed", "--run", str(run), *ONE_THREAD]
    started = [subprocess.Popen([*command, *task]) for task in tasks]
    codes = [process.wait() for process in started]
    if any(codes):
        sys.exit("embed failed")
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def digest(run: Path) -> str:
    """Digest of all embeddings."""
    whole = hashlib.blake2b()
    for path in sorted((run / "embeddings").rglob("*.parquet")):
        whole.update(str(path.relative_to(run)).encode())
        whole.update(path.read_bytes())
    return whole.hexdigest()


def output(command: list[str]) -> str:
    """Run a command and return what it prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    main()
