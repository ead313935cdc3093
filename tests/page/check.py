"""Checks the page in headless Chromium. Needs playwright, numpy, zstandard, Chromium, and axe.min.js for accessibility.

    python make_data.py DATA OUT && python check.py OUT --axe axe.min.js --shots SHOTS
"""

import argparse
import json
import math
import re
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

failures, passed = [], 0


def expect(is_so, what):
    global passed
    if is_so:
        passed += 1
    else:
        failures.append(what)
        print("FAILED:", what, flush=True)


def ceil_of(rate, total):
    return int(-(-Fraction(str(rate)) * int(total) // 1))


def simulate(ranks, weights, rules):
    """Who is left, by full sorts over ranks (-1: without score): semantics of docs/selection.md."""
    alive = np.ones(len(weights), bool)
    for head, kind, rate in rules:
        r = ranks[head]
        alive &= r >= 0
        order = np.argsort(np.where(r >= 0, r, 1 << 60), kind="stable")[: int((r >= 0).sum())]
        left = order[alive[order]]
        if kind == "removal":
            left = left[: len(left) - reached(weights[left[::-1]], ceil_of(rate, weights[left].sum()))]
        else:
            left = left[: reached(weights[left], ceil_of(rate, weights[r >= 0].sum()))]
        alive[:] = False
        alive[left] = True
    return alive


def reached(weights, needed):
    return 0 if needed <= 0 else min(len(weights), int(np.searchsorted(np.cumsum(weights), needed)) + 1)


class Page:
    def __init__(self, browser, out, name, fragment="", **options):
        self.data = json.loads((out / f"{name}.json").read_text("utf-8"))
        self.truth = np.load(out / f"{name}.truth.npz")
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.page = self.context.new_page()
        self.name, self.problems, self.requests = name + fragment, [], []
        self.page.on("console", lambda m: self.problems.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda e: self.problems.append(str(e)))
        self.page.on("dialog", lambda d: self.problems.append("a dialog"))
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.url = (out / f"{name}.html").resolve().as_uri()
        self.page.goto(self.url + fragment)
        self.page.wait_for_function("document.documentElement.dataset.ready")

    def close(self):
        foreign = [url for url in self.requests if url.split("#")[0] != self.url and not url.startswith("data:")]
        expect(not self.problems, f"{self.name}: no errors on the console: {self.problems[:3]}")
        expect(not foreign, f"{self.name}: no requests: {foreign[:3]}")
        expect(self.page.evaluate("window.pwned") is None, f"{self.name}: nothing of the data is run")
        self.context.close()

    def go(self, fragment):
        """Another state by the address, in the open page."""
        self.page.evaluate("f => { location.hash = f }", fragment)
        self.page.wait_for_timeout(250)

    def rows(self):
        return self.page.evaluate("""() => Object.fromEntries([...document.querySelectorAll('#explorer-table [data-quantity]')].map(td =>
            [td.dataset.language + ' ' + td.dataset.quantity, {text: td.textContent, exact: td.dataset.exact === 'true',
             value: td.dataset.value === undefined ? null : Number(td.dataset.value)}]))""")


def compare(page, rates, what):
    """Every row of the explorer against the truth (exact cells) and against the sample (estimated ones)."""
    rows, weight, data = page.rows(), page.data["weight"], page.data
    exact, estimated, far = 0, 0, []
    for lang in data["languages"]:
        code = lang["language"]
        if f"{code}/bytes" not in page.truth: continue
        full = {q: page.truth[f"{code}/{q}"] for q in ("bytes", "tokens")} | {"documents": np.ones(lang["documents"], np.int64)}
        ranks = {h: page.truth[f"{code}/ranks.{h}"] for h in lang["scores"]}
        rules = [(h, kind, rate) for h, kind, rate in rates(code) if h in ranks and rate != "off" and not (kind == "removal" and rate == 0)]
        alive = simulate(ranks, full[weight], rules)
        s = lang["sample"]
        part = {"bytes": np.array(s["bytes"]), "tokens": np.array(s["tokens"]), "documents": np.ones(len(s["bytes"]), np.int64)}
        picked = simulate({h: np.array(r) for h, r in s["ranks"].items()}, part[weight], rules)
        for q in ("documents", "bytes", "tokens"):
            cell, right = rows[f"{code} {q}"], int(full[q][alive].sum())
            if cell["exact"]:
                exact += 1
                expect(cell["value"] == right and cell["text"] == f"{right:,}", f"{page.name} {what} {code} {q}: {cell} is {right}")
            elif "interpolated" in rows[f"{code} how"]["text"]:
                expect(abs(cell["value"] - right) <= .02 * full[q].sum() + 5 or len(full[q]) < 300, f"{page.name} {what} {code} {q}: interpolated {cell}, is {right}")
            else:
                estimated += 1
                of = lang["documents"] if q == "documents" else lang[q]
                wanted = of * float(part[q][picked].sum()) / float(part[q].sum())
                expect(math.isclose(cell["value"], wanted, rel_tol=1e-9, abs_tol=1e-6), f"{page.name} {what} {code} {q}: {cell}, the sample says {wanted}")
                expect(not s["is_all"], f"{page.name} {what} {code}: a whole sample is exact")
                error = re.search(r"± ([\d,]+)", cell["text"])
                far.append(abs(wanted - right) / max(1, int(error[1].replace(",", "")) if error else 1))
            words = rows[f"{code} how"]["text"]
            expect(("sample of" in words) if not cell["exact"] and "interpolated" not in words else "exact" in words or "interpolated" in words, f"{page.name} {what} {code}: says how it is known: {words}")
    inside = f", {sum(f <= 2 for f in far)} of {len(far)} estimates within 2 standard errors of the truth" if far else ""
    print(f"  {page.name} {what}: {exact} exact cells equal the truth, {estimated} equal the sample{inside}", flush=True)


def own(code_rates):
    return lambda code: code_rates(code) if callable(code_rates) else code_rates


def check_numbers(browser, out):
    for name in ("six", "tokens"):
        page = Page(browser, out, name)
        for selection in page.data["selections"]:
            page.go(f"selection={selection}")
            rows = page.rows()
            for lang in page.data["languages"]:
                for q, value in lang["selected"][selection].items():
                    cell = rows[f"{lang['language']} {q}"]
                    expect(cell["exact"] and cell["text"] == f"{value:,}", f"{name} {selection} {lang['language']} {q}: {cell} is {value}")
            for q in ("documents", "bytes", "tokens"):
                total = sum(lang["selected"][selection][q] for lang in page.data["languages"])
                expect(rows[f"total {q}"]["text"] == f"{total:,}", f"{name}: total of {q}")
        for q, t in [(.33, .05), (.2, .05), (.2, .1), (.65, .3), (.9, .3), (.07, .001), (1, .05), (0, .05)]:
            page.go(f"quality={q}&toxicity={t}")
            compare(page, lambda code: [("toxicity", "removal", t), ("quality", "retention", q)], f"quality={q} toxicity={t}")
        for fragment, rates in [("quality=0.2&toxicity=off", [("quality", "retention", .2)]), ("quality=off&toxicity=0.123", [("toxicity", "removal", .123)]),
                                ("quality=0.1&toxicity=0", [("quality", "retention", .1)]), ("quality=off&toxicity=off", [])]:
            page.go(fragment)
            compare(page, lambda code: rates, fragment)
        page.go("quality=0.2&deu_Latn.quality=0.3&lang=deu_Latn")
        compare(page, lambda code: [("toxicity", "removal", .05), ("quality", "retention", .3 if code == "deu_Latn" else .2)], "an override")
        expect(page.page.locator("#explorer-table tbody tr:visible").count() == 1, "one language is left by the filter")
        page.close()
    page = Page(browser, out, "one")
    for q in (.05, .1, .333, .5, 1):
        page.go(f"quality={q}")
        compare(page, lambda code: [("quality", "retention", q)], f"quality={q}")
    page.close()
    page = Page(browser, out, "own")
    rows = page.rows()
    for lang in page.data["languages"]:
        want = next(iter(lang["selected"].values()), {q: lang[q] for q in ("documents", "bytes", "tokens")})
        for q, value in want.items():
            expect(rows[f"{lang['language']} {q}"]["text"] == f"{value:,}" and rows[f"{lang['language']} {q}"]["exact"], f"own {lang['language']} {q}: {rows[lang['language'] + ' ' + q]} is {value}")
    page.go("quality=0.25&toxicity=0.1")
    compare(page, lambda code: [("toxicity", "removal", .1), ("quality", "retention", .25)], "all alike")
    page.go("toxicity=off")  # a fixed threshold alone: its place on the curve is exact
    cell, lang = page.rows()["cmn_Hani documents"], "cmn_Hani"
    expect(cell["exact"] and cell["value"] == int((page.truth["cmn_Hani/scores.quality"] > .7).sum()), f"own: the fixed threshold alone: {cell}")
    page.close()


def check_narrowed(browser, out):
    """Documents of some length or domain: what the sample says of them, by thresholds of all documents."""
    page = Page(browser, out, "six")
    name = page.data["languages"][0]["sample"]["domain_names"][0]
    kept = [("toxicity", "removal", .05), ("quality", "retention", .2)]
    for fragment, least, most, domain, rules in [("least=500&most=3000", 500, 3000, "", [kept[0], ("quality", "retention", .1)]), ("most=900&quality=0.2", 0, 900, "", kept),
                                                 (f"domain={name}&quality=0.2", 0, math.inf, name, kept), (f"domain={name}&least=800&quality=off&toxicity=off", 800, math.inf, name, [])]:
        page.go(fragment)
        rows, some = page.rows(), 0
        for lang in page.data["languages"]:
            s, code = lang["sample"], lang["language"]
            part = {"bytes": np.array(s["bytes"]), "tokens": np.array(s["tokens"]), "documents": np.ones(len(s["bytes"]), np.int64)}
            seen = (part["bytes"] >= least) & (part["bytes"] <= most) & np.array([domain in s["domain_names"][d] for d in s["domains"]] if "domains" in s else [not domain] * len(s["bytes"]))
            ranks = {h: np.array(r) for h, r in s["ranks"].items()}
            picked = simulate(ranks, part["documents"], [rule for rule in rules if rule[0] in ranks]) & seen
            cells = {q: (rows[f"{code} {q}"], picked) for q in part} | {"of": (rows[f"{code} of"], seen)}
            for q, (cell, mask) in cells.items():
                if domain and "domains" not in s:
                    expect(cell["value"] is None, f"{fragment} {code} {q}: domains are not known, {cell}")
                    continue
                values = part["documents" if q == "of" else q]
                whole = lang["documents"] if q in ("documents", "of") else lang[q]
                wanted = float(values[mask].sum()) * (1 if s["is_all"] else whole / float(values.sum()))
                some += wanted > 0
                expect(math.isclose(cell["value"], wanted, rel_tol=1e-9, abs_tol=1e-6) and cell["exact"] == s["is_all"],
                       f"{fragment} {code} {q}: {cell}, the sample says {wanted}")
        expect(some > 3, f"{fragment}: some documents are of that kind")
        shown = page.page.evaluate("[...document.querySelectorAll('#documents article')].length")
        expect(shown > 0 or domain, f"{fragment}: and are among the documents to read")
    page.close()


def check_moves(browser, out):
    """What enters and leaves, against the truth."""
    page = Page(browser, out, "six", "#quality=0.2")
    page.page.wait_for_timeout(300)
    while page.page.locator("#moves button:visible").count():
        page.page.locator("#moves button:visible").first.click()
    enter = page.page.evaluate("[...document.querySelectorAll('#moves article.in')].map(a => [a.dataset.language, a.dataset.id])")
    leave = page.page.evaluate("[...document.querySelectorAll('#moves article.out')].map(a => [a.dataset.language, a.dataset.id])")
    right, wrong, wanted = 0, [], set()
    for lang in page.data["languages"]:
        code = lang["language"]
        n = lang["documents"]
        ranks = {h: page.truth[f"{code}/ranks.{h}"] for h in lang["scores"]}
        alive = simulate(ranks, np.ones(n, np.int64), [("toxicity", "removal", .05), ("quality", "retention", .2)])
        places = {int(r): i for i, r in enumerate(ranks["quality"]) if r >= 0}
        for example in lang["examples"]:
            if example["ranks"]["quality"] < 0: continue
            if alive[places[example["ranks"]["quality"]]] and example["verdict"] != "quality=0.1":
                wanted.add((code, example["id"]))
    got = {tuple(e) for e in enter}
    expect(got, "some documents enter")
    expect(len(got ^ wanted) <= .1 * len(wanted), f"documents that enter: {len(got)} of {len(wanted)}, {len(got ^ wanted)} differ")
    expect(not leave, f"none leaves when a rate grows: {leave[:3]}")
    print(f"  {len(got)} documents enter at quality=0.2; {len(got ^ wanted)} differ from the truth ({len(wanted)})")
    page.go("quality=0.05")
    page.page.wait_for_timeout(200)
    expect(page.page.locator("#moves article.out").count() > 0 and page.page.locator("#moves article.in").count() == 0, "some leave at a smaller rate")
    page.close()


def wanted_findings(lang, name, heads):
    """What stands out in a language, by rule: its main numbers."""
    found, kept = {}, lang["selected"].get(name, {}).get("documents", 0)
    median = lambda group: next((m for w in ("words", "characters", "tokens", "bytes") if (m := lang["length"].get(group, {}).get(w, {}).get("median"))), None)
    own, all_ = median(name), median("all")
    if own and all_ and max(own, all_) >= 1.5 * min(own, all_):
        found["Kept texts"] = [(max(own, all_) / min(own, all_), own, all_)]
    rows = lang.get("domains", [])
    best = sorted((d["kept"].get(name, 0) for d in rows if d["domain"] != "(others)"), reverse=True)
    of = sum(d["kept"].get(name, 0) for d in rows)
    if of >= 20 and len(rows) > 2 and 4 * sum(best[:2]) >= of:
        found["Two domains"] = [(100 * sum(best[:2]) / of,)]
    tests = [lang["scores"][h]["test"] for h in heads if h in lang["scores"]]
    found["A head was"] = [(t["num_samples"], t["roc_auc"], *t["roc_auc_interval"]) for t in tests if t["num_samples"] < 50]
    for rule in lang["thresholds"]:
        if rule["selection"] == name and "tied" in rule:
            k, d = rule["tied"]["kept"], rule["tied"]["dropped"]
            side = min(rule["kept"]["documents"], rule["candidates"]["documents"] - rule["kept"]["documents"])
            if 20 * (k + d) >= side:
                found.setdefault("A cut", []).append((k, k + d))
    for s in (lang["scores"][h] for h in heads if h in lang["scores"]):
        missing = s["nan"] + s["unscored"]
        if missing and 20 * missing >= s["n"] + missing:
            found.setdefault("A head has", []).append((100 * missing / (s["n"] + missing), missing))
    if lang["documents"] < 100:
        found["A language"] = [(lang["documents"], kept) if name in lang["selected"] else (lang["documents"],)]
    return {rule: numbers for rule, numbers in found.items() if numbers}


def numbers_of(text):
    return [float(n.replace(",", "")) for n in re.findall(r"(?<![\w=.])\d[\d,]*(?:\.\d+)?(?![\w=]|\.\d)", text)]


def check_overview(browser, out):
    """The title, the table of languages and the findings, recomputed from the data."""
    total, ruled = 0, set()
    for name in ("six", "tokens", "own", "one", "nothing", "many", "unencoded"):
        page = Page(browser, out, name)
        p, data = page.page, page.data
        title = p.locator("h1").text_content()
        ends = {sum(l["selected"].get([s for s in data["selections"] if s in l["selected"]][end], {}).get("documents", 0) for l in data["languages"] if l["selected"]) for end in (0, -1)}
        expect(title.endswith(", 14 November 2023") and f"{data['title']}: " in title and all(f"{n:,}" in title for n in (ends if data["selections"] else [])), f"{name}: the title says what and when: {title}, {ends}")
        facts = p.evaluate("[...document.querySelectorAll('.facts')].map(f => f.getClientRects()[0].height)")
        expect(len(facts) == 3 and (name in ("own", "many") or max(facts) < 24), f"{name}: small print in three lines: {facts}")
        rows = dict((r[0], r[1:]) for r in p.evaluate("[...document.querySelectorAll('#overview tbody tr')].map(tr => [...tr.children].map(td => td.textContent))"))
        for lang in data["languages"][:100]:
            row = rows[f"{lang['name']} ({lang['language']})" if lang["name"] != lang["language"] else lang["language"]]
            counts = [f"{lang[q]:,}" for q in ("documents", "bytes")]
            for s in data["selections"]:
                part = lang["selected"].get(s)
                counts.append(f"{part['documents']:,} (" if part else "–")
            tested = [h for h in data["heads"] if any("test" in l["scores"].get(h, {}) for l in data["languages"])]
            counts += [f"{lang['scores'][h]['test']['roc_auc']:.3f} ({lang['scores'][h]['test']['num_samples']:,})" if h in lang["scores"] else "–" for h in tested]
            expect(len(row) == len(counts) and all(cell.startswith(c) for cell, c in zip(row, counts)), f"{name} {lang['language']}: {row} is {counts}")
        for selection in data["selections"] or [None]:
            if selection: page.go(f"selection={selection}")
            while p.locator("#overview .more:visible").count() and name != "many":
                p.locator("#overview .more:visible").first.click()
            shown = p.evaluate("[...document.querySelectorAll('#overview .finding')].map(f => [f.parentNode.parentNode.previousSibling.textContent, f.firstChild.textContent, f.textContent.slice(f.firstChild.textContent.length + 2)])")
            wanted = {}
            for lang in data["languages"]:
                own = [s for s in data["selections"] if s in lang["selected"]]
                base = selection if selection in own else own[0] if own else None
                for rule, found in wanted_findings(lang, base, data["heads"]).items():
                    wanted[rule, f"{lang['name']} ({lang['language']})"] = found
            seen = {}
            for rule, label, text in shown:
                rule = next(r for r in ("Kept texts", "Two domains", "A head was", "A cut", "A head has", "A language") if rule.startswith(r))
                seen.setdefault((rule, label), []).append(numbers_of(text))
            if name == "many":  # the first of each
                wanted = {key: found for key, found in wanted.items() if key in seen}
            expect(seen.keys() == wanted.keys(), f"{name} {selection}: findings {sorted(seen.keys() ^ wanted.keys())[:4]}")
            for key, found in wanted.items():
                texts = seen.get(key, [])
                near = lambda text, numbers: all(any(math.isclose(n, t, rel_tol=.06 if i == 0 else .01) for t in text) for i, n in enumerate(numbers))
                expect(len(texts) == len(found) and all(any(near(text, numbers) for text in texts) for numbers in found), f"{name} {selection} {key}: {texts} is {found}")
                total += len(found)
                ruled.add(key[0])
        expect(p.locator("#overview").text_content().count("Nowhere so: ") <= 1, f"{name}: rules that find nothing are told once")
        page.close()
    expect(len(ruled) > 4, f"most rules find something in the data: {ruled}")
    print(f"  {total} findings by {len(ruled)} rules are those of the data")


def check_colours(browser, out):
    """A selection has one colour everywhere, and the densities are of logits."""
    page = Page(browser, out, "six")
    p = page.page
    drawn = lambda: (settle(p), p.wait_for_function("!document.querySelector('#languages .slot, #lengths .slot, #tokens .slot, #domains .slot')"))
    drawn()
    colours = {}
    for label, colour in p.evaluate("[...document.querySelectorAll('.swatch')].map(i => [i.nextSibling.textContent, getComputedStyle(i).backgroundColor])"):
        colours.setdefault(label, set()).add(colour)
    expect(colours.keys() == {*page.data["selections"], "all"} and all(len(c) == 1 for c in colours.values()) and len(set.union(*colours.values())) == 3, f"swatches: {colours}")
    bars = p.evaluate("['lengths', 'tokens'].map(id => [...new Set([...document.querySelectorAll(`#${id} svg rect[fill]`)].map(r => getComputedStyle(r).fill))].sort())")
    own = [next(iter(colours[s])) for s in page.data["selections"]]
    expect(bars[0] == sorted([*own, next(iter(colours["all"]))]) and bars[1] == sorted(own), f"bars have the colours of swatches: {bars}")
    cuts = p.evaluate("[...new Set([...document.querySelectorAll('#languages svg [stroke-dasharray] line, #languages svg line[stroke-dasharray]')].map(l => getComputedStyle(l).stroke))]")
    expect({*own} <= {*cuts} and len(cuts) <= 3, f"and so have cuts: {cuts}")
    dots = p.evaluate("[...new Set([...document.querySelectorAll('#domains svg circle')].map(c => getComputedStyle(c).fill))]")
    expect(own[0] in dots and own[1] not in dots, f"and domains: {dots}")
    axes = lambda: p.evaluate("[...document.querySelectorAll('#languages svg')].map(s => s.textContent.includes('logit'))")
    expect(axes() and all(axes()), "densities are of logits")
    page.go("scale=probability")
    drawn()
    expect(axes() and not any(axes()), "or of scores")
    page.close()


def check_sides(browser, out):
    """Documents of one language, kept and dropped side by side."""
    page = Page(browser, out, "six")
    p = page.page
    for code in ("arb_Arab", "fra_Latn"):
        p.locator("#documents select[name=Of]").select_option(code)
        while p.locator("#documents .more:visible").count():
            p.locator("#documents .more:visible").first.click()
        sides = p.evaluate("[...document.querySelectorAll('.sides > div')].map(d => [...d.querySelectorAll('article')].map(a => [a.dataset.language, a.dataset.id]))")
        examples = next(l["examples"] for l in page.data["languages"] if l["language"] == code)
        wanted = [sorted([code, e["id"]] for e in examples if e["verdict"].startswith("removed") == is_out) for is_out in (False, True)]
        expect([sorted(s) for s in sides] == wanted and all(wanted), f"{code}: kept and dropped: {[len(s) for s in sides]} of {[len(w) for w in wanted]}")
    boxes = p.evaluate("[...document.querySelectorAll('.sides > div')].map(d => (r => [r.left, r.top])(d.getBoundingClientRect()))")
    expect(boxes[0][1] == boxes[1][1] and boxes[0][0] < boxes[1][0], f"stand side by side: {boxes}")
    page.close()


def check_keyboard(browser, out):
    page = Page(browser, out, "six")
    p = page.page
    order = []
    for _ in range(60):
        p.keyboard.press("Tab")
        order.append(p.evaluate("(e => e.tagName + ' ' + (e.getAttribute('aria-label') || e.name || e.textContent).slice(0, 70))(document.activeElement)"))
        visible = p.evaluate("(e => { const s = getComputedStyle(e); return s.outlineStyle !== 'none' && s.outlineWidth !== '0px' })(document.activeElement)")
        expect(visible, f"focus is visible on {order[-1]}")
    expect(order[0].startswith("A Skip"), f"the first stop is the skip link: {order[0]}")
    expect(order[1].startswith("A Languages") and order[9].startswith("A Documents"), f"then the sections: {order[1:10]}")
    slider = next(i for i, o in enumerate(order) if "Keep the best by quality, percent (slider)" in o)
    toxic = next(i for i, o in enumerate(order) if "Remove the worst by toxicity, percent (slider)" in o)
    expect(toxic < slider, "controls come in the order of thresholds")
    element = p.locator("input[type=range][data-control=quality]")
    element.focus()
    before = page.rows()["deu_Latn documents"]["text"]
    for _ in range(5): p.keyboard.press("ArrowRight")
    p.wait_for_timeout(300)
    expect(element.input_value() == "10.5", f"five arrows move the slider by half a percent: {element.input_value()}")
    expect(p.locator("input[type=number][data-control=quality]").input_value() == "10.5", "the number follows the slider")
    expect("quality=0.105" in p.url, f"the address follows: {p.url}")
    compare(page, lambda code: [("toxicity", "removal", .05), ("quality", "retention", .105)], "by the keyboard")
    expect(page.rows()["deu_Latn documents"]["text"] != before, "and the numbers do")
    box = p.locator("input[type=number][data-control=quality]")
    box.focus(); p.keyboard.press("Control+A"); p.keyboard.type("12.34"); p.wait_for_timeout(300)
    expect("quality=0.1234" in p.url and box.input_value() == "12.34", f"a number can be typed: {p.url}")
    p.get_by_role("button", name="All as the run").focus(); p.keyboard.press("Enter"); p.wait_for_timeout(300)
    expect("#" not in p.url and page.rows()["deu_Latn documents"]["text"] == before, f"a button leads back: {p.url}")
    summary = p.locator("details.bins > summary").first
    summary.scroll_into_view_if_needed(); summary.focus(); p.keyboard.press("Enter"); p.wait_for_timeout(100)
    expect(p.locator("details.bins").first.get_attribute("open") is not None and p.locator("details.bins table").first.is_visible(), "Enter opens the numbers of a figure")
    link = p.get_by_role("link", name="Documents", exact=True)
    link.focus(); p.keyboard.press("Enter"); p.wait_for_timeout(600)
    expect(p.evaluate("document.activeElement.id") == "documents", "a section's link moves the focus there")
    language = p.locator("details.language[data-language=deu_Latn]").first
    language.locator("> summary").focus(); p.keyboard.press("Enter"); p.wait_for_timeout(100)
    inner = language.locator("input[type=range][data-control='deu_Latn.quality']")
    inner.focus(); p.keyboard.press("ArrowRight"); p.wait_for_timeout(300)
    expect("deu_Latn.quality=0.101" in p.url, f"a language has rates of its own: {p.url}")
    page.close()
    print("  tab order:", *order[:16], sep="\n    ")


AXE = "() => axe.run(document, {resultTypes: ['violations'], rules: {'color-contrast': {enabled: true}}}).then(r => r.violations.map(v => v.id + ': ' + v.nodes.length + ' ' + v.nodes[0].html.slice(0, 160) + ' ' + v.nodes[0].failureSummary.slice(0, 200)))"


def check_names(browser, out, axe, shots):
    for name in ("six", "one", "hostile", "nothing", "unencoded", "own"):
        for scheme in ("light", "dark"):
            page = Page(browser, out, name, color_scheme=scheme)
            p = page.page
            settle(p)
            unnamed = p.evaluate("""() => [...document.querySelectorAll('svg')].filter(s => s.getAttribute('role') !== 'img' || !s.getAttribute('aria-label')).length
                + [...document.querySelectorAll('figure')].filter(f => !f.querySelector('figcaption')?.textContent).length
                + [...document.querySelectorAll('table')].filter(t => !t.caption?.textContent).length""")
            expect(unnamed == 0, f"{name}: {unnamed} figures or tables without a name")
            canvases = p.locator("canvas").count()
            expect(canvases == 0, f"{name}: no canvas")
            if axe:
                p.evaluate("document.querySelectorAll('details').forEach((d, i) => { if (i < 8) d.open = true })")
                p.wait_for_timeout(200)
                p.evaluate(axe)
                violations = p.evaluate(AXE)
                expect(not violations, f"{name} {scheme}: axe: {violations}")
            if shots and (name in ("six", "hostile")):
                p.evaluate("document.querySelectorAll('details').forEach(d => { d.open = false }); scrollTo(0, 0)")
                p.wait_for_timeout(300)
                p.screenshot(path=shots / f"{name}-{scheme}.png", full_page=True)
            page.close()


def settle(p):
    """Scrolls through the page, so that all figures are drawn."""
    height = p.evaluate("document.documentElement.style.scrollBehavior = 'auto', document.body.scrollHeight")
    for y in range(0, min(height, 40000), 500):
        p.evaluate(f"scrollTo(0, {y})")
        p.wait_for_timeout(30)
    p.evaluate("scrollTo(0, 0)")
    p.wait_for_timeout(100)


def check_texts(browser, out):
    page = Page(browser, out, "six", "#lang=arb_Arab")
    p = page.page
    directions = p.evaluate("""() => [...document.querySelectorAll('#documents article .text')].map(t => [t.getAttribute('dir'), getComputedStyle(t).direction, getComputedStyle(t).textAlign, t.lang, t.textContent])""")
    share = [d for d in directions if len(re.findall(r"[\u0600-\u06ff]", d[4])) > len(d[4]) / 2]
    expect(len(share) > 5 and all(d[0] == d[1] == "rtl" for d in share), f"Arabic runs from right to left: {len(share)}")
    expect(all(d[3] == "ar-Arab" for d in directions), "texts say their language")
    page.go("lang=cmn_Hani")
    directions = p.evaluate("[...document.querySelectorAll('#documents article .text')].map(t => [getComputedStyle(t).direction, t.lang])")
    expect(directions and all(d == ["ltr", "zh-Hani"] for d in directions), f"Chinese from left to right: {directions[:1]}")
    page.go("lang=fas_Arab")
    expect(p.locator("#documents article .text[dir=rtl]").count() > 5, "Persian from right to left")
    page.go("lang=fra_Latn&domain=frecore&least=1000&most=9000&head=quality")
    shown = p.locator("#documents article").count()
    wanted = [e for l in page.data["languages"] if l["language"] == "fra_Latn" for e in l["examples"] if "frecore" in e["domain"] and 1000 <= e["bytes"] <= 9000 and "quality" in e["shown_for"]]
    expect(f"{len(wanted)} document" in p.locator("#documents [role=status]").text_content() and shown == sum(min(10, sum(e["verdict"].startswith("removed") == out for e in wanted)) for out in (False, True)) > 0, f"documents by language, head, length, domain: {shown} of {len(wanted)}")
    page.close()
    page = Page(browser, out, "hostile")
    p = page.page
    while p.locator("#documents .more:visible").count():
        p.locator("#documents .more:visible").first.click()
    settle(p)
    links = p.evaluate("[...document.querySelectorAll('a[href]')].map(a => [a.href, a.rel])")
    expect(all(re.match(r"(https?|file)://", href) for href, _ in links), f"links lead to the web only: {[l for l in links if not re.match('(https?|file)://', l[0])][:3]}")
    expect(all("noopener" in rel and "noreferrer" in rel for href, rel in links if href.startswith("http")), "links do not tell where from")
    expect(p.evaluate("document.querySelectorAll('img, iframe, object, embed, b b, main script, article script').length") == 0, "no markup comes of the data")
    texts = {e["text"] for l in page.data["languages"] for e in l["examples"]}
    seen = p.locator("#documents article .text").all_text_contents()
    expect(seen and all(t in texts for t in seen) and any("<" in t for t in seen), "hostile text is shown as it is")
    expect(p.evaluate("document.title").startswith("</script><script>"), "and so is a hostile title")
    page.close()


def check_media(browser, out, shots):
    for name in ("six", "one", "nothing", "unencoded", "hostile", "many", "own"):
        page = Page(browser, out, name, viewport={"width": 390, "height": 844}, device_scale_factor=2, is_mobile=True, has_touch=True)
        p = page.page
        if name != "many": settle(p)
        p.evaluate("document.querySelectorAll('details').forEach((d, i) => { if (i < 20) d.open = true })")
        p.wait_for_timeout(300)
        width = p.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        expect(width[0] <= 390 and width[1] <= 390, f"{name}: a phone does not scroll sideways: {width}")
        if shots and name in ("six", "hostile"):
            p.evaluate("document.querySelectorAll('details').forEach(d => { d.open = false }); scrollTo(0, 0)")
            p.screenshot(path=shots / f"{name}-phone.png")
            for section in ("overview", "explorer", "languages", "lengths", "domains", "documents"):
                p.evaluate(f"document.getElementById('{section}').scrollIntoView()")
                p.wait_for_timeout(300)
                p.screenshot(path=shots / f"{name}-phone-{section}.png")
        page.close()
    if shots:
        page = Page(browser, out, "six", "#quality=0.2&toxicity=0.1&scale=probability")
        page.page.wait_for_timeout(600)
        page.page.screenshot(path=shots / "six-changed.png", full_page=True, clip={"x": 0, "y": 250, "width": 1280, "height": 1900})
        page.close()
    page = Page(browser, out, "six")
    p = page.page
    opened = p.locator("main details[open]").count()
    p.emulate_media(media="print")
    p.wait_for_timeout(1500)
    closed = p.locator("main details:not([open]):not(.bins)").count()
    empty = p.locator("main .lazy.slot").count()
    expect(closed == 0 and empty == 0, f"print shows all: {closed} closed, {empty} not drawn")
    expect(p.evaluate("getComputedStyle(document.getElementById('nav')).display") == "none", "print has no navigation")
    if shots:
        p.pdf(path=shots / "six.pdf", format="A4", prefer_css_page_size=True)
    p.emulate_media(media="screen")
    p.wait_for_timeout(300)
    expect(p.locator("main details[open]").count() == opened, "after print all are closed again")
    page.close()


def check_many(browser, out, shots):
    size = (out / "many.html").stat().st_size
    expect(size < 5_000_000, f"the page of 2,000 languages has {size} bytes")
    began = time.time()
    page = Page(browser, out, "many")
    p = page.page
    wall, ready = time.time() - began, p.evaluate("Number(document.documentElement.dataset.ready)")
    expect(ready < 3000, f"the page of 2,000 languages is ready after {ready} ms")
    expect(p.locator("#explorer-table tbody tr").count() == 2000, "2,000 rows")
    took = p.evaluate("""() => new Promise(done => { const s = document.querySelector('input[type=range][data-control=quality]'); s.value = 20; const t = performance.now();
        s.dispatchEvent(new Event('input')); requestAnimationFrame(() => setTimeout(() => done(performance.now() - t))); })""")
    expect(took < 1500, f"a move of a rate takes {took:.0f} ms")
    p.wait_for_timeout(500)
    compare(page, lambda code: [("toxicity", "removal", .05), ("quality", "retention", .2)], "quality=0.2")
    page.go("lang=aaf_Arab")
    expect(p.locator("#explorer-table tbody tr:visible").count() == 1, "one of 2,000 is found by its code")
    p.evaluate("document.getElementById('languages').scrollIntoView()")
    p.wait_for_timeout(600)
    expect(p.locator("#languages details.language[open] svg").count() == 1, "its figure is drawn")
    if shots: p.screenshot(path=shots / "many-language.png")
    page.go("lang=")
    settle(p)
    expect(p.locator("#languages details.language").count() == 100 and "1,900 left" in p.locator("#languages .more:visible").last.text_content(), "the first languages can be opened, and there are more")
    expect(p.locator("#explorer-table tbody tr:visible").count() == 100, "the first rows are laid out")
    p.get_by_role("button", name="Show all 2,000 languages").click()
    expect(p.locator("#explorer-table tbody tr:visible").count() == 2000, "and all when asked for")
    print(f"  2,000 languages: {size} bytes, ready after {ready} ms ({wall:.1f} s with the start), a move takes {took:.0f} ms")
    page.close()


def check_address(browser, out):
    """The state in the address, without a touch (what `chromium --dump-dom 'file.html#quality=0.2'` prints)."""
    page = Page(browser, out, "six", "#quality=0.2&toxicity=0.05&deu_Latn.quality=0.3")
    compare(page, lambda code: [("toxicity", "removal", .05), ("quality", "retention", .3 if code == "deu_Latn" else .2)], "at once")
    page.close()
    for bad in ("#quality=2&toxicity=x&nope=1&deu_Latn.nope=.1&%E0%A4%A&selection=<img>", "#__proto__=1&constructor=0.1"):
        page = Page(browser, out, "six", bad)
        expect(page.rows()["deu_Latn documents"]["exact"], "what is no state is left aside")
        page.close()


def check_dump(chromium, out):
    """The command line's own way to a state."""
    url = (out / "six.html").resolve().as_uri() + "#quality=0.2&toxicity=0.05"
    dump = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=20000", url], capture_output=True, text=True, timeout=60).stdout
    cells = dict(re.findall(r'<td[^>]*data-language="([^"]+)" data-quantity="documents" data-exact="true"[^>]*>([\d,]+)<', dump))
    data = json.loads((out / "six.json").read_text("utf-8"))
    wanted = {l["language"]: f"{ceil_of(0.2, l['documents']):,}" for l in data["languages"] if l["language"] != "deu_Latn"}
    expect({c: n for c, n in cells.items() if c in wanted} == wanted, f"--dump-dom has the numbers of the state: {cells} {wanted}")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--axe", type=Path)
    arguments.add_argument("--shots", type=Path)
    arguments.add_argument("--chromium", default="/usr/bin/chromium")
    arguments.add_argument("--only", nargs="*")
    args = arguments.parse_args()
    if args.shots: args.shots.mkdir(exist_ok=True)
    axe = args.axe.read_text("utf-8") if args.axe else None
    checks = {"numbers": lambda b: check_numbers(b, args.out), "narrowed": lambda b: check_narrowed(b, args.out), "moves": lambda b: check_moves(b, args.out), "address": lambda b: (check_address(b, args.out), check_dump(args.chromium, args.out)),
              "overview": lambda b: check_overview(b, args.out), "colours": lambda b: check_colours(b, args.out), "sides": lambda b: check_sides(b, args.out),
              "keyboard": lambda b: check_keyboard(b, args.out), "texts": lambda b: check_texts(b, args.out), "names": lambda b: check_names(b, args.out, axe, args.shots),
              "media": lambda b: check_media(b, args.out, args.shots), "many": lambda b: check_many(b, args.out, args.shots)}
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=args.chromium, args=["--no-sandbox"])
        for name, check in checks.items():
            if args.only and name not in args.only: continue
            print(name, flush=True)
            try:
                check(browser)
            except Exception as error:  # the other checks are still of use
                expect(False, f"{name}: {type(error).__name__}: {error}")
    print(f"{passed} passed, {len(failures)} failed")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
