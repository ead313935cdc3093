"""Normal forms, n-grams and verdicts of datatrove, chunks of the evaluation harness, Unicode categories.

    python tests/golden/decontamination.py tests/golden/decontamination/expected.json

Versions used: datatrove 0.10.1, xxhash 3.8.2, spacy 3.8, lm_eval 0.4.13, unicodedata2 18.0. `datatrove` needs
xxhash before 4, and of lm_eval only the file decontamination/janitor.py is read (`pip install --no-deps`).
"""

import importlib.util
import json
import random
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import unicodedata2
from datatrove.data import Document
from datatrove.pipeline.decont import NGramsDecontConfig, NGramsDecontFilter, NGramsDecontIndexer
from datatrove.utils.hashing import HashConfig, create_hash_func
from datatrove.utils.text import simplify_text
from datatrove.utils.word_tokenizers import load_word_tokenizer

WRITTEN = """
Hello, World! It's a test.
C++ and C# and F#, .NET; node.js
1,000,000 dollars and 1,000 euros
3.14 or 3,14 or 3.14.15
v1.2.3.4
€5 and 5€ and £5.50
½ x² y₃ ① ⑩ Ⅷ
١٢٣.٤ ١٢٣٫٤ ١٢٣،٤
१२३ ४५.६ हिन्दी में
１２３ ＡＢＣ ｱｲｳ
５．５ ５，５
1..2 1.,2 1. 2 1 .2
.5 5. ,5 5,
1.a a.1 1,b
1.2a3,4b5
0 00 000 0.0
2024-11-22T10:00:00Z
10am 5km 3kg 100% 1e5 1e-5
cannot dont gonna gotta wont
I'm you're he's they'd we'll I've
im ive id hes shes thats whats theres youre theyre
dontve couldntve illve hedve ima yall
Don't DONT CANNOT Cannot cannot't
can't shan't ain't isn't
the well wed hell shell its were lets
naïve café Zürich Ångström SØREN
İstanbul IŞIK ıslak
ΟΔΟΣ ΣΟΦΟΣ Σ ΑΣ. ΑΣΑ ΟΔΟΣ, ΣΣ
Οδυσσεύς
straße STRASSE ẞ
ﬁn ﬂow ﬀ
Ǆ ǅ ǆ
a\u0301 e\u0300\u0323 o\u0308\u0304
\u0301 \u0301a b\u0301 \u0301
q\u0307\u0323 q\u0323\u0307
مُحَمَّدٌ رَسُولُ
كتاب، كتاب؛ كتاب؟
شكراً جزيلاً
می‌خواهم نمی\u200cشود
क्षेत्र ज्ञान श्री
தமிழ் நாடு
বাংলা ভাষা
ไทย ภาษาไทย กิน
ကမ္ဘာ
ខ្មែរ
ལྷ་ས་
你好世界
我们AI研究2024年
こんにちは 世界 カタカナ がぎぐ ぱぴぷ
データを、処理する。
「引用」『二重』【括弧】
한국어 가각갂 서울시
עברית צה"ל ג'ירפה
שָׁלוֹם
Привет, мир! Ёлка й
Ğüşöç
tab\tnew\nline\r\nfeed\x0cvt\x0b
nul\x00 bell\x07 del\x7f nel\x85 c1\x9f
fs\x1c gs\x1d rs\x1e us\x1f
nbsp\xa0nnbsp\u202fthin\u2009ideo\u3000end
zwsp\u200bzwnj\u200czwj\u200dbom\ufeffshy\xad
line\u2028para\u2029
em—en–minus−hyphen‐nb‑
“quotes” ‘single’ «guillemets» ‹single›
…ellipsis...dots
a/b a\\b a|b a_b a-b a+b a=b a~b a^b a*b
user@example.com https://example.com/a?b=c&d=e#f
#hashtag @mention $dollar %percent
(a) [b] {c} <d>
© ® ™ § ¶ † ‡ • · ‰
😀 👍🏽 👨‍👩‍👧 🇩🇪
x😀y 5😀
∑ ∫ √ ∞ ≤ ≠ × ÷
→ ← ↔ ⇒
♥ ★ ☺
１〈〉《》
´acute` grave` ¨diaeresis
K Å Ω
ﷺ ﷲ
㍿ ㌔ ㎏
\u037e \u1fef \u1ffd
𝐀𝐁𝐂 𝟎𝟏𝟐
𐐀𐐨
٪ ٬ ٫
1\u0301 12\u030134
a\u20dd b\u0488
กำ ำ
ा ाक
""".strip("\n").splitlines()

PIECES = (
    "the of Word WORD été Ñandú don't dont cannot it's its 1 12 3.5 1,234 1,234,567.89 2nd v2.0 0x1F ٣ ٣٫٥ १२ ５ ½ ² "
    "a.b a,b a-b a_b ( ) [ ] « » “ ” … — – ! ? ; : ' \" / \\ # & * @ % + = < > | ~ ^ ` { } "
    "Σ ΑΣ İ ß ﬁ 你 好 、 。 カ が ก ำ क्ष ा مُ ، ؟ \u0301 e\u0301 \u200b \u200d \xa0 \u3000 \t \n \x1c \x85 \x00"
).split(" ")

PREAMBLE = "We the People of the United States, in Order to form a more perfect Union"
THIRTEEN = "we the people of the united states in order to form a more"
DOCUMENTS = [
    f"Here: {PREAMBLE}",
    "We, the PEOPLE — of the United\nStates in order to form à more",
    f"Here: {PREAMBLE}".replace("a more perfect Union", "a perfect Union of many"),
    f"Here: {PREAMBLE}".replace("the United", "the 50 United"),
]


def texts():
    """Those above, and random runs of pieces."""
    rng = random.Random(42)
    written = [line.encode().decode("unicode_escape", "ignore") if line.isascii() else line for line in WRITTEN]
    runs = []
    for _ in range(300 - len(written)):
        glue = rng.choice(["", " ", " "])
        runs.append(glue.join(rng.choices(PIECES, k=rng.randint(2, 9))))
    return written + runs


def straddling():
    """N-grams of 4 tokens, without and with those wholly in the query."""
    cases = []
    for query, label in [("A B C D E", "F G H I J"), ("A B C", "F"), ("A B", "F"), ("", "F G H I")]:
        case = {"query": query, "label": label}
        for name, find_query in [("without_query", False), ("with_query", True)]:
            config = NGramsDecontConfig(n_grams=4, find_query_ngrams=find_query)
            indexer = SimpleNamespace(
                tokenizer=load_word_tokenizer("en"), config=config, hash_func=lambda ngram: ngram
            )
            case[name] = NGramsDecontIndexer.compute_hashes(indexer, label, query)
        cases.append(case)
    return cases


def verdicts():
    digest = create_hash_func(HashConfig())(THIRTEEN)
    with tempfile.TemporaryDirectory() as folder:
        np.array([digest], dtype="<u8").tofile(Path(folder) / "task.index.hashes")
        config = NGramsDecontConfig(n_grams=13)
        decontaminate = NGramsDecontFilter(folder, config=config, language="en")
        kept = [decontaminate.filter(Document(text=text, id="")) is True for text in DOCUMENTS]
    return {"hash": str(digest), "ngram": THIRTEEN, "kept": list(zip(DOCUMENTS, kept))}


def janitor():
    """What the harness leaves of a text with one match, and with two that overlap."""
    spec = importlib.util.find_spec("lm_eval")
    path = Path(spec.submodule_search_locations[0]) / "decontamination" / "janitor.py"
    spec = importlib.util.spec_from_file_location("janitor", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    words = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi".split()
    cases = []
    for count in (13, 14):
        match = " ".join(words[:count])
        clean = module.Janitor()
        clean.register_contaminant(match)
        inside = match.title().replace(" Mu ", ", MU; ")
        before = "".join(f"pre{i:03} " for i in range(120))
        text = before + inside + "".join(f" post{i:03}" for i in range(120))
        pieces = clean.clean(text)
        cases.append({"match": match, "text": text, "pieces": [len(piece) for piece in pieces]})
    return cases


def contractions(tokenizer):
    """Words of letters alone that are split in English."""
    rules = tokenizer.tokenizer.tokenizer.rules
    words = sorted(word for word in rules if word.isascii() and word.isalpha() and word.islower())
    parts = {word: tokenizer.word_tokenize(word) for word in words}
    return {word: split for word, split in parts.items() if len(split) > 1}


def ranges(category):
    found = []
    for code in range(0x110000):
        if unicodedata2.category(chr(code)) == category:
            if found and found[-1][1] == code - 1:
                found[-1][1] = code
            else:
                found.append([code, code])
    return found


def main(path):
    tokenizer = load_word_tokenizer("en")
    normal = []
    for text in texts():
        simple = simplify_text(text)
        normal.append({"text": text, "normal": simple, "words": tokenizer.word_tokenize(simple)})
    golden = {
        "texts": normal,
        "contractions": contractions(tokenizer),
        "straddling": straddling(),
        "verdicts": verdicts(),
        "janitor": janitor(),
        "categories": {category: ranges(category) for category in ("Mn", "Nd")},
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(golden, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
