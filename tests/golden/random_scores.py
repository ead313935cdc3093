"""The numbers of `random_scores_are_those_of_the_published_hash` in src/heads/head/row.rs.

pip install xxhash==4.1.0; python3 tests/golden/random_scores.py
"""

import math
import struct

import xxhash

seed = xxhash.xxh3_64_intdigest(b"sample" + struct.pack("<Q", 42))
hashes = {i: xxhash.xxh3_64_intdigest(f"doc-{i}".encode(), seed=seed) for i in range(1000)}
order = sorted(hashes, key=hashes.get)
print("seed", seed, "hash of doc-0", hashes[0], "first", order[:3])
for rate in ("0.095", "0.3135", "0.95"):
    count = math.ceil(float(rate) * 1000)
    print("rate", rate, "keeps", count, "the last of them", order[count - 1])
