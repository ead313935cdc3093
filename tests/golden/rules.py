"""Words, sentences, runs of base64, hosts and public suffixes by other software.

    python tests/golden/rules.py FOLDER_OF_TEXTS tests/golden/rules

Versions used: uniseg 0.10.1, tldextract 5.4.0, regex 2026.11.15, zstandard 0.25, Python's own unicodedata and base64.
FOLDER_OF_TEXTS holds `NAME.LANG.jsonl.zst` with `text`. tldextract uses the list that it comes with.
"""

import base64
import glob
import io
import json
import random
import re
import sys
import unicodedata
from pathlib import Path

import regex
import tldextract
import zstandard
from uniseg.sentencebreak import sentences
from uniseg.wordbreak import words

SETS = [
    "ewt.eng_Latn", "frecore.fra_Latn", "swecore.swe_Latn", "simchicore.cmn_Hani", "ntrex.arb_Arab",
    "ntrex.ell_Grek", "ntrex.jpn_Jpan", "ntrex.rus_Cyrl", "ntrex.deu_Latn", "ntrex.vie_Latn",
    "ntrex.fas_Arab", "ntrex.tur_Latn", "privacyguides.fra_Latn",
]
TEXTS_EACH = 3
MAX_CHARACTERS = 700
APOSTROPHES = dict.fromkeys("‘’ʼ", "'")
HYPHENS = dict.fromkeys("‐‑‒–—―−", "-")
# Scripts of which a character is a unit.
SINGLE = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー々]")
KATAKANA = regex.compile(r"[\p{Katakana}ー]+")


def fold(text):
    """NFKC without case and unseen characters, white space as one space."""
    text = regex.sub(r"\p{Default_Ignorable_Code_Point}", "", text)
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(text.translate(str.maketrans(APOSTROPHES | HYPHENS)).split())


def texts(folder):
    for name in SETS:
        path = next(iter(glob.glob(f"{folder}/{name}.jsonl.zst")))
        with open(path, "rb") as file:
            lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
            taken = 0
            for line in lines:
                text = json.loads(line)["text"]
                if len(text) > 200:
                    yield name, text[:MAX_CHARACTERS]
                    taken += 1
                    if taken == TEXTS_EACH:
                        break


def units(text):
    """The words of a text that is folded, and single characters, with their places."""
    found, at = [], 0
    for word in words(text):
        if KATAKANA.fullmatch(word):
            found += [(at + i, at + i + 1) for i in range(len(word))]
        elif any(c.isalnum() for c in word):
            found.append((at, at + len(word)))
        at += len(word)
    return found


def word_share(entries, text):
    """Hits, words: by looking for every entry at every place."""
    text = fold(text)
    places = units(text)
    insides = {i for start, end in places for i in range(start + 1, end)}
    # A word in Katakana counts by its characters, but no entry ends within it.
    for run in KATAKANA.finditer(text):
        insides |= set(range(run.start() + 1, run.end()))
    covered = set()
    for entry in map(fold, entries):
        at = text.find(entry)
        while at >= 0:
            end = at + len(entry)
            if at not in insides and end not in insides:
                covered |= set(range(at, end))
            at = text.find(entry, at + 1)
    return sum(start in covered for start, _ in places), len(places)


def word_cases(folder, rng):
    for name, text in texts(folder):
        folded = fold(text)
        places = units(folded)
        entries = set()
        for _ in range(6):
            first = rng.randrange(len(places))
            last = min(first + rng.randrange(3), len(places) - 1)
            entries.add(folded[places[first][0] : places[last][1]])
        # Parts of words, which are not found by themselves.
        start, end = rng.choice(places)
        entries.add(folded[start : max(start + 1, end - 1)])
        entries = sorted(entry.upper() if rng.random() < 0.3 else entry for entry in entries)
        entries = [entry for entry in entries if not entry.startswith("#")]
        yield {"set": name, "text": text, "entries": entries, "share": word_share(entries, text)}


def sentence_cases(folder, rng):
    for name, text in texts(folder):
        found = list(sentences(text[:330]))
        # Some of them again, with other case and white space.
        again = rng.sample(found, min(2, len(found)))
        written = [s.upper().replace(" ", "  ") if rng.random() < 0.3 else s for s in again]
        text = "\n".join([text[:330], *written, found[0]])
        seen, counted, repeated, left = set(), 0, 0, []
        for sentence in sentences(text):
            plain = " ".join(sentence.split())
            key = fold(sentence)
            is_repeated = len(plain) > 30 and key in seen
            counted += len(plain) > 30
            repeated += is_repeated
            if len(plain) > 30:
                seen.add(key)
            if not is_repeated:
                left.append(sentence)
        yield {
            "set": name, "text": text, "ends": [len(s.encode()) for s in sentences(text)],
            "sentences": counted, "repeated": repeated, "left": "".join(left),
        }


def base64_cases(rng):
    """Texts with what encoders write, and what they do not; of each the data that is found, decoded."""
    prose = "The quick brown fox, 3 of 7; see https://example.com/a/b?c=d. "
    for size in [74, 75, 76, 77, 90, 120, 300]:
        data = rng.randbytes(size)
        standard, url_safe = base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()
        wrapped = base64.encodebytes(data).decode()
        pem = "\n".join(re.findall(".{1,64}", standard))
        for kind, written, is_found in [
            ("standard", standard, True), ("url", url_safe, True), ("bare", url_safe.rstrip("="), True),
            ("mime", wrapped, True), ("crlf", wrapped.replace("\n", "\r\n"), True),
            ("pem", f"-----BEGIN KEY-----\n{pem}\n-----END KEY-----\n", True),
            ("uri", f'<img src="data:image/png;base64,{standard}">', True),
            ("quoted", f'{{"url": "https://a.example/x.png", "data": "{standard}"}}', True),
            ("hex", data.hex(), False), ("link", f"https://a.example/{url_safe}", False),
            ("base32", base64.b32encode(data).decode(), False), ("base85", None, False),
        ]:
            if kind == "base85":
                written = re.sub(r"[+/=_-]", " ", base64.b85encode(data).decode())
                # A chance run of a hundred would be one.
                assert not re.search("[A-Za-z0-9]{100}", written)
            letters = len(re.sub("[^A-Za-z0-9+/_-]", "", standard))
            is_found = is_found and letters >= 100
            text = f"{prose}\n{written}\n{prose}"
            yield {"kind": kind, "size": size, "text": text, "data": [data.hex()] if is_found else []}


def host_cases():
    """The public suffix of hosts, without those of companies."""
    extract = tldextract.TLDExtract(suffix_list_urls=(), include_psl_private_domains=False)
    hosts = """www.gov.uk x.gouv.fr y.go.jp irs.gov irs.gov.example.com gov gov.uk example.com
    alice.github.io www.navy.mil a.b.govt.nz who.int data.gouv.ci nasa.gov.evil.com go.jp.example.org
    canada.gc.ca x.admin.ch minhap.gob.es www.gob.mx korea.go.kr notgov.uk xgov gov.cn beijing.gov.cn
    a.gov.au nsw.gov.au gouv.fr.example.fr s3.amazonaws.com foo.blogspot.com example.gov.br sp.gov.br
    city.kawasaki.jp www.ck foo.ck x.kobe.jp localhost example.invalidtld""".split()
    for host in hosts:
        yield host, extract(host).suffix


def main():
    folder, out = sys.argv[1], Path(sys.argv[2])
    rng = random.Random(20260923)
    out.mkdir(parents=True, exist_ok=True)
    for name, cases in [
        ("words", list(word_cases(folder, rng))),
        ("sentences", list(sentence_cases(folder, rng))),
        ("base64", list(base64_cases(rng))),
        ("hosts", list(host_cases())),
    ]:
        written = "[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n"
        (out / f"{name}.json").write_text(written)
        print(name, len(cases), len(written.encode()))


main()
