"""Makes amx.txt: what TDPBF16PS gives for numbers of every size, computed with exact fractions.

Usage: python3 amx.py > amx.txt

After the pseudocode of Intel's Software Developer's Manual, volume 2: a line for each kind of numbers,
with the sums of 16 x 32 in hexadecimal after two steps of 16 pairs. `splitmix64` makes the operands
here and in src/cpu/gemm/tests.rs.
"""

from fractions import Fraction

LEAST = Fraction(2) ** -126
# Lowest exponent and their number, of factors and of sums: around 1; products around 2^-126; also
# numbers below it; sums that overflow; far apart.
KINDS = [(124, 6, 124, 6), (62, 4, 1, 8), (0, 70, 0, 70), (180, 12, 240, 14), (40, 140, 40, 140)]


class Numbers:
    def __init__(self, state: int) -> None:
        self.state = state

    def number(self, low: int, count: int) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = (self.state ^ self.state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        bits = (z ^ z >> 31) >> 32
        return bits & 0x807FFFFF | low + (bits >> 23 & 0xFF) % count << 23

    def pair(self, low: int, count: int) -> int:
        even = self.number(low, count) >> 16
        return even | self.number(low, count) & 0xFFFF0000


def value(bits: int) -> Fraction | float:
    """A number that is not NaN; those below 2^-126 are 0."""
    exponent, sign = bits >> 23 & 255, -1 if bits >> 31 else 1
    if exponent == 255:
        return sign * float("inf")
    return sign * (bits & 0x7FFFFF | 1 << 23) * Fraction(2) ** (exponent - 150) if exponent else Fraction(0)


def rounded(x: Fraction | float) -> Fraction | float:
    """To 24 bits, ties to even, as if exponents had no end; then to 0 or infinity outside of f32."""
    if not isinstance(x, Fraction) or x == 0:
        return x
    size, exponent = abs(x), abs(x).numerator.bit_length() - abs(x).denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    unit = Fraction(2) ** (exponent - 23)
    size = round(size / unit) * unit
    if size < LEAST:
        return Fraction(0)
    size = float("inf") if size >= Fraction(2) ** 128 else size
    return size if x > 0 else -size


def add(x: Fraction | float, y: Fraction | float) -> Fraction | float:
    """With infinities, which are floats: they and finite numbers are not added as fractions."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return rounded(x + y)
    return (x if isinstance(x, float) else 0.0) + (y if isinstance(y, float) else 0.0)


def text(x: Fraction | float) -> str:
    """Hexadecimal bits without the sign of a zero, which fractions have not; or "nan"."""
    if x != x:
        return "nan"
    if x == 0:
        return "0"
    sign = 1 << 31 if x < 0 else 0
    if isinstance(x, float):
        return f"{sign | 0x7F800000:x}"
    exponent = abs(x).numerator.bit_length() - abs(x).denominator.bit_length()
    exponent -= Fraction(2) ** exponent > abs(x)
    mantissa = int(abs(x) / Fraction(2) ** (exponent - 23)) - (1 << 23)
    return f"{sign | exponent + 127 << 23 | mantissa:x}"


def main() -> None:
    for state, (low, count, sum_low, sum_count) in enumerate(KINDS):
        numbers = Numbers(state)
        a, b = ([[[numbers.pair(low, count) for _ in range(width)] for _ in range(16)] for _ in range(2)]
                for width in (16, 32))
        sums = [[numbers.number(sum_low, sum_count) for _ in range(32)] for _ in range(16)]
        if state == 1:
            # 2^-126 - 3 * 2^-152 is below 2^-126 with 24 bits, and 2^-126 as a subnormal number.
            a[0][0], a[1][0], sums[0][0] = [0x2000, 0x99C0] + [0] * 14, [0] * 16, 0
            b[0][0][0], b[0][1][0] = 0x2000, 0x1A00
        line = []
        for row in range(16):
            for column in range(32):
                total = value(sums[row][column])
                for step in range(2):
                    chains = [Fraction(0), Fraction(0)]
                    for k in range(16):
                        for part, shift in enumerate((16, 0)):
                            x, y = ((word << shift) & 0xFFFF0000
                                    for word in (a[step][row][k], b[step][k][column]))
                            chains[part] = add(chains[part], value(x) * value(y))
                    total = add(total, add(*chains))
                line.append(text(total))
        print(*line)


if __name__ == "__main__":
    main()
