"""The filter stages and [pii] beside what one would run in Python today, on made documents and real texts.

    pip install protego==0.4.0 datatrove==0.10.1 pyarrow zstandard regex 'xxhash<4'
    python benches/filters.py --texts FOLDER [--polysift PATH] [--work DIR] [--documents N] [--mb MB]
        [--quick]

FOLDER has texts as NAME.LANG.jsonl.zst, of which MB (50) are drawn; polysift gets them ten times,
since what [pii] costs of 50 MB is lost in noise. DIR is emptied first. Printed is a Markdown table of medians
of three turns, in which the programs alternate:

- Consent: N (400,000) made documents with hosts by Zipf's law, robots.txt files of four fifths of these.
  `polysift filter` beside Protego with a cache of parsed files, any of the same 15 agents. Python gets all
  documents of a third of the hosts and only their files, so both are in proportion; verdicts must be equal.
- Personal data: `polysift export` with [pii] less the same without, beside datatrove's PIIFormatter on texts
  in memory.
- Decontamination: `polysift filter` with an index of 10^6 n-grams, which a hundred planted texts hold, beside
  a loop over datatrove's `simplify_text`, `split`, xxh64 of every 13 words and a set, over every fourth text.

Times are of whole processes by the clock for polysift, with its default threads; of loops on one core for
Python, which begin with reading the Parquet files, but for PIIFormatter. Python's rate is multiplied by the
cores for the ratio. The last column has processor time on both sides, which other programs on the machine
disturb less.
"""

import argparse
import functools
import importlib.metadata
import io
import json
import os
import random
import shutil
import statistics
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from datatrove.pipeline.formatters import PIIFormatter
from datatrove.utils.hashing import HashConfig, create_hash_func
from datatrove.utils.text import ngrams, simplify_text
from protego import Protego

TURNS = 3
CORES = os.cpu_count()
HOSTS = 50_000
ROBOTS_SHARE = 0.8
PYTHON_SHARE = 3  # Protego gets the documents of one in so many hosts
PYTHON_TEXTS = 4  # the loop over n-grams gets one in so many texts
NGRAMS, NGRAM, NGRAMS_PER_ITEM = 1_000_000, 13, 10
COPIES = 10  # of the texts, for polysift alone, whose differences are small
PLANTED = 100  # items that are texts too
SHARD_DOCUMENTS, SHARD_BYTES = 50_000, 5_000_000
# fmt: off
AGENTS = [
    "AI2Bot", "Applebot-Extended", "Bytespider", "CCBot", "CCBot/2.0", "CCBot/1.0", "ClaudeBot",
    "cohere-training-data-crawler", "Diffbot", "FacebookBot", "Meta-ExternalAgent", "Google-Extended",
    "GPTBot", "PanguBot", "*",
]
PATHS = [
    "/wp-admin/", "/wp-login.php", "/search", "/cart", "/checkout", "/account/", "/login", "/admin/",
    "/cgi-bin/", "/tmp/", "/private/", "/api/", "/feed/", "/*?sort=", "/*?replytocom=", "/*.pdf$", "/tag/",
    "/author/", "/print/", "/news/archive/", "/blog/drafts/", "/shop/*/reviews", "/forum/members", "/user/",
    "/node/add/", "/comment/reply/", "/includes/", "/scripts/", "/*/trackback/", "/xmlrpc.php",
]
SECTIONS = [
    "news", "blog", "shop", "forum", "wiki", "tag", "product", "article", "story", "review", "event",
    "photo", "recipe", "sport", "world", "guide", "about", "archive", "user", "2023", "2024", "docs",
    "author", "p",
]
TLDS = ["com", "com", "com", "com", "org", "net", "de", "fr", "co.uk", "io", "com.br", "it", "pl", "ru", "jp"]
# fmt: on
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]


def word(number):
    """A number as syllables, since digits are all one to `simplify_text`."""
    text = ""
    for _ in range(3):
        number, rest = divmod(number, len(SYLLABLES))
        text += SYLLABLES[rest]
    return text


def robots_txt(rng):
    """A file as sites have them."""
    if rng.random() < 0.03:
        return "User-agent: *\nDisallow: /\n"
    lines = ["# robots.txt"] * (rng.random() < 0.3) + ["User-agent: *"]
    lines += [f"Disallow: {path}" for path in rng.sample(PATHS, rng.randint(3, 15))]
    lines += ["Allow: /wp-admin/admin-ajax.php"] * (rng.random() < 0.4)
    lines += ["Crawl-delay: 10"] * (rng.random() < 0.1)
    if rng.random() < 0.15:
        for agent in rng.choice((["GPTBot"], ["CCBot"], ["GPTBot", "CCBot"])):
            rule = rng.choice(("Disallow: /", "Disallow: /", "Disallow: /blog/"))
            lines += ["", f"User-agent: {agent}", rule]
    lines += ["", "Sitemap: https://www.example.com/sitemap.xml"] * (rng.random() < 0.5)
    return "\n".join(lines) + "\n"


def write_table(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, compression="zstd", row_group_size=10_000)


def make_documents(folder, num_documents, num_hosts):
    """Documents and robots.txt files for polysift, and the share of both for Python."""
    rng = random.Random(1)
    names = [f"{rng.choice(('', 'www.'))}{word(rank)}{rank}.{rng.choice(TLDS)}" for rank in range(num_hosts)]
    answering = rng.sample(range(num_hosts), round(num_hosts * ROBOTS_SHARE))
    robots = {rank: robots_txt(rng) for rank in answering}
    write_table(
        folder / "robots.parquet",
        domain=[names[rank] for rank in robots],
        content=list(robots.values()),
    )
    weights = [1 / rank for rank in range(1, num_hosts + 1)]
    ranks = rng.choices(range(num_hosts), weights, k=num_documents)
    words = [word(number) for number in range(5_000)]
    urls, texts = [], []
    for rank in ranks:
        path = f"/{rng.choice(SECTIONS)}/" + "-".join(rng.choices(words, k=4))
        path += rng.choice(("", "/", "/", ".html", ".html", f"?id={rng.randrange(10**6)}", f"/{rank}.pdf"))
        urls.append(f"https://{names[rank]}{path}")
        texts.append(" ".join(rng.choices(words, k=43)))
    ids = [f"document-{i}" for i in range(num_documents)]
    for at in range(0, num_documents, SHARD_DOCUMENTS):
        part = slice(at, at + SHARD_DOCUMENTS)
        path = folder / f"documents/eng_Latn/{at:08}.parquet"
        write_table(path, id=ids[part], url=urls[part], text=texts[part])

    # Of the residues the one whose documents are nearest to the share: large hosts are few.
    counts = [0] * PYTHON_SHARE
    for rank in ranks:
        counts[rank % PYTHON_SHARE] += 1
    residue = min(range(PYTHON_SHARE), key=lambda i: abs(counts[i] - num_documents / PYTHON_SHARE))
    chosen = [i for i, rank in enumerate(ranks) if rank % PYTHON_SHARE == residue]
    write_table(
        folder / "share.parquet",
        id=[ids[i] for i in chosen],
        url=[urls[i] for i in chosen],
        text=[texts[i] for i in chosen],
    )
    kept = [rank for rank in robots if rank % PYTHON_SHARE == residue]
    write_table(
        folder / "share-robots.parquet",
        domain=[names[rank] for rank in kept],
        content=[robots[rank] for rank in kept],
    )
    return len(chosen)


def make_texts(source, folder, num_bytes, planted):
    """Draws texts from all files, behind planted ones; a shard has one language and about 5 MB."""
    rng = random.Random(2)
    rows = []
    for path in sorted(source.glob("*.jsonl.zst")):
        with zstandard.open(path, "rb") as file:
            for number, line in enumerate(io.TextIOWrapper(file, "utf-8")):
                row = json.loads(line)
                rows.append((path.name.split(".")[-3], f"{path.name}#{number}", row["text"]))
    rng.shuffle(rows)
    rows = [("eng_Latn", f"planted#{number}", text) for number, text in enumerate(planted)] + rows
    languages, total, count = defaultdict(lambda: [[[], [], 0]]), 0, 0
    for language, key, text in rows:
        if total >= num_bytes:
            break
        shards, size = languages[language], len(text.encode())
        if shards[-1][2] > SHARD_BYTES:
            shards.append([[], [], 0])
        shards[-1][0].append(key)
        shards[-1][1].append(text)
        shards[-1][2] += size
        total, count = total + size, count + 1
    for language, shards in languages.items():
        for number, (ids, texts, _) in enumerate(shards):
            path = folder / f"texts/{language}/{number:03}.parquet"
            write_table(path, id=ids, text=texts)
            for copy in range(COPIES):
                link = folder / f"copies/{language}/{number:03}-{copy}.parquet"
                link.parent.mkdir(parents=True, exist_ok=True)
                link.hardlink_to(path)
    return total, count


def make_items(path, num_ngrams):
    rng = random.Random(3)
    words = [word(number) for number in range(50_000)]
    items = [rng.choices(words, k=NGRAM + NGRAMS_PER_ITEM - 1) for _ in range(num_ngrams // NGRAMS_PER_ITEM)]
    with path.open("w") as file:
        for number, item in enumerate(items):
            row = {"task": "made", "id": number, "language": "eng_Latn", "question": ""}
            file.write(json.dumps({**row, "answer": " ".join(item)}) + "\n")
    return [" ".join(item) for item in items]


class Clock:
    """Seconds by the clock and of processors, a pair for every turn."""

    def __init__(self):
        self.turns = []

    def measure(self, action):
        start, before = time.perf_counter(), os.times()
        result = action()
        after = os.times()
        cpu = sum(after[:4]) - sum(before[:4])
        self.turns.append((time.perf_counter() - start, cpu))
        return result

    def medians(self):
        return [statistics.median(column) for column in zip(*self.turns)]

    def medians_beyond(self, other):
        """Of the differences of the turns."""
        pairs = [(wall - w, cpu - c) for (wall, cpu), (w, c) in zip(self.turns, other.turns)]
        return [statistics.median(column) for column in zip(*pairs)]


class Polysift:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def run(self, *arguments):
        command = [self.program, *map(str, arguments), "--quiet"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self.folder)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def start(self, name, files, settings, *stages):
        """A run without an encoder, up to what is timed."""
        text = f'run_dir = "{name}"\n[input]\nfiles = ["{files}"]\n[encoder]\nmodel = "none"\n{settings}'
        (self.folder / f"{name}.toml").write_text(text)
        for stage in stages:
            self.run(stage, "-c", f"{name}.toml")
        return self

    def again(self, stage, name):
        self.run(stage, "-c", f"{name}.toml", "--redo", stage)

    def found(self, name):
        paths = sorted((self.folder / name / "verdicts").rglob("*.parquet"))
        return {key for path in paths for key in pq.read_table(path, columns=["id"])["id"].to_pylist()}


def consent_python(folder):
    """Ids of the documents that an agent may not fetch."""
    robots = pq.read_table(folder / "share-robots.parquet")
    robots = dict(zip(robots["domain"].to_pylist(), robots["content"].to_pylist()))

    @functools.cache
    def parsed(host):
        content = robots.get(host)
        return None if content is None else Protego.parse(content)

    found = set()
    table = pq.read_table(folder / "share.parquet", columns=["id", "url"])
    for key, url in zip(table["id"].to_pylist(), table["url"].to_pylist()):
        rules = parsed(urlsplit(url).hostname)
        if rules is not None and any(not rules.can_fetch(url, agent) for agent in AGENTS):
            found.add(key)
    return found


def read_texts(folder):
    for path in sorted((folder / "texts").rglob("*.parquet")):
        yield from pq.read_table(path, columns=["text"])["text"].to_pylist()


def pii_python(texts):
    """The number of texts that change."""
    formatter = PIIFormatter()
    return sum(formatter.format(text) != text for text in texts)


def hashes_of(text, hash_of):
    return (hash_of(" ".join(ngram)) for ngram in ngrams(simplify_text(text).split(), NGRAM))


def decontamination_python(folder, index, hash_of):
    """The number of documents with a hit, and the bytes of all."""
    hits = num_bytes = 0
    for number, text in enumerate(read_texts(folder)):
        if number % PYTHON_TEXTS == 0:
            num_bytes += len(text.encode())
            hits += any(value in index for value in hashes_of(text, hash_of))
    return hits, num_bytes


def row(what, unit, size, seconds, python_size, python_seconds):
    """A row of the table: rates by the clock, and the ratio of those by processor time."""
    wall, cpu = seconds
    python_wall, python_cpu = python_seconds
    python_rate = python_size / python_wall

    def rate(value):
        return f"{value:,.{0 if value >= 1000 else 1}f} {unit}/s"

    cells = [what, "lost in noise", rate(python_rate), rate(python_rate * CORES), "", ""]
    if wall > 0:
        cells[1] = rate(size / wall)
        cells[4] = f"{size / wall / (python_rate * CORES):.1f}"
    if cpu > 0:
        cells[5] = f"{size / cpu / (python_size / python_cpu):.1f}"
    return "| " + " | ".join(cells) + " |"


def consent(polysift, folder, num_documents, num_hosts):
    share = make_documents(folder, num_documents, num_hosts)
    for name in ("rfc9309", "protego-0.4"):
        settings = f'[filters.consent]\nkind = "robots"\nmatching = "{name}"\nas_of = "2025-01"\n'
        settings += 'sources = [{ robots = "robots.parquet" }]\n'
        polysift.start(name, "documents/{lang}/*.parquet", settings, "embed", "filter")
    clocks = defaultdict(Clock)
    for _ in range(TURNS):
        for name in ("rfc9309", "protego-0.4"):
            clocks[name].measure(lambda name=name: polysift.again("filter", name))
        found = clocks["python"].measure(lambda: consent_python(folder))
    ids = set(pq.read_table(folder / "share.parquet", columns=["id"])["id"].to_pylist())
    ours = polysift.found("protego-0.4")
    same = "yes" if ours & ids == found else "NO"
    python = clocks["python"].medians()
    for name in ("rfc9309", "protego-0.4"):
        what = f"consent, `{name}` / Protego 0.4.0"
        yield row(what, "documents", num_documents, clocks[name].medians(), share, python), clocks[name], name
    yield (
        (
            f"Consent: {num_documents:,} documents, {share:,} of them for Python; {len(ours):,} found, "
            f"{len(ours & ids):,} of Python's (Protego: {len(found):,}), the same: {same}."
        ),
        clocks["python"],
        "Protego",
    )


def pii(polysift, folder, num_bytes, num_texts):
    modes = {"export": ""} | {name: f'[pii]\nmode = "{name}"\n' for name in ("default", "datatrove")}
    for name, settings in modes.items():
        polysift.start(name, "copies/{lang}/*.parquet", settings, "embed", "threshold", "export")
    texts = list(read_texts(folder))
    clocks = defaultdict(Clock)
    for _ in range(TURNS):
        for name in modes:
            clocks[name].measure(lambda name=name: polysift.again("export", name))
        changed = clocks["python"].measure(lambda: pii_python(texts))
    python = clocks["python"].medians()
    for name in ("default", "datatrove"):
        beyond = clocks[name].medians_beyond(clocks["export"])
        what = f"personal data, `{name}` / PIIFormatter"
        text = row(what, "MB", num_bytes * COPIES / 1e6, beyond, num_bytes / 1e6, python)
        yield text, clocks[name], f"export, [pii] {name}"
    found = {name: sum_counts(folder / name) // COPIES for name in ("default", "datatrove")}
    counts = ", ".join(f"{name} {count:,}" for name, count in found.items())
    size = f"{num_texts:,} texts, {num_bytes / 1e6:.1f} MB, {COPIES} times for polysift"
    note = f"Personal data: {size}; documents with any: {counts}"
    yield note + f", PIIFormatter {changed:,}.", clocks["python"], "PIIFormatter"
    yield "", clocks["export"], "export"


def sum_counts(run):
    """Documents of an export in which something was found."""
    total = 0
    for path in (run / "export").rglob("*.parquet"):
        if "pii_count" in pq.read_schema(path).names:
            counts = pq.read_table(path, columns=["pii_count"])["pii_count"].to_pylist()
            total += sum(count is not None and count > 0 for count in counts)
    return total


def decontamination(polysift, folder, num_bytes, items):
    polysift.run("dataset", "benchmarks", "--items", "items.jsonl", "--out", "made.idx")
    settings = '[filters.benchmarks]\nkind = "decontamination"\nindex = "made.idx"\n'
    polysift.start("decontaminated", "copies/{lang}/*.parquet", settings, "embed", "filter")
    hash_of = create_hash_func(HashConfig())
    index = {value for item in items for value in hashes_of(item, hash_of)}
    clocks = defaultdict(Clock)
    for _ in range(TURNS):
        clocks["polysift"].measure(lambda: polysift.again("filter", "decontaminated"))
        hits, share = clocks["python"].measure(lambda: decontamination_python(folder, index, hash_of))
    ours, python = clocks["polysift"].medians(), clocks["python"].medians()
    what = f"decontamination, {len(index):,} n-grams / `simplify_text`, `split`, set"
    name = "filter, decontamination"
    yield row(what, "MB", num_bytes * COPIES / 1e6, ours, share / 1e6, python), clocks["polysift"], name
    found = len(polysift.found("decontaminated"))
    note = f"Decontamination: {share / 1e6:.1f} MB for Python; {PLANTED} texts are items; "
    yield (
        note + f"found: {found} and, of a fourth of the texts, {hits}.",
        clocks["python"],
        "n-grams in Python",
    )


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "unknown"


def main():
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--polysift", default="target/release/polysift")
    parser.add_argument("--work", type=Path, default=Path("target/filters"))
    parser.add_argument("--documents", type=int, default=400_000)
    parser.add_argument("--mb", type=float, default=50)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the sizes")
    options = parser.parse_args()
    part = 100 if options.quick else 1
    program = shutil.which(options.polysift)
    if program is None:
        raise SystemExit(f"{options.polysift}: no such program")
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    folder = options.work.resolve()
    polysift = Polysift(str(Path(program).resolve()), folder)
    load = os.getloadavg()[0]

    items = make_items(folder / "items.jsonl", NGRAMS // part)
    num_bytes, num_texts = make_texts(options.texts, folder, options.mb * 1e6 / part, items[:PLANTED])
    parts = [
        consent(polysift, folder, options.documents // part, HOSTS // part),
        pii(polysift, folder, num_bytes, num_texts),
        decontamination(polysift, folder, num_bytes, items),
    ]
    lines = [line for results in parts for line in results]
    packages = ("protego", "datatrove", "pyarrow")
    versions = [polysift.run("--version").strip()]
    versions += [f"{name} {importlib.metadata.version(name)}" for name in packages]
    print(f"{processor()}, {CORES} cores; load {load:.1f}; {', '.join(versions)}.\n")
    print(f"| what | polysift | Python, one core | Python × {CORES} | ratio | ratio, processor time |")
    print("|---|---|---|---|---|---|")
    for text, _, _ in lines:
        if text.startswith("|"):
            print(text)
    print()
    for text, _, _ in lines:
        if text and not text.startswith("|"):
            print(f"- {text}")
    print("\n| process | seconds by the clock, all turns | processor seconds |\n|---|---|---|")
    for _, clock, name in lines:
        turns = [", ".join(f"{value:.2f}" for value in column) for column in zip(*clock.turns)]
        print(f"| {name} | " + " | ".join(turns) + " |")


if __name__ == "__main__":
    main()
