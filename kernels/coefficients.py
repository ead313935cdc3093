"""Fits the coefficients of src/cpu/attention/softmax.rs (twice), src/cpu/gelu.rs and
src/cuda/gelu.cuh; prints them as f32. Needs numpy, mpmath and scipy.

exp2: (2^r - 1) / r on |r| <= 1/2, degree 5 (f16: 3), largest error relative to 2^r, by Lawson's
weights on Chebyshev nodes.
gelu: erf(x / sqrt 2) / 2x in u = 2 (x / bound)^2 - 1, degree 16, which is 1 / 2 bound at u = 1; least
largest error of gelu, by Lawson's weights.
gelu on GPUs: log2 Phi(-t) in t, degree 5 (for e4m3: 3), -1 at 0; least largest error of gelu in units of
its value or 2^-8, whichever is more.
"""

import numpy as np
from mpmath import cos, lu_solve, matrix, mp, mpf, pi, sqrt
from numpy.polynomial import chebyshev, polynomial
from scipy.special import erf, log_ndtr, ndtr

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


for degree in (5, 3):
    rs = nodes(mpf(-1) / 2, mpf(1) / 2, 80)
    weights = [mpf(1)] * len(rs)
    for _ in range(30):
        c = solve(
            [[sqrt(w) * r ** (j + 1) / 2**r for j in range(degree + 1)] for r, w in zip(rs, weights)],
            [sqrt(w) * (2**r - 1) / 2**r for r, w in zip(rs, weights)],
        )
        errors = [
            abs((1 + sum(a * r ** (j + 1) for j, a in enumerate(c))) / 2**r - 1) for r in rs
        ]
        weights = [w * e for w, e in zip(weights, errors)]
        weights = [w / sum(weights) for w in weights]
    show("exp2", c)

BOUND, DEGREE = 5.65625, 16
x = np.cos(np.pi * (np.arange(4000) + 0.5) / 8000) * BOUND
u = 2 * (x / BOUND) ** 2 - 1
last = 0.5 / BOUND
right = erf(x / np.sqrt(2)) / (2 * x) - last
basis = chebyshev.chebvander(u, DEGREE - 1) * (u - 1)[:, None]
weights = np.ones_like(x)
for _ in range(400):
    scale = np.sqrt(weights) * x * x
    c = np.linalg.lstsq(basis * scale[:, None], right * scale, rcond=None)[0]
    weights *= np.abs((basis @ c - right) * x * x) ** 0.5
    weights /= weights.sum()
show("gelu", polynomial.polyadd(polynomial.polymul(chebyshev.cheb2poly(c), [-1, 1]), [last]))

END = 5.5
t = (1 - np.cos(np.pi * (np.arange(6000) + 0.5) / 6000)) / 2 * END
gelu = t * ndtr(-t)
allowed = np.maximum(gelu, 2.0**-8) / (gelu * np.log(2))
for degree in (5, 3):
    basis, right = np.vander(t, degree + 1, increasing=True)[:, 1:], log_ndtr(-t) / np.log(2) + 1
    weights = np.ones_like(t)
    for _ in range(300):
        scale = np.sqrt(weights) / allowed
        c = np.linalg.lstsq(basis * scale[:, None], right * scale, rcond=None)[0]
        errors = np.abs(basis @ c - right) / allowed
        weights *= errors**0.5
        weights /= weights.sum()
    show("gelu on GPUs, largest error 2^%.1f:" % np.log2(errors.max()), [-1, *c])
