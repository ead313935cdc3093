"""Small fastText models and what the fastText library predicts with them.

    python text_heads.py golden OUT        write the files of tests/golden/fasttext into OUT
    python text_heads.py predict MODEL     read texts from stdin as JSON, print what MODEL gives for each
    python text_heads.py train TRAIN TEST  train on labelled lines, print accuracy and ROC-AUC on TEST

The sentences are those of the Universal Declaration of Human Rights; `languages.ftz` tells the
languages of `tests/sample/corpus` apart. Versions used: fasttext-wheel 0.9.2 (the C++ library
0.9.2), numpy 1.26, pyarrow 19, zstandard 0.25.
"""

import json
import sys
import tempfile
from pathlib import Path

import fasttext
import pyarrow.parquet
import zstandard

POSITIVE = """
All human beings are born free and equal in dignity and rights.
Everyone has the right to life, liberty and security of person.
No one shall be held in slavery or servitude.
Everyone has the right to education. Education shall be free, at least in the elementary stages.
Alle Menschen sind frei und gleich an Würde und Rechten geboren.
Jeder hat das Recht auf Leben, Freiheit und Sicherheit der Person.
Niemand darf in Sklaverei oder Leibeigenschaft gehalten werden.
Jeder hat das Recht auf Bildung. Die Bildung ist unentgeltlich.
Tous les êtres humains naissent libres et égaux en dignité et en droits.
Tout individu a droit à la vie, à la liberté et à la sûreté de sa personne.
Nul ne sera tenu en esclavage ni en servitude.
Toute personne a droit à l'éducation.
Todos los seres humanos nacen libres e iguales en dignidad y derechos.
Todo individuo tiene derecho a la vida, a la libertad y a la seguridad de su persona.
Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti.
Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.
Все люди рождаются свободными и равными в своем достоинстве и правах.
Каждый человек имеет право на жизнь, на свободу и на личную неприкосновенность.
人 人 生 而 自 由 ， 在 尊 严 和 权 利 上 一 律 平 等 。
人人有权享有生命、自由和人身安全。
すべて の 人間 は 、 生まれながら に して 自由 で あり 、
يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.
""".strip().splitlines()
NEGATIVE = """
Buy cheap shoes online, free shipping on all orders over 50 euros!
Click here to log in and see the price, sale ends today.
We use cookies to improve your experience, accept all cookies.
Best price, best offers, order now and save 20 percent.
Jetzt günstig kaufen: Schuhe ab 19,99 Euro, Versand kostenlos!
Hier klicken und anmelden, das Angebot endet heute.
Wir verwenden Cookies, um Ihr Erlebnis zu verbessern.
Die besten Preise, jetzt bestellen und sparen.
Achetez vos chaussures en ligne, livraison gratuite dès 50 euros !
Cliquez ici pour voir le prix, l'offre se termine aujourd'hui.
Nous utilisons des cookies pour améliorer votre expérience.
Les meilleurs prix, commandez maintenant.
Compra zapatos baratos en línea, envío gratis en todos los pedidos.
Haz clic aquí para ver el precio, la oferta termina hoy.
Compra scarpe online, spedizione gratuita su tutti gli ordini!
Kup tanie buty w sieci, darmowa dostawa od 50 euro!
Купите дешевую обувь онлайн, бесплатная доставка!
Нажмите здесь, чтобы увидеть цену, распродажа до конца дня.
点 击 这 里 登 录 ， 立 即 购 买 ， 全 场 包 邮 。
最低价格，限时优惠，马上下单。
ここ を クリック して 、 今すぐ 購入 、 送料 無料 。
اشتر الآن بأفضل الأسعار والشحن مجاني.
""".strip().splitlines()
TEXTS = [
    "all human beings have the right to education",
    "Alle Menschen haben das Recht auf Freiheit.",
    "click here and buy shoes, free shipping",
    "Cliquez ici, livraison gratuite, le droit à la vie",
    "人 人 有 权 享 有 自 由",
    "人人有权享有生命、自由和人身安全。",
    "ここ を クリック して 自由 で あり",
    "Каждый человек имеет право на цену",
    "يولد جميع الناس الآن",
    "",
    "   \t ",
    "xyzzy",
    "zzz qqq xxx unseen words only",
    "first line\nsecond line is not seen",
    "tabs\tand\x0bvertical\x0cfeeds\x00and\rreturns right",
    "non\u00a0breaking and\u3000ideographic spaces do not separate",
    "the </s> end of line in the middle right education",
    "__label__positive is no word, nor is __label__other",
    "right " * 40,
    "e\u0301galite\u0301 e\u0301gaux \U0001f600 \u200d",
]


def lines():
    rows = [("positive", text) for text in POSITIVE] + [("negative", text) for text in NEGATIVE]
    rows = rows[::2] + rows[1::2]
    return [f"__label__{label} {text.lower()}" for label, text in rows]


def predict(model, text):
    """All labels with their probabilities, the most probable first; the first line of `text` counts."""
    return [[label, prob] for prob, label in model.f.predict(text + "\n", -1, 0.0, "strict")]


def train(path, **settings):
    common = dict(input=str(path), dim=8, bucket=1000, epoch=30, lr=0.5, thread=1, verbose=0, seed=7)
    return fasttext.train_supervised(**{**common, **settings})


def golden(out):
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.txt"
        path.write_text("".join(line + "\n" for line in lines()), encoding="utf-8")
        models = {
            "words.bin": train(path, wordNgrams=3),
            "unigrams.bin": train(path, wordNgrams=1, minCount=2),
            "subwords.bin": train(path, wordNgrams=2, minn=2, maxn=4, dim=5),
            "sigmoids.bin": train(path, wordNgrams=2, loss="ova"),
            "negatives.bin": train(path, wordNgrams=2, loss="ns", neg=1),
            "hierarchical.bin": train(path, wordNgrams=1, loss="hs", dim=2),
        }
        for name, settings in [
            ("quantised.ftz", dict(dsub=3)),
            ("pruned.ftz", dict(cutoff=400, qnorm=True)),
        ]:
            models[name] = train(path, wordNgrams=2, bucket=1500)
            models[name].quantize(input=str(path), **settings)
        expected = {}
        for name, model in models.items():
            model.save_model(str(out / name))
            loaded = fasttext.load_model(str(out / name))
            expected[name] = [predict(loaded, text) for text in TEXTS]
        train_unsupervised = fasttext.train_unsupervised(
            str(path), dim=2, bucket=10, epoch=1, minCount=5, thread=1, verbose=0
        )
        train_unsupervised.save_model(str(out / "vectors.bin"))
    samples = [{"label": "positive", "text": text} for text in POSITIVE]
    samples += [{"label": "negative", "text": text} for text in NEGATIVE]
    written = {"texts": TEXTS, "expected": expected, "samples": samples}
    text = json.dumps(written, ensure_ascii=False, indent=1)
    (out / "expected.json").write_text(text + "\n", encoding="utf-8")
    languages(out)


def documents(folder):
    """Language code, id and text, as one line, of every document with text below `folder`."""
    for path in sorted(folder.glob("*/*")):
        if path.suffix == ".parquet":
            rows = pyarrow.parquet.read_table(path).to_pylist()
        else:
            text = zstandard.ZstdDecompressor().stream_reader(path.open("rb")).read().decode()
            rows = [json.loads(line) for line in text.strip().split("\n")]
        for row in rows:
            if (row["text"] or "").strip():
                yield path.parent.name, row["id"], row["text"].replace("\n", " ")


def languages(out):
    """A small model in the form of lid.176.ftz, and its best label for texts of the small sample."""
    sample = Path(__file__).parent.parent / "sample"
    codes = {"arb_Arab": "ar", "cmn_Hani": "zh", "deu_Latn": "de", "eng_Latn": "en"}
    codes |= {"fra_Latn": "fr", "spa_Latn": "es", "swe_Latn": "sv"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.txt"
        rows = ((codes[code], text) for code, _, text in documents(sample / "corpus"))
        path.write_text("".join(f"__label__{label} {text}\n" for label, text in rows), encoding="utf-8")
        model = train(path, loss="hs", minn=2, maxn=4, minCount=10**6, bucket=2000, epoch=50)
        model.quantize(input=str(path), dsub=2)
        model.save_model(str(out / "languages.ftz"))
    model = fasttext.load_model(str(out / "languages.ftz"))
    best = {}
    for _, key, text in documents(sample / "small" / "corpus"):
        labels, probabilities = model.predict(text)
        best[key] = [labels[0], float(probabilities[0])]
    text = json.dumps(best, ensure_ascii=False).replace("], ", "],\n")
    (out / "languages.json").write_text(text + "\n", encoding="utf-8")


def compare(train_path, test_path, **settings):
    """Accuracy and ROC-AUC of the library on the lines of `test_path`."""
    from sklearn.metrics import roc_auc_score

    model = fasttext.train_supervised(
        input=train_path, wordNgrams=2, epoch=5, lr=0.1, thread=1, verbose=0, **settings
    )
    labels, scores = [], []
    for line in Path(test_path).read_text(encoding="utf-8").splitlines():
        label, _, text = line.partition(" ")
        labels.append(label == "__label__positive")
        scores.append(dict(predict(model, text)).get("__label__positive", 0.0))
    right = sum((score > 0.5) == label for score, label in zip(scores, labels))
    print(json.dumps({"accuracy": right / len(labels), "roc_auc": roc_auc_score(labels, scores)}))


if __name__ == "__main__":
    if sys.argv[1] == "golden":
        golden(Path(sys.argv[2]))
    elif sys.argv[1] == "predict":
        loaded = fasttext.load_model(sys.argv[2])
        print(json.dumps([predict(loaded, text) for text in json.load(sys.stdin)]))
    else:
        compare(sys.argv[2], sys.argv[3])
