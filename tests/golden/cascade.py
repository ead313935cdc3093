"""Bounds of a binomial and tails of Student's t by SciPy: tests/golden/cascade.tsv. Needs scipy."""

from pathlib import Path

from scipy.stats import beta, binom, chi2, t

ROWS = []


def add(kind, a, n, b, value):
    ROWS.append(f"{kind}\t{a!r}\t{n}\t{b!r}\t{value!r}")


for n in [1, 10, 300, 9_211, 42_000, 1_000_000]:
    for p in [0.0005, 0.01, 0.1, 0.33]:
        for x in sorted({0, 1, 5, int(n * p), int(n * p * 1.2)}):
            if x <= n:
                add("cdf", x, n, p, float(binom.cdf(x, n, p)))
    for x in [0, 1, 3, 17]:
        for risk in [0.01, 0.05]:
            if x < n:
                add("upper", x, n, risk, float(beta.ppf(1 - risk, x + 1, n - x)))
    for p in [0.0005, 0.01, 0.1]:
        for risk in [0.005, 0.05]:
            misses = -1
            while misses + 1 <= n and binom.cdf(misses + 1, n, p) <= risk:
                misses += 1
            add("misses", p, n, risk, misses)
    # Of one document a rate of 0.05 is a risk of 0.05 up to a rounding.
    for rate in [0.05, 0.1, 0.33] if n > 1 else []:
        for risk in [0.005, 0.05]:
            rank = int(n * rate) - 1 if n > 10 else 0
            while binom.sf(rank, n, rate) > risk:
                rank += 1
            assert rank == 0 or binom.sf(rank - 1, n, rate) > risk
            add("rank", rate, n, risk, rank)
for p in [0.0005, 0.01, 0.1]:
    for risk in [0.005, 0.05]:
        least = 1
        while (1 - p) ** least > risk:
            least += 1
        add("sample", p, 0, risk, least)
for freedom in [4.1, 6.0, 30.0, 200.0]:
    for value in [1.0, 2.5, 4.0, 8.0, 32.0]:
        add("student", value, 0, freedom, float(t.sf(value, freedom)))
for freedom in [5, 16, 64, 1_000, 100_000]:
    add("chi", 0.05, freedom, 0, float(chi2.ppf(0.05, freedom)))

header = "# By tests/golden/cascade.py with SciPy: kind, first argument, n, last argument, value\n"
Path(__file__).with_suffix(".tsv").write_text(header + "\n".join(ROWS) + "\n")
