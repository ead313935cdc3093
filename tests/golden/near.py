"""Near duplicates by numpy: tests/golden/near/. Needs numpy 2.4.

SemDeDup as NeMo Curator has it, with its rule for chains replaced by polysift's: documents of a language are
sorted from the best to the worst, all cosine similarities are computed, and a document is a near duplicate
if its similarity to a better one *that stays* reaches the threshold (NeMo Curator: to any better one). A
document of several chunks has the mean of their embeddings. Documents without an embedding or with the zero
vector are not compared; documents that another filter removes are left out; documents without a score are
the worst; of equal scores the first is the best.
"""

import json
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).with_suffix("")
WIDTH, THRESHOLD = 24, 0.94


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def chain(random, steps):
    """Vectors of the plane of two random directions, each 14 to 16 degrees from the one before it."""
    a, b = unit(random.normal(size=(2, WIDTH)))
    b = unit(b - (a @ b) * a)
    angles = np.radians(random.uniform(14, 16, steps).cumsum())
    return np.outer(np.cos(angles), a) + np.outer(np.sin(angles), b)


def documents(language, seed):
    random = np.random.default_rng(seed)
    vectors = [unit(random.normal(size=(100, WIDTH)))]
    for _ in range(20):  # groups that are close to each other
        vectors.append(unit(unit(random.normal(size=WIDTH)) + 0.02 * random.normal(size=(random.integers(2, 6), WIDTH))))
    for _ in range(20):  # neighbours are near duplicates (0.961 at least), others are not (0.883 at most)
        vectors.append(chain(random, random.integers(3, 7)))
    vectors = np.concatenate(vectors) * random.uniform(0.5, 3, size=(sum(map(len, vectors)), 1))
    order = random.permutation(len(vectors))
    for number, vector in enumerate(vectors[order]):
        chunks = [vector]
        if number % 7 == 0:  # the mean of two chunks
            offset = random.normal(size=WIDTH)
            chunks = [vector + offset, vector - offset]
        document = {
            "id": f"{language}-{number}",
            "text": f"Text {number}.",
            # Few values, so that many are equal; some documents have none.
            "grade": None if number % 31 == 5 else int(random.integers(0, 20)),
            "vectors": [[round(float(x), 4) for x in chunk] for chunk in chunks],
        }
        if number % 41 == 7:
            document["vectors"] = None
        if number % 43 == 9:
            document["vectors"] = [[0.0] * WIDTH]
        yield document


def near(documents, removed):
    vectors, compared = [], []
    for place, document in enumerate(documents):
        if document["id"] in removed or not document["vectors"]:
            continue
        mean = np.mean(document["vectors"], axis=0)
        if np.any(mean):
            vectors.append(unit(mean))
            compared.append((document["grade"], place))
    order = sorted(range(len(compared)), key=lambda i: (compared[i][0] is None, -(compared[i][0] or 0), compared[i][1]))
    vectors, compared = np.array(vectors)[order], [compared[i] for i in order]
    similarities = vectors @ vectors.T
    # No value is so close to the threshold that the rounding of f32 decides, and no two nearest are as close.
    assert np.abs(similarities - THRESHOLD).min() > 1e-5
    stays = []
    for i in range(len(vectors)):
        best = max(stays, key=lambda j: similarities[i, j], default=None)
        if best is None or similarities[i, best] < THRESHOLD:
            stays.append(i)
            continue
        nearest = np.sort(similarities[i, stays])[::-1]
        assert len(nearest) < 2 or nearest[0] - nearest[1] > 1e-6
        ids = [documents[compared[at][1]]["id"] for at in (i, best)]
        yield {"id": ids[0], "of": ids[1], "similarity": float(similarities[i, best])}


expected, removed = [], []
for seed, language in enumerate(["deu_Latn", "fra_Latn"]):
    rows = list(documents(language, seed))
    own = [row["id"] for row in rows[::17]]
    removed += own
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (FOLDER / f"{language}.jsonl").write_text(lines)
    expected += [{"language": language, **found} for found in near(rows, set(own))]
(FOLDER / "removed.txt").write_text("".join(f"{id}\n" for id in removed))
(FOLDER / "expected.jsonl").write_text("".join(json.dumps(row) + "\n" for row in expected))
print(len(expected), "near duplicates")
