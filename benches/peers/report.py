"""`peers.json` and `peers.md` from what `run.py` measured.

    ratio_to_best_peer_w2    the best of the dtypes below
    dtypes                   per dtype of polysift: its rate over the fastest peer's of the same precision
                             (bf16 and f16: the fastest in 16 bits), and that peer's name, per workload
    engines                  one record per engine and workload: tokens/s (real tokens, median of `secs`), GFLOP/s
                             of useful work, cores it had (waiting threads count) and tokens/s for each, share of
                             all cores that others had, distances from PyTorch in f32, largest resident memory
    failures                 engines that did not start, and why
    machine, versions, settings, commit, date
"""

import datetime
import json
import os
import pathlib
import platform
import subprocess

from workload import read

PRECISION = {"f32": "f32", "bf16": "16 bits", "f16": "16 bits", "int8": "int8"}
COLUMNS = (
    "| engine | dtype | workload | tokens/s | of the best peer | GFLOP/s | relative L2, mean | centred | "
    "1 - cosine, max | MiB | turns | others |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def gflop(data, workload, documents):
    """Work that the real tokens need: linear layers, and attention without padding."""
    config = json.loads((data / "model/config.json").read_text())
    h, f = config["hidden_size"], config["intermediate_size"]
    lengths = [len(ids) for ids in read(data, workload)[:documents]]
    each = [length * (2 * (4 * h * h + 2 * h * f) + 4 * length * h) for length in lengths]
    return config["num_hidden_layers"] * sum(each) / 1e9


def machine():
    cpu = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    fields = {key.strip(): value.strip() for key, _, value in
              (line.partition(":") for line in cpu.splitlines())}
    flags = fields.get("flags", fields.get("Features", "")).split()
    telling = [flag for flag in flags if flag.startswith(("avx", "amx", "asimd", "bf16", "i8mm"))]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": fields.get("model name", platform.machine()), "model": fields.get("model", ""),
        "family": fields.get("cpu family", ""), "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1), "flags": telling, "system": platform.platform(),
    }


def is_ours(name):
    return name.startswith("polysift-")


def dtype_of(name):
    """`ov-int8-bf16` is one of int8's."""
    return name.split("-")[1]


def best_peer(records, workload, dtype):
    """The fastest record of a peer in the precision of `dtype`; `None` if there is none."""
    rivals = [r for r in records if r["workload"] == workload and not is_ours(r["engine"])
              and PRECISION[dtype_of(r["engine"])] == PRECISION[dtype]]
    return max(rivals, key=lambda r: r["tokens_per_sec"], default=None)


def ratios(records):
    """Per dtype of polysift: rate over the best peer's, and its name, per workload."""
    out = {}
    for record in filter(lambda r: is_ours(r["engine"]), records):
        dtype, workload = dtype_of(record["engine"]), record["workload"]
        peer = best_peer(records, workload, dtype)
        if peer:
            fields, suffix = out.setdefault(dtype, {}), workload.lower()
            ratio = record["tokens_per_sec"] / peer["tokens_per_sec"]
            fields[f"ratio_to_best_peer_{suffix}"] = round(ratio, 3)
            fields[f"best_peer_{suffix}"] = peer["engine"]
    return out


def row(record, records):
    r = record
    peer = best_peer(records, r["workload"], dtype_of(r["engine"]))
    share = f"{r['tokens_per_sec'] / peer['tokens_per_sec']:.2f}" if peer else ""
    return (
        f"| {r['engine']} | {r['dtype']} | {r['workload']} | {r['tokens_per_sec']:,.0f} | {share} | "
        f"{r['gflops']:,.0f} | {r['relative_l2_mean']:.1e} | {r['centred_l2_mean']:.1e} | "
        f"{r['one_minus_cosine_max']:.1e} | {r['peak_rss_mib']:,} | {len(r['secs'])} | "
        f"{r['others_share_max']:.0%} |"
    )


def commit():
    def git(*words):
        return subprocess.run(["git", *words], capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "HEAD") + (" and changes" if git("status", "--porcelain") else "")


def write(args, records, failures):
    """Both files, and the table on standard output."""
    dtypes = ratios(records)
    best = [fields.get("ratio_to_best_peer_w2") for fields in dtypes.values()]
    result = {
        "ratio_to_best_peer_w2": max(filter(None, best), default=None),
        "dtypes": dtypes,
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "versions": {r["engine"].split("-")[0]: r["version"] for r in records},
        "settings": {name: getattr(args, name)
                     for name in ("threads", "batch", "repeats", "documents", "workloads")},
        "failures": failures,
        "engines": records,
    }
    about = result["machine"]
    lines = [
        f"# {result['date']}, {args.threads} threads on {about['cores']} cores of {about['cpu']} "
        f"(family {about['family']}, model {about['model']})\n",
        f"Commit {result['commit']}. Base shape, random weights, token ids in memory; medians.\n",
        COLUMNS,
        *(row(record, records) for record in records),
        "",
        *(f"{name} failed: {reason}\n" for name, reason in failures.items()),
    ]
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "peers.json").write_text(json.dumps(result, indent=1) + "\n")
    (args.out / "peers.md").write_text("\n".join(lines))
    print("\n".join(lines))
