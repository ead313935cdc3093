"""Reading the labelled multilingual text and the one hold-out rule that all scripts share.

A data directory holds files named ``SET.LANG.jsonl.zst``, one JSON object a line with at least
``id``, ``text``, ``language`` and, for some sets, ``label``. Every row belongs to a *group*:
translations of one text, or rows that share a source page, carry the same group key. A group is
either training text of the encoder or held out for the sample corpus and the evaluation, never
both; which of the two follows from a hash of the key alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa


@dataclass(frozen=True)
class SetInfo:
    """What a text set is, and how much of it is held out from the encoder's training."""

    role: str
    licence: str
    origin: str
    held_out: float
    about: str


SETS: dict[str, SetInfo] = {
    "ewt": SetInfo("web", "CC-BY-SA-4.0", "UniversalDependencies/UD_English-EWT", 0.60,
                   "English web documents: answers, reviews, newsgroups, e-mail, weblogs"),
    "frecore": SetInfo("web", "CC-BY-4.0", "TurkuNLP/Multilingual-register-corpora", 0.55,
                       "crawled French pages"),
    "simchicore": SetInfo("web", "CC-BY-4.0", "TurkuNLP/SimChiCORE", 0.80,
                          "crawled Chinese pages"),
    "swecore": SetInfo("web", "CC-BY-4.0", "TurkuNLP/Multilingual-register-corpora", 0.40,
                       "crawled Swedish pages"),
    "opensource-guide": SetInfo("web-docs", "CC-BY-4.0", "github/opensource.guide", 0.70,
                                "long web articles on open-source work"),
    "privacyguides": SetInfo("web-docs", "CC-BY-SA-4.0", "privacyguides/i18n", 0.60,
                             "web site prose on privacy tools"),
    "ntrex": SetInfo("news", "CC-BY-SA-4.0", "MicrosoftTranslator/NTREX", 0.70,
                     "professionally translated news"),
    "indonlu-comments": SetInfo("web-comments", "Apache-2.0", "IndoNLP/indonlu", 0.20,
                                "Indonesian comments and hotel reviews"),
    "cmrc2018": SetInfo("knowledge", "CC-BY-SA-4.0", "ymcui/cmrc2018", 0.50,
                        "Wikipedia paragraphs with questions and answers"),
    "cncf-glossary": SetInfo("knowledge", "CC-BY-4.0", "cncf/glossary", 0.60,
                             "human-translated definitions"),
    "exams": SetInfo("knowledge", "CC-BY-SA-4.0", "mhardalov/exams-qa", 0.45,
                     "school exam questions with choices and answer"),
    "exams-para": SetInfo("knowledge", "CC-BY-SA-4.0", "mhardalov/exams-qa", 0.45,
                          "exam questions with retrieved Wikipedia passages"),
    "facqa": SetInfo("knowledge", "Apache-2.0", "IndoNLP/indonlu", 0.30,
                     "question and news passage"),
    "gaokao": SetInfo("knowledge", "Apache-2.0", "OpenLMLab/GAOKAO-Bench", 0.35,
                      "exam question, answer and analysis"),
    "jcommonsenseqa": SetInfo("knowledge", "CC-BY-SA-4.0", "yahoojapan/JGLUE", 0.20,
                              "very short multiple choice"),
    "security101": SetInfo("knowledge", "CC0-1.0", "microsoft/Security-101", 0.75,
                           "lesson pages, machine-translated"),
    "xquad": SetInfo("knowledge", "CC-BY-SA-4.0", "google-deepmind/xquad", 0.75,
                     "Wikipedia paragraphs with questions and answers"),
    "sib200": SetInfo("sentences", "CC-BY-SA-4.0", "dadelani/sib-200", 0.40,
                      "FLORES-200 sentences with a topic"),
    "cold": SetInfo("toxicity", "Apache-2.0", "thu-coai/COLDataset", 0.10,
                    "Zhihu and Weibo comments"),
    "davidson": SetInfo("toxicity", "MIT", "t-davidson/hate-speech-and-offensive-language", 0.20,
                        "tweets"),
    "germeval2018": SetInfo("toxicity", "CC-BY-4.0", "uds-lsv/GermEval-2018-Data", 0.25,
                            "tweets"),
    "mhc": SetInfo("toxicity", "CC-BY-4.0", "rewire-online/multilingual-hatecheck", 0.50,
                   "functional hate-speech tests, templated"),
    "mlma": SetInfo("toxicity", "MIT", "HKUST-KnowComp/MLMA_hate_speech", 0.40, "tweets"),
    "swsr": SetInfo("toxicity", "MIT", "aggiejiang/SWSR", 0.20, "Weibo comments"),
    "told-br": SetInfo("toxicity", "CC-BY-SA-4.0", "JAugusto97/ToLD-Br", 0.10, "tweets"),
}

WEB_ROLES = ("web", "web-docs", "news", "web-comments")
TRANSLATION_NOTICE = "Co-op Translator"
LOCALISED_DIRS = ("content/", "translations/", "i18n/", "_articles/")


@dataclass(frozen=True)
class Row:
    """One document with its set and its leakage group."""

    set_name: str
    language: str
    id: str
    text: str
    label: object
    group: str

    @property
    def source(self) -> str:
        """``SET.LANG``, the provenance that every derived file carries."""
        return f"{self.set_name}.{self.language}"


def unit_hash(key: str, salt: str = "") -> float:
    """A reproducible number in [0, 1) for a key; different salts give independent draws."""
    digest = hashlib.blake2b(f"{salt}\x1f{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64


def _page_key(path: str) -> str:
    """The language-independent name of a translated page."""
    parts = PurePosixPath(path).parts
    if path.startswith(LOCALISED_DIRS) and len(parts) > 2:
        parts = parts[2:]
    return "/".join(parts).removeprefix("_articles/").lower()


def group_key(set_name: str, row_id: str, position: int) -> str:
    """The key shared by rows that must stay on one side of every split."""
    if set_name in ("cncf-glossary", "security101", "privacyguides", "opensource-guide"):
        return f"{set_name}:{_page_key(row_id)}"
    if set_name in ("exams", "exams-para"):
        return f"exams:{row_id.split('-', 1)[1]}"
    if set_name == "xquad":  # five consecutive paragraphs come from one article
        return f"xquad:{position // 5}"
    if set_name == "sib200":  # neighbouring sentence numbers come from one article
        return f"sib200:{int(row_id.split('-')[1]) // 5}"
    if set_name == "gaokao":  # questions of one paper share passages
        return f"gaokao:{row_id.rsplit('-', 1)[0]}"
    if set_name == "mhc":  # neighbouring cases fill one template with different targets
        return f"mhc:{row_id.split('-')[1]}:{int(re.sub(r'.*-', '', row_id)) // 28}"
    return f"{set_name}:{row_id}"


def held_out(set_name: str, group: str) -> bool:
    """Whether a group is kept away from the encoder's training text."""
    return unit_hash(group, "held-out") < SETS[set_name].held_out


def read_jsonl_zst(path: Path) -> list[dict]:
    """All objects of a zstd-compressed JSON-lines file."""
    with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
        content = stream.read().decode("utf-8")
    return [json.loads(line) for line in content.split("\n") if line]


def without_notice(text: str) -> str:
    """The text less the lines that only say by what tool a page was translated."""
    if TRANSLATION_NOTICE not in text:
        return text
    return "\n".join(line for line in text.split("\n") if TRANSLATION_NOTICE not in line)


def read_set(path: Path) -> list[Row]:
    """The rows of one ``SET.LANG.jsonl.zst``; texts that are blank are left out."""
    set_name, language = path.name.removesuffix(".jsonl.zst").rsplit(".", 1)
    rows = []
    for position, item in enumerate(read_jsonl_zst(path)):
        text = without_notice(item["text"])
        if text.strip():
            group = group_key(set_name, item["id"], position)
            rows.append(Row(set_name, language, item["id"], text, item.get("label"), group))
    return rows


def read_all(data_dir: Path) -> list[Row]:
    """Every row of every known set, in file-name order."""
    rows: list[Row] = []
    for path in sorted(data_dir.glob("*.jsonl.zst")):
        if path.name.split(".")[0] in SETS:
            rows.extend(read_set(path))
    return rows


def sections(text: str, limit: int) -> list[str]:
    """Cut a long text at line ends into pieces of at most about ``limit`` characters."""
    pieces: list[str] = []
    current = ""
    for line in text.splitlines(keepends=True):
        if current and len(current) + len(line) > limit:
            pieces.append(current.strip())
            current = ""
        current += line
    pieces.append(current.strip())
    return [piece for piece in pieces if piece]


def cut(text: str, limit: int) -> str:
    """At most ``limit`` characters, ending at a space when one is near the limit."""
    if len(text) <= limit:
        return text
    space = text.rfind(" ", int(limit * 0.85), limit)
    return text[: space if space > 0 else limit].rstrip()


def matched_pairs(positives: list[Row], negatives: list[Row], max_chars: int,
                  min_chars: int = 80, uses: int = 3) -> list[tuple[Row, Row]]:
    """Pair each positive with a negative and cut both to one common length.

    Both texts of a pair are cut to 90% of the shorter one (and ``max_chars``), so that neither
    length nor a text's ending tells the classes apart. The rest of a long negative is
    used again, at most ``uses`` times; its group stays the same.
    """
    pool = [(row, row.text, 1) for row in negatives]
    pairs = []
    for positive in positives:
        if not pool:
            break
        wanted = min(len(positive.text), max_chars)
        index = next((i for i, entry in enumerate(pool) if len(entry[1]) >= wanted), None)
        if index is None:
            index = max(range(len(pool)), key=lambda i: len(pool[i][1]))
        negative, text, use = pool.pop(index)
        length = int(0.9 * min(wanted, len(text)))
        if length < min_chars:
            continue
        window = cut(text, length)
        pairs.append((with_text(positive, cut(positive.text, length)), with_text(negative, window)))
        rest = text[len(window):].lstrip()
        if use < uses and len(rest) >= min_chars:
            pool.append((negative, rest, use + 1))
    return pairs


def with_text(row: Row, text: str) -> Row:
    """The same row with other text."""
    return Row(row.set_name, row.language, row.id, text, row.label, row.group)
