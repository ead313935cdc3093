"""Small sources in the formats in which they are published, and what the published scripts make of
them, written again with pandas, pyarrow and ftfy.

    python dataset.py DATA_DIR

DATA_DIR holds NAME.LANG.jsonl.zst files of real text (exams, sib200, mhc, swsr). Writes `sources/`,
`corpus/`, `toxicity/`, `expected.json` and `repair.json` beside itself.
Made with pandas 2, pyarrow 26, ftfy 6.3.
"""

import gzip
import html
import io
import json
import pathlib
import re
import sys

import ftfy
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

HERE = pathlib.Path(__file__).parent
DATA = pathlib.Path(sys.argv[1])

# datatrove's ftfy formatter.
CONFIG = ftfy.TextFixerConfig(
    unescape_html="auto",
    remove_terminal_escapes=True,
    fix_encoding=True,
    restore_byte_a0=True,
    replace_lossy_sequences=True,
    decode_inconsistent_utf8=True,
    fix_c1_controls=True,
    fix_latin_ligatures=False,
    fix_character_width=False,
    uncurl_quotes=False,
    fix_line_breaks=False,
    fix_surrogates=True,
    remove_control_chars=True,
    normalization=None,
)


def read(name, limit):
    with open(DATA / f"{name}.jsonl.zst", "rb") as file:
        stream = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        return [json.loads(line) for _, line in zip(range(limit), stream)]


def table(path, columns, row_group_size=None):
    path = HERE / path
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, compression="zstd", row_group_size=row_group_size)


def questions(language, count):
    """Question, four choices and the index of the right one, of school exams."""
    found = []
    for row in read(f"exams.{language}", 300):
        body, _, answer = row["text"].rpartition("\n\n")
        choices = re.findall(r"^[A-D]\. (.*)$", body, re.M)
        letter = answer[:1]
        question = body.split("\nA. ")[0]
        if len(choices) == 4 and letter in "ABCD" and "\n\n" not in question:
            found.append((question, choices, "ABCD".index(letter)))
    return found[:count]


def make_mmmlu(expected):
    for language, config in [("deu_Latn", "DE-DE"), ("fra_Latn", "FR-FR")]:
        rows = questions(language, 12)
        frame = pd.DataFrame(
            {
                "Question": [q + ("\n" if i == 3 else "") for i, (q, _, _) in enumerate(rows)],
                **{letter: [c[i] for _, c, _ in rows] for i, letter in enumerate("ABCD")},
                "Answer": ["ABCD"[a] for _, _, a in rows],
                "Subject": ["physics"] * len(rows),
            }
        )
        # A quoted field with a line end and quotes inside.
        frame.loc[1, "Question"] = 'Erste Zeile, "so":\nzweite Zeile?'
        path = HERE / f"sources/mmmlu/test/mmlu_{config}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.to_csv(path)
        back = pd.read_csv(path, keep_default_na=False)
        texts = [r["Question"].strip() + " " + r[r["Answer"]].strip() for _, r in back.iterrows()]
        expected[language]["mmmlu"] = {"default": texts, "published": texts}


def make_include(expected):
    rows = questions("deu_Latn", 24)[12:]
    columns = {
        "language": ["German"] * len(rows),
        "country": ["Germany"] * len(rows),
        "question": [q for q, _, _ in rows],
        "choices": pa.array([c for _, c, _ in rows], pa.list_(pa.string())),
        "answer": pa.array([a for _, _, a in rows], pa.int64()),
    }
    table("sources/include/German/test-00000-of-00001.parquet", columns, row_group_size=5)
    other = {name: values[:2] for name, values in columns.items()}
    other["question"] = ["not of the test split"] * 2
    table("sources/include/German/validation-00000-of-00001.parquet", other)

    rows = questions("fra_Latn", 24)[12:]
    table(
        "sources/include/French/test-00000-of-00001.parquet",
        {
            "language": ["French"] * len(rows),
            "question": [q for q, _, _ in rows],
            **{f"option_{x}": [c[i] for _, c, _ in rows] for i, x in enumerate("abcd")},
            "answer": pa.array([a for _, _, a in rows], pa.int64()),
        },
    )
    for language in ["deu_Latn", "fra_Latn"]:
        rows = questions(language, 24)[12:]
        expected[language]["include"] = {
            "default": [f"{q} {c[a]}" for q, c, a in rows],
            "published": [f"{q} {c[a - 1]}" for q, c, a in rows],
        }


def make_oasst2(expected):
    sentences = iter(row["text"] for row in read("sib200.deu_Latn", 100))
    messages = []

    def add(id, parent, tree, lang="de"):
        text = next(sentences)
        messages.append(
            {
                "message_id": id,
                "parent_id": parent,
                "message_tree_id": tree,
                "text": text,
                "role": "prompter" if parent is None else "assistant",
                "lang": lang,
                "deleted": False,
            }
        )

    # Leaves of a: a11, a12, a2, a3. Leaves of b: b1. c alone. d has its root in English.
    for id, parent in [("a", None), ("a1", "a"), ("a11", "a1"), ("a12", "a1"), ("a2", "a"), ("a3", "a")]:
        add(id, parent, "a")
    add("b", None, "b")
    add("b1", "b", "b")
    add("c", None, "c")
    add("d", None, "d", "en")
    add("d1", "d", "d")
    add("d2", "d", "d")
    messages.reverse()  # children before their parents
    columns = {name: [m[name] for m in messages] for name in messages[0]}
    table("sources/oasst2/data/train-00000-of-00001-b42a775f407cee45.parquet", columns)
    columns["text"] = ["not of the train split"] * len(messages)
    table("sources/oasst2/data/validation-00000-of-00001-134b8fd0c89408b6.parquet", columns)

    of_language = {m["message_id"]: m for m in messages if m["lang"] == "de"}
    parents = {m["parent_id"] for m in of_language.values()}
    roots = {}
    for leaf in of_language.values():
        if leaf["message_id"] in parents:
            continue
        path = [leaf]
        while path[-1]["parent_id"] in of_language:
            path.append(of_language[path[-1]["parent_id"]])
        text = " ".join(m["text"] for m in reversed(path))
        roots.setdefault(path[-1]["message_id"], []).append(text)
    # Which two of a root's conversations are taken is a matter of chance.
    expected["deu_Latn"]["oasst2"] = roots


def pairs(language, first, count):
    rows = [row["text"] for row in read(f"sib200.{language}", first + 2 * count)][first:]
    return [[rows[2 * i], rows[2 * i + 1]] for i in range(count)]


def join(inputs, targets):
    return inputs + " " + (targets[:-3] if targets.endswith("...") else targets)


def make_aya_dataset(expected):
    rows = [(i, t, "deu") for i, t in pairs("deu_Latn", 200, 6)]
    rows += [(i, t, "fra") for i, t in pairs("fra_Latn", 200, 6)]
    rows[1] = (rows[1][0], rows[1][1] + "...", "deu")
    rows[7] = (rows[7][0], rows[7][1] + "....", "fra")
    rows = rows[::2] + rows[1::2]
    table(
        "sources/aya_dataset/data/train-00000-of-00001.parquet",
        {
            "inputs": [r[0] for r in rows],
            "targets": [r[1] for r in rows],
            "language": ["German" if r[2] == "deu" else "French" for r in rows],
            "language_code": [r[2] for r in rows],
            "annotation_type": ["original-annotations"] * len(rows),
            "user_id": ["u"] * len(rows),
        },
    )
    table("sources/aya_dataset/demographics/train-00000-of-00001.parquet", {"user_id": ["u"]})
    for code, language in [("deu", "deu_Latn"), ("fra", "fra_Latn")]:
        texts = [join(i, t) for i, t, c in rows if c == code]
        expected[language]["aya_dataset"] = {"default": texts, "published": texts}


def make_aya_collection(expected):
    for language, config in [("deu_Latn", "german"), ("fra_Latn", "french")]:
        rows = pairs(language, 300, 40)
        rows[3][1] += " <unk> kaputt"
        rows[5][0] = rows[5][0].encode("utf-8").decode("latin-1") + " Ã¼brig Ã¼ber"
        rows[6][1] = "Bürger &amp; &Uuml;bung &quot;so&quot;"
        rows[7][1] = rows[7][1] + "..."
        rows[9] = list(rows[8])  # there twice
        if language == "deu_Latn":
            for number, part in enumerate([rows[:25], rows[25:]]):
                table(
                    f"sources/aya_collection/{config}/train-0000{number}-of-00002.parquet",
                    {
                        "id": list(range(len(part))),
                        "inputs": [r[0] for r in part],
                        "targets": [r[1] for r in part],
                        "language": ["deu"] * len(part),
                        "split": ["train"] * len(part),
                    },
                )
        else:
            path = HERE / f"sources/aya_collection/{config}.jsonl.gz"
            with gzip.GzipFile(path, "wb", mtime=0) as file:
                for inputs, targets in rows:
                    line = {"inputs": inputs, "targets": targets, "language": "fra"}
                    file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        texts = [join(i, t) for i, t in rows]
        reference = [text for text in texts if "<unk>" not in text]
        sound = [ftfy.fix_text(text, CONFIG) for text in dict.fromkeys(reference)]
        expected[language]["aya_collection"] = {"default": sound, "published": reference}


def make_corpus():
    rows = read("sib200.deu_Latn", 900)[500:]
    for number in range(4):
        part = rows[number * 100 : number * 100 + 100]
        texts = [row["text"] for row in part]
        texts[5], texts[6] = None, "  "
        table(
            f"corpus/deu_Latn/train/000_0000{number}.parquet",
            {"text": texts, "id": [f"<urn:uuid:{row['id']}>" for row in part]},
        )
    path = HERE / "corpus/fra_Latn/train/000_00000.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        for row in read("sib200.fra_Latn", 900)[500:800]:
            print(json.dumps({"text": row["text"], "id": row["id"]}, ensure_ascii=False), file=file)


def make_toxicity(expected):
    rows = read("mhc.fra_Latn", 3000)[::40]
    scores = [f"[0, {2 * row['label']}, 0, {row['label']}, 0]" for row in rows]
    frame = pd.DataFrame({"original_text": [row["text"] for row in rows], "scores": scores})
    frame.loc[0, "scores"] = "no scores"
    frame.loc[1, "scores"] = "[0, 0"
    frame.loc[2, "original_text"] = None
    (HERE / "toxicity").mkdir(exist_ok=True)
    frame.to_csv(HERE / "toxicity/annotated_French-PD.csv", index=False)

    raw = pd.read_csv(HERE / "toxicity/annotated_French-PD.csv")
    raw = raw[raw["scores"].apply(lambda x: x.startswith("[") and x.endswith("]"))]
    raw = raw[raw["original_text"].apply(lambda x: isinstance(x, str))]
    toxic = raw["scores"].apply(lambda x: sum(int(a.strip()) for a in x[1:-1].split(",")) > 0)
    expected["toxic_commons"] = {
        "toxic": sorted(raw["original_text"][toxic]),
        "nontoxic": sorted(raw["original_text"][~toxic]),
    }

    rows = read("swsr.cmn_Hani", 9000)[::100]
    frame = pd.DataFrame(
        {
            "weibo_id": range(len(rows)),
            "comment_text": [row["text"] for row in rows],
            "gender": "f",
            "location": "",
            "like": 0,
            "date": "2020-01-01",
            "label": [row["label"] for row in rows],
            "category": "",
            "target": "",
        }
    )
    frame.to_csv(HERE / "toxicity/SexComment.csv", index=False, encoding="utf-8-sig")
    frame = pd.read_csv(HERE / "toxicity/SexComment.csv")
    expected["swsr"] = {
        "toxic": sorted(frame["comment_text"][frame["label"] == 1]),
        "nontoxic": sorted(frame["comment_text"][frame["label"] == 0]),
    }


def damaged(text):
    """The text as it arrives after the accidents that happen to text."""
    utf8 = text.encode("utf-8")
    for encoding in ["latin-1", "sloppy-windows-1252", "sloppy-windows-1251", "sloppy-windows-1250",
                     "sloppy-windows-1253", "sloppy-windows-1254", "iso-8859-2", "macroman", "cp437"]:
        yield encoding, utf8.decode(encoding)
    once = utf8.decode("sloppy-windows-1252")
    yield "twice sloppy-windows-1252", once.encode("utf-8").decode("sloppy-windows-1252")
    middle = text.find(" ", len(text) // 2)
    if middle > 0:
        yield "half latin-1", text[:middle] + text[middle:].encode("utf-8").decode("latin-1")
    try:
        strict = utf8.decode("windows-1252", errors="replace")
        yield "lossy windows-1252", strict
    except UnicodeDecodeError:
        pass
    yield "escaped", html.escape(text) + " &amp; &eacute; &#8217; &#x2014; &nbsp;|"
    yield "escaped twice", html.escape(html.escape(text + ' "&"'))
    yield "escaped beside a tag", html.escape(text + ' "&"') + " <br>"
    yield "controls", text[:5] + "\x01\x7f\x1b[31m" + text[5:] + "\x85\x92\ufeff"
    yield "intact", text
    yield "typography", "\u201c" + text + "\u201d \u2014 \ufb01n \uff21\uff22 A\u0300\r\nneu\u2028"


def make_repair():
    languages = ["arb_Arab", "ces_Latn", "cmn_Hani", "dan_Latn", "deu_Latn", "ell_Grek", "fas_Arab",
                 "fra_Latn", "hun_Latn", "ind_Latn", "ita_Latn", "jpn_Jpan", "nld_Latn", "pol_Latn",
                 "por_Latn", "rus_Cyrl", "spa_Latn", "swe_Latn", "tur_Latn", "vie_Latn"]
    cases = []
    for language in languages:
        for row in read(f"sib200.{language}", 1000)[990:991]:
            for damage, text in damaged(row["text"]):
                fixed = ftfy.fix_text(text, CONFIG)
                case = {"language": language, "damage": damage, "text": text}
                cases.append(case | ({} if fixed == text else {"ftfy": fixed}))
    with open(HERE / "repair.json", "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")


def main():
    import ftfy.bad_codecs  # noqa: F401  the sloppy codecs

    expected = {"deu_Latn": {}, "fra_Latn": {}}
    make_mmmlu(expected)
    make_include(expected)
    make_oasst2(expected)
    make_aya_dataset(expected)
    make_aya_collection(expected)
    make_corpus()
    make_toxicity(expected)
    make_repair()
    with open(HERE / "expected.json", "w", encoding="utf-8") as file:
        json.dump(expected, file, ensure_ascii=False, indent=1)
        file.write("\n")


main()
