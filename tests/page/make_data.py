"""Makes reports (report.json) of real text with made-up scores, and pages of them, to test the page with.

    python make_data.py DATA OUT   # OUT/<name>.json, OUT/<name>.html, OUT/<name>.truth.npz

DATA holds SET.LANG.jsonl.zst files, one JSON object a line with `id`, `text` and, where there is one, `label`.

Selection is done here by full sorts, so that what the page says can be compared (see check.py): the truth holds the
ranks, bytes and tokens of all documents.
"""

import base64
import gzip
import hashlib
import io
import json
import math
import sys
import unicodedata
import urllib.parse
from fractions import Fraction
from pathlib import Path

import numpy as np
import zstandard

PAGE = Path(__file__).parents[2] / "src/views/report/page"
NAMES = {"deu_Latn": "German", "eng_Latn": "English", "fra_Latn": "French", "arb_Arab": "Standard Arabic",
         "fas_Arab": "Persian", "cmn_Hani": "Mandarin Chinese"}
PERCENTS = ["0.1", "1", "5", "10", "25", "50", "75", "90", "95", "99", "99.9"]


def rows(code, limit=None):
    """Texts of a language with their set and a made-up URL."""
    found = []
    for path in sorted(DATA.glob(f"*.{code}.jsonl.zst")):
        if path.name.startswith(("cold.", "davidson.")):  # as many tweets as all else
            continue
        with path.open("rb") as file:
            for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8"):
                row = json.loads(line)
                name = path.name.split(".")[0]
                host = int(hashlib.md5(row["id"].encode()).hexdigest(), 16) % 7
                domain = f"{name}.org" if host < 4 else f"{name}-{host}.example"
                found.append({"id": row["id"], "text": row["text"], "set": name, "domain": domain,
                              "url": f"https://www.{domain}/{urllib.parse.quote(row['id'])}", "label": row.get("label")})
                if limit and len(found) >= limit:
                    return found
    return found


def ceil_of(rate, total):
    return -(-Fraction(str(rate)) * int(total) // 1)


def shown(value, digits=6):
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")


class Head:
    """Scores of all documents of a language: logits, NaN for rejects, `missing` without score."""

    def __init__(self, logits, missing=None, keep="above"):
        self.logits, self.keep = logits, keep
        self.missing = np.zeros(len(logits), bool) if missing is None else missing
        self.scored = ~self.missing & ~np.isnan(logits)
        key = np.where(self.scored, -logits if keep == "above" else logits, np.inf)
        order = np.lexsort((np.arange(len(logits)), key))
        self.n = int(self.scored.sum())
        self.order = order[: self.n]
        self.ranks = np.full(len(logits), -1, np.int64)
        self.ranks[self.order] = np.arange(self.n)
        self.scores = 1 / (1 + np.exp(-logits))


def select(heads, rules, weights, values=None):
    """Documents that the rules leave, with each rule's candidates and kept: a full sort for each."""
    alive = np.ones(len(weights), bool)
    steps = []
    for rule in rules:
        head = heads[rule["head"]]
        alive &= head.scored
        left = head.order[alive[head.order]]
        before = left
        if rule["kind"] == "removal":
            need, sums = int(ceil_of(rule["rate"], weights[left].sum())), np.cumsum(weights[left[::-1]])
            left = left[: len(left) - (int(np.searchsorted(sums, need)) + 1 if need > 0 else 0)] if len(left) else left
        elif rule["kind"] == "threshold":
            left = left[head.scores[left] > rule["at"]]
        else:
            need = rule["budget"] if rule["kind"] == "budget" else int(ceil_of(rule["rate"], weights[head.scored].sum()))
            sums = np.cumsum(weights[left])
            left = left[: int(np.searchsorted(sums, need)) + 1] if need > 0 else left[:0]
        alive[:] = False
        alive[left] = True
        edge = left[-1] if len(left) else None
        steps.append((before, left.copy(), edge))
    return alive, steps


def words(text):
    """White space parts words; of a script without spaces each letter is one."""
    count = 0
    for part in text.split():
        alone = [c.isalnum() and unicodedata.name(c, "").startswith(("CJK", "HIRAGANA", "KATAKANA", "THAI")) for c in part]
        between = "".join(" " if is_alone else c for c, is_alone in zip(part, alone)).split()
        count += sum(alone) + sum(any(map(str.isalnum, rest)) for rest in between) if any(alone) else 1
    return count


def histogram(values, bins):
    bins = min(bins, max(1, math.ceil(2 * len(values) ** (1 / 3) - 1e-9)))
    if not len(values):
        return {"low": 0.0, "high": 1.0, "counts": []}
    counts, edges = np.histogram(values, bins, (values.min(), max(values.max(), values.min() + 1e-6)))
    return {"low": shown(edges[0]), "high": shown(edges[-1]), "counts": counts.tolist()}


def length_of(texts, tokens):
    measures = {"words": [words(t) for t in texts], "characters": [len(t) for t in texts],
                "bytes": [len(t.encode()) for t in texts], "tokens": list(tokens)}
    if not texts:
        return {"documents": 0} | {m: {"mean": None, "std": None, "median": None} for m in measures}
    return {"documents": len(texts)} | {
        m: {"mean": shown(np.mean(v)), "std": shown(np.std(v)), "median": float(np.median(v))} for m, v in measures.items()}


def language(code, docs, heads, plan, weight="documents", sample=2000, bins=200, points=200, most=(10, 5, 2), chars=500,
             urls=True, name=None):
    """The entry of a language, and its truth. `plan`: rules; a retention may have several rates."""
    n = len(docs)
    texts = [d["text"] for d in docs]
    sizes = np.array([len(t.encode()) for t in texts], np.int64)
    tokens = np.maximum(1, (sizes / 3.7).astype(np.int64))
    weights = {"documents": np.ones(n, np.int64), "bytes": sizes, "tokens": tokens}[weight]
    several = next((r for r in plan if isinstance(r.get("rate"), list)), None)
    selections = {}
    for rate in several["rate"] if several else [None]:
        rules = [dict(r, rate=rate) if r is several else dict(r) for r in plan]
        if several:
            title = f"{several['head']}={rate}"
        else:
            title = next((f"{r['head']}={r.get('rate', r.get('at', r.get('budget')))}" for r in plan if r["kind"] != "removal"), "all")
        if plan:
            selections[title] = (rules, *select(heads, rules, weights))
    entry = {"language": code, "name": name or NAMES.get(code, code), "documents": n, "bytes": int(sizes.sum()),
             "tokens": int(tokens.sum()), "scores": {}, "thresholds": [], "selected": {}}
    for title, (rules, alive, steps) in selections.items():
        entry["selected"][title] = {"documents": int(alive.sum()), "bytes": int(sizes[alive].sum()), "tokens": int(tokens[alive].sum())}
        for rule, (before, left, edge) in zip(rules, steps):
            head = heads[rule["head"]]
            score = rule.get("at") if rule["kind"] == "threshold" else None if edge is None else shown(head.scores[edge])
            logit = None if score is None else shown(float(np.log(score / (1 - score))) if rule["kind"] == "threshold" else head.logits[edge])
            amount = lambda d: {"documents": len(d), "weight": int(weights[d].sum())}
            out = np.setdiff1d(before, left, assume_unique=True)
            equal = [0, 0] if edge is None else [int((head.logits[d] == head.logits[edge]).sum()) for d in (left, out)]
            tied = {"tied": dict(zip(("kept", "dropped"), equal))} if min(equal) and rule["kind"] != "threshold" else {}
            entry["thresholds"].append({**rule, "selection": title, "candidates": amount(before), "kept": amount(left), "score": score, "logit": logit, **tied})
    verdicts = []
    for i in range(n):
        inside = [s for s, (_, alive, _) in selections.items() if alive[i]]
        if inside:
            verdicts.append(inside[0])
        elif selections:
            rules, _, steps = list(selections.values())[-1]
            # The first rule that does not leave it.
            verdicts.append("removed: " + next((r["head"] for r, (_, left, _) in zip(rules, steps) if i not in set_of(left)), "unknown"))
        else:
            verdicts.append("removed: none")
    for h, head in heads.items():
        s, l = head.scores[head.order], head.logits[head.order]
        at = set(np.linspace(0, head.n, min(points, head.n + 1)).astype(int).tolist())
        for rules, _, steps in selections.values():
            for rule, (_, left, edge) in zip(rules, steps):
                if rule["head"] == h:
                    at.add(0 if edge is None else int(head.ranks[edge]) + 1)
                    if rule["kind"] == "threshold":
                        at.add(int((s > rule["at"]).sum()))
        at = sorted(at)
        sums = {"bytes": np.concatenate(([0], np.cumsum(sizes[head.order]))), "tokens": np.concatenate(([0], np.cumsum(tokens[head.order])))}
        entry["scores"][h] = {
            "n": head.n, "nan": int((np.isnan(head.logits) & ~head.missing).sum()), "unscored": int(head.missing.sum()),
            "mean": shown(s.mean()) if head.n else None, "std": shown(s.std()) if head.n else None,
            "min": shown(s.min()) if head.n else None, "max": shown(s.max()) if head.n else None,
            "quantiles": {p: shown(np.percentile(s, float(p)), 4) for p in PERCENTS} if head.n else {},
            "test": {"num_samples": (7, 49, 50, 1234)[n % 4], "roc_auc": 0.9, "roc_auc_interval": [0.625, 1.0], "spearman": None},
            "bins": histogram(s, bins), "logits": histogram(l, bins),
            "curve": {"documents": at, "bytes": sums["bytes"][at].tolist(), "tokens": sums["tokens"][at].tolist(),
                      "score": [None if k == 0 else shown(s[k - 1], 5) for k in at]}}
    chosen = np.sort(np.random.default_rng(len(code) + n).permutation(n)[:sample])
    place = {int(d): i for i, d in enumerate(chosen)}
    ranks = {}
    for h, head in heads.items():
        r = head.ranks[chosen]
        ranks[h] = np.full(len(chosen), -1)
        scored = np.flatnonzero(r >= 0)
        ranks[h][scored[np.argsort(r[scored])]] = np.arange(len(scored))
    entry["sample"] = {"of": n, "is_all": len(chosen) == n, "bytes": sizes[chosen].tolist(), "tokens": tokens[chosen].tolist(),
                       "ranks": {h: r.tolist() for h, r in ranks.items()}}
    if urls:
        domains = [docs[d]["domain"] for d in chosen]
        names = sorted(set(domains))
        entry["sample"] |= {"domain_names": names, "domains": [names.index(domain) for domain in domains]}
    shown_for, (ends, sides, tenths) = {}, most
    def show(doc, h, word):
        words = shown_for.setdefault(int(doc), {}).setdefault(h, [])
        if word not in words:
            words.append(word)
    for h, head in heads.items():
        falling = head.order if head.keep == "above" else head.order[::-1]
        for d in falling[:ends]: show(d, h, "top")
        for d in falling[::-1][:ends]: show(d, h, "bottom")
        for title, (rules, _, steps) in selections.items():
            for rule, (before, left, _) in zip(rules, steps):
                if rule["head"] == h:
                    kept = set_of(left)
                    out = [d for d in before.tolist() if d not in kept]
                    for d in left[-sides:] if sides else []: show(d, h, f"above_cut {title}")
                    for d in out[:sides]: show(d, h, f"below_cut {title}")
        for k in range(10):
            for d in head.order[k * head.n // 10 : (k + 1) * head.n // 10][:tenths]: show(d, h, f"decile {k}")
    if not heads and ends:
        for d in range(min(n, 5)): shown_for[d] = {}
    entry["examples"] = []
    for d, why in shown_for.items():
        doc = docs[d]
        entry["examples"].append({"id": doc["id"], **({"url": doc["url"], "domain": doc["domain"]} if urls else {}), "bytes": int(sizes[d]), "tokens": int(tokens[d]),
            "scores": {h: shown(head.scores[d], 4) for h, head in heads.items() if head.scored[d]}, "ranks": {h: int(head.ranks[d]) for h, head in heads.items()},
            "sample": place.get(d), "shown_for": why, "verdict": verdicts[d], "text": doc["text"][:chars]})
    entry["length"] = {"all": length_of(texts, tokens)} | {
        s: length_of([texts[i] for i in np.flatnonzero(alive)], tokens[alive]) for s, (_, alive, _) in selections.items()}
    if urls:
        by = {}
        for i, d in enumerate(docs):
            part = by.setdefault(d["domain"], {"domain": d["domain"], "documents": 0, "kept": {s: 0 for s in selections}})
            part["documents"] += 1
            for s, (_, alive, _) in selections.items(): part["kept"][s] += int(alive[i])
        entry["domains"] = sorted(by.values(), key=lambda p: -p["documents"])[:50]
    entry["domains_sampled"] = False
    truth = {"bytes": sizes, "tokens": tokens} | {f"ranks.{h}": head.ranks for h, head in heads.items()} | {f"scores.{h}": head.scores for h, head in heads.items()}
    return entry, truth


_SETS = {}
def set_of(documents):
    if id(documents) not in _SETS:
        _SETS[id(documents)] = (documents, set(documents.tolist()))
    return _SETS[id(documents)][1]


def report(title, entries, heads, weight="documents", encoder="intfloat/multilingual-e5-small", **more):
    names = sorted({s for e in entries for s in e["selected"]}, key=lambda s: (s.split("=")[0], float(s.split("=")[-1]) if "=" in s else 0))
    agreement = []
    for e in entries:
        r = e["sample"]["ranks"]
        for i, a in enumerate(heads):
            for b in heads[i + 1 :]:
                if a in r and b in r and len(r[a]) > 2:
                    x, y = np.array(r[a]), np.array(r[b])
                    k = max(1, len(x) // 10)
                    both = int(((x < k) & (y < k)).sum())
                    agreement.append({"language": e["language"], "heads": [a, b], "spearman": shown(np.corrcoef(x, y)[0, 1], 3),
                                      "overlap": {"rate": 0.1, "jaccard": shown(both / (2 * k - both), 3)}})
    return {"format": 1, "title": title, "time": 1700000000, "version": "0.9.0 (abc1234)", "encoder": encoder, "mode": "default", "weight": weight, "heads": heads, "selections": names,
            "languages": sorted(entries, key=lambda e: e["language"]), "filters": {}, "pii": None, "agreement": agreement, "compare": None, **more}


def made_scores(docs, seed, missing=0.0, nan=0.0, cubic=False):
    """Quality likes long text; toxicity likes short one and the labels of the sets."""
    rng = np.random.default_rng(seed)
    long = np.log([len(d["text"]) + 1 for d in docs])
    n = len(docs)
    quality = 1.1 * (long - 6) + rng.normal(0, 1.5, n)
    toxic = np.array([1.0 if d.get("label") in (1, "1", "OFFENSE", "hate", "hateful", "toxic", "offensive") else 0.0 for d in docs])
    toxicity = -3 - 0.4 * (long - 6) + 3 * toxic + rng.normal(0, 1.2, n)
    gone = rng.random(n) < missing
    toxicity[rng.random(n) < nan] = np.nan
    return {"toxicity": Head(np.round(toxicity, 2), gone, keep="below"), "quality": Head(np.round(quality, 4), gone)}


def found(docs, reasons, notes=None, details=None, hosts=None):
    def amount(k):
        return {"documents": k, "bytes": 811 * k, "tokens": 219 * k}
    part = {"seen": amount(docs), "found": amount(sum(reasons.values())), "reasons": {r: amount(k) for r, k in reasons.items()}}
    for key, counts in [("details", details), ("hosts", hosts), ("notes", notes)]:
        if counts:
            part[key] = {r: amount(k) for r, k in counts.items()}
    return part


def filters_of(entries):
    consent, bench = {}, {}
    for e in entries:
        n = e["documents"]
        consent[e["language"]] = found(n, {"domain": n // 90, "robots": n // 40}, {"robots-file": n // 2, "no-robots-file": n - n // 2},
            {"GPTBot": n // 45, "ClaudeBot": n // 60, "CCBot": n // 70, "Google-Extended": n // 200}, {"www.ntrex.org": n // 80, "exams.org": n // 90})
        bench[e["language"]] = found(n, {"contaminated": n // 300}, details={"mmlu": n // 500, "belebele": n // 600, "arc": n // 900})
    def total(parts):
        out = {}
        def add(a, b):
            for k, v in b.items():
                if isinstance(v, dict): add(a.setdefault(k, {}), v)
                else: a[k] = a.get(k, 0) + v
        for p in parts.values(): add(out, p)
        return out
    leaks = {"tasks": [{"task": t, "items": 14042, "not_covered": 311, "items_hit": 17, "ngrams": 410220, "leaked_ngrams": 96, "leaked_percent": 100 * 96 / 410220} for t in ("mmlu", "belebele", "arc")],
             "ngrams": [["how many projects show that each commit is authorized you or your lawyers", 12], ["which of the following is not a property of the normal distribution with", 7]]}
    return {"consent": {"settings": {"kind": "robots", "when": "before", "action": "remove", "as_of": "2025-01", "matching": "rfc9309"}, "total": total(consent), "languages": consent},
            "benchmarks": {"settings": {"kind": "decontamination", "when": "after", "action": "remove", "rule": "any", "index": "benchmarks.idx"}, "total": total(bench), "languages": bench, "leaks": leaks}}


def pii_of(entries):
    return {"languages": {e["language"]: {"email": {"documents": 17, "occurrences": 31, "placeholders": 2}, "ip": {"documents": 3, "occurrences": 3, "placeholders": 0}} for e in entries}}


REMOVE, KEEP = {"head": "toxicity", "kind": "removal", "rate": 0.05}, {"head": "quality", "kind": "retention", "rate": [0.1, 0.33]}
HEADS = ["toxicity", "quality"]


def six(weight="documents", plan=(REMOVE, KEEP), title="runs/six-10", limit=9000):
    made = []
    for i, code in enumerate(NAMES):
        docs = rows(code, limit)
        rng = np.random.default_rng(i)
        docs = [docs[k] for k in rng.permutation(len(docs))]
        # German has documents without score and NaN, so that nothing of it follows from rates alone.
        made.append(language(code, docs, made_scores(docs, i, *((0.01, 0.005) if code == "deu_Latn" else ())), list(plan), weight))
    entries = [e for e, _ in made]
    compare = {"with": "fineweb2-hq-ids.parquet", "languages": [{"language": e["language"], "here": 900, "there": 870, "both": 512} for e in entries], "unknown": {"documents": 12, "ids": ["a-1", "<b>"]}}
    return report(title, entries, HEADS, weight, filters=filters_of(entries), pii=pii_of(entries), compare=compare), dict(zip([e["language"] for e in entries], [t for _, t in made]))


def own_rules():
    """Languages with rules of their own: a fixed threshold, a budget, a rate of its own, no head, no threshold."""
    plans = {"deu_Latn": [REMOVE, KEEP], "eng_Latn": [{"head": "quality", "kind": "threshold", "at": 0.5, "bound": "above"}], "fra_Latn": [REMOVE, {"head": "quality", "kind": "budget", "budget": 700}],
             "arb_Arab": [{"head": "quality", "kind": "retention", "rate": [0.65]}], "fas_Arab": [], "cmn_Hani": [REMOVE, {"head": "quality", "kind": "threshold", "at": 0.7, "bound": "above"}]}
    made = []
    for i, (code, plan) in enumerate(plans.items()):
        docs = rows(code, 3000)
        made.append(language(code, docs, made_scores(docs, i), plan, sample=800))
    return report("runs/own-rules", [e for e, _ in made], HEADS), {e["language"]: t for e, t in made}


def one():
    docs = rows("swe_Latn", 3000)
    heads = {"quality": made_scores(docs, 3)["quality"]}
    entry, truth = language("swe_Latn", docs, heads, [{"head": "quality", "kind": "retention", "rate": [0.1]}], urls=False, name="Swedish", sample=1000)
    return report("runs/one", [entry], ["quality"]), {"swe_Latn": truth}


def language_examples(docs, heads, entry):
    """One document, the best of the last head: there is no room for more in a page of 2,000 languages."""
    d = int(heads["quality"].order[0])
    size = len(docs[d]["text"].encode())
    verdict = "quality=0.1" if "toxicity" not in heads or heads["toxicity"].ranks[d] < heads["toxicity"].n - int(ceil_of(0.05, heads["toxicity"].n)) else "removed: toxicity"
    return [{"id": docs[d]["id"], "url": docs[d]["url"], "domain": docs[d]["domain"], "bytes": size, "tokens": max(1, int(size / 3.7)),
             "scores": {"quality": shown(heads["quality"].scores[d], 3)}, "ranks": {h: int(head.ranks[d]) for h, head in heads.items()}, "sample": None,
             "shown_for": {"quality": ["top"]}, "verdict": verdict, "text": docs[d]["text"]}]


def many(k=2000):
    pool = [d for code in ("deu_Latn", "arb_Arab", "cmn_Hani", "rus_Cyrl", "vie_Latn") for d in rows(code, 1500)]
    rng = np.random.default_rng(5)
    entries, truth = [], {}
    letters = "abcdefghijklmnopqrstuvwxyz"
    for i in range(k):
        code = letters[i // 676 % 26] + letters[i // 26 % 26] + letters[i % 26] + "_" + ["Latn", "Arab", "Cyrl", "Hani"][i % 4]
        docs = [pool[j] for j in rng.choice(len(pool), int(rng.integers(60, 200)), replace=False)]
        heads = made_scores(docs, i)
        lone = i % 4 > 0  # three of four languages have one head only
        if lone:
            del heads["toxicity"]
        plan = [REMOVE, {**KEEP, "rate": [0.1]}][int(lone) :]
        e, t = language(code, docs, heads, plan, sample=20, bins=12, points=6, most=(0, 0, 0), chars=50, name=f"Language {i}")
        docs_shown = [{**x, "text": x["text"][:50]} for x in language_examples(docs, heads, e)]
        e["examples"] = docs_shown
        for part in e["scores"].values():
            part["quantiles"] = {p: part["quantiles"][p] for p in ("5", "50", "95")}
        e["length"] = {g: {"documents": v["documents"], "tokens": v["tokens"]} for g, v in e["length"].items()}
        e["domains"] = e["domains"][:1]
        del e["sample"]["domains"], e["sample"]["domain_names"]
        entries.append(e)
        if i % 100 == 0: truth[code] = t
    made = report("runs/many", entries, HEADS)
    made["agreement"] = made["agreement"][:50]
    return made, truth


def nothing():
    docs = rows("ita_Latn", 500)
    all_nan = {"quality": Head(np.full(len(docs), np.nan))}
    entries = [language("ita_Latn", docs, all_nan, [{"head": "quality", "kind": "retention", "rate": [0.1]}], name="Italian")[0],
               language("por_Latn", [], {"quality": Head(np.zeros(0))}, [{"head": "quality", "kind": "retention", "rate": [0.1]}], name="Portuguese")[0],
               language("spa_Latn", rows("spa_Latn", 50), {}, [], name="Spanish", urls=False)[0]]
    return report("runs/nothing", entries, ["quality"]), {}


def unencoded():
    entry = language("ita_Latn", rows("ita_Latn", 500), {}, [], name="Italian", urls=False)[0]
    for part in [entry, *entry["examples"]]: part["tokens"] = None
    entry["sample"]["tokens"] = None
    entry["length"]["all"]["tokens"] = {"mean": None, "std": None, "median": None}
    made = report("runs/filtered", [entry], [], encoder="none")
    made["filters"] = {"requests": {"settings": {"kind": "ids", "when": "before"}, "total": {"seen": {"documents": 500, "bytes": 9}, "found": {"documents": 0, "bytes": 0}, "reasons": {}}, "languages": {}}}
    return made, {}


BAD = ["<img src=x onerror=\"window.pwned=1\">", "</script><script>window.pwned=1</script>", "<!--<script>", "javascript:window.pwned=1", "@@JS@@ @@DATA@@ $& $1 \\1", "\u202eevil\u202c\u0000\u2028\u2029", "'\"`&amp;<b>x</b>", "a" * 400, "\ud7ff\U0001f4a9\u0301" * 40]


def hostile():
    docs = []
    for i in range(300):
        bad = BAD[i % len(BAD)]
        docs.append({"id": f"{bad}#{i}", "text": f"{i} {bad} " * (1 + i % 5), "domain": bad[:60], "url": ["javascript:window.pwned=1", "data:text/html,<script>window.pwned=1</script>", f"https://example.org/{bad[:40]}", bad, "vbscript:x", "http://[bad"][i % 6]})
    entries = []
    for code, name in [("eng_Latn", BAD[0]), ("deu_Latn", BAD[1])]:
        entries.append(language(code, docs, made_scores(docs, 1), [REMOVE, KEEP], name=name)[0])
    entries[0]["language"] = "x<b>\"'_Latn"
    made = report(BAD[1] + BAD[0], entries, HEADS, filters={BAD[0]: filters_of(entries)["consent"]}, encoder=BAD[0])
    made["filters"][BAD[0]]["total"]["details"][BAD[1]] = {"documents": 3, "bytes": 4}
    made["filters"][BAD[0]]["settings"]["as_of"] = BAD[1]
    made["compare"] = {"with": BAD[1], "languages": [], "unknown": {"documents": 1, "ids": [BAD[0]]}}
    made["notes"] = [BAD[1]]
    return made, {}


def page(made):
    """What the program does: the template's placeholders become files' contents, all in one pass."""
    text = json.dumps(made, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    read = lambda path: (PAGE / path).read_text("utf-8")
    parts = {"@@DATA@@": text, "@@PLOT@@": read("vendor/plot.umd.min.js"), "@@D3@@": read("vendor/d3.min.js"), "@@CSS@@": read("report.css"), "@@JS@@": read("report.js"), "@@PARTS@@": read("vendor/LICENSE-parts")}
    out, rest = [], read("index.html")
    while True:
        at = min(((rest.find(p), p) for p in parts if p in rest), default=None)
        if at is None:
            return "".join(out) + rest
        out += [rest[: at[0]], parts[at[1]]]
        rest = rest[at[0] + len(at[1]) :]


MAKERS = {"six": six, "tokens": lambda: six("tokens", title="runs/six-tokens", limit=3000), "own": own_rules, "one": one, "many": many,
          "nothing": nothing, "unencoded": unencoded, "hostile": hostile}


def main(out, names):
    out.mkdir(parents=True, exist_ok=True)
    for name in names or MAKERS:
        if name == "pages":
            for path in sorted(out.glob("*.json")):
                path.with_suffix(".html").write_text(page(json.loads(path.read_text("utf-8"))), "utf-8")
            continue
        made, truth = MAKERS[name]()
        path = out / f"{name}.json"
        path.write_text(json.dumps(made, ensure_ascii=False, separators=(",", ":"), allow_nan=False), "utf-8")
        np.savez_compressed(out / f"{name}.truth.npz", **{f"{code}/{key}": v for code, t in truth.items() for key, v in t.items()})
        path.with_suffix(".html").write_text(page(made), "utf-8")
        print(name, len(made["languages"]), "languages", path.stat().st_size, "bytes of data,", path.with_suffix(".html").stat().st_size, "of page", flush=True)


if __name__ == "__main__":
    DATA = Path(sys.argv[1])
    main(Path(sys.argv[2]), sys.argv[3:])
