"""Fits the coefficients of src/exp.rs and src/gelu.rs; prints them as f32. Needs numpy and mpmath.

exp: (exp(r) - 1 - r) / r^2 on |r| <= ln(2)/2, degree 4, error relative to exp.
erf: erf(z) / z as a rational function of z^2 on |z| <= 4, degrees 6 and 4, relative error,
by repeated linear least squares on Chebyshev nodes (Sanathanan-Koerner).
"""

import numpy as np
from mpmath import cos, erf, exp, log, lu_solve, matrix, mp, mpf, pi, sqrt

mp.dps = 40


def nodes(low, high, count):
    return [
        (low + high) / 2 + (high - low) / 2 * cos(pi * (2 * i + 1) / (2 * count))
        for i in range(count)
    ]


def solve(rows, right):
    a, b = matrix(len(rows), len(rows[0])), matrix(len(rows), 1)
    for i, row in enumerate(rows):
        b[i] = right[i]
        for j, value in enumerate(row):
            a[i, j] = value
    return list(lu_solve(a, b))


def show(name, values):
    print(name, [repr(float(np.float32(float(v)))) for v in values])


half_ln2 = log(2) / 2
rs = nodes(-half_ln2, half_ln2, 60)
weights = [r**2 / exp(r) for r in rs]
show(
    "exp",
    solve(
        [[r**j * w for j in range(5)] for r, w in zip(rs, weights)],
        [(exp(r) - 1 - r) / r**2 * w for r, w in zip(rs, weights)],
    ),
)
LN2_HIGH = 0.693145751953125  # the upper 15 bits: n * LN2_HIGH is exact for every n that occurs
show("ln2 low", [log(2) - mpf(LN2_HIGH)])

bound, above, below = mpf(4), 6, 4
us = nodes(mpf(0), mpf(1), 200)  # u = (z / bound)^2
values = [erf(bound * sqrt(u)) / (bound * sqrt(u)) for u in us]
denominator = [mpf(1)] * len(us)
for _ in range(12):
    rows = [
        [u**j / (v * d) for j in range(above + 1)] + [-(u**j) / d for j in range(1, below + 1)]
        for u, v, d in zip(us, values, denominator)
    ]
    c = solve(rows, [1 / d for d in denominator])
    p, q = c[: above + 1], [mpf(1)] + c[above + 1 :]
    denominator = [sum(q[j] * u**j for j in range(below + 1)) for u in us]
show("erf numerator", [p[j] / bound ** (2 * j) for j in range(above + 1)])
show("erf denominator", [q[j] / bound ** (2 * j) for j in range(below + 1)])
