"""Checks in the machine code of a cubin that no operand of a warpgroup's product is overwritten.

    python check_operands.py NVDISASM CUBIN

wgmma reads registers while the threads go on; ptxas 12.9 and 13.0 are known to give such registers to
other values too early. Read in the order of the code, for each kernel with products (HGMMA, QGMMA):

 1. Between a product and the wait for it nobody writes the registers of its left operand.
 2. A left operand that a loop multiplies by an operand stored by columns (no `tnspB`) was made before the
    loop, as the queries of attention are: nothing in the loop writes its registers.

Prints a line per kernel; fails if either is broken, or if no kernel has products.
"""

import re
import subprocess
import sys

PRODUCT = re.compile(r"[HQ]GMMA\S* R(\d+), (?:R(\d+), )?gdesc\[\S+\](\.tnspB)?")
# The first register that an instruction names is the one it writes, but for stores and reductions.
WRITE = re.compile(r"(?:@!?U?P\d+ )?(?!ST|RED|[HQ]GMMA|UTMA)[A-Z][\w.]* R(\d+)\b")
LEFT_REGISTERS = 4


def kernels(sass):
    """Name and instructions (labels among them) of each kernel."""
    for name, body in re.findall(r"^\.text\.(\w+):\n(.*?)(?=^\s*\.section|\Z)", sass, re.S | re.M):
        lines = (re.sub(r"/\*.*?\*/", "", line).strip() for line in body.splitlines())
        yield name, [line for line in lines if line]


def loops(code):
    """First and last line of each loop: branches back."""
    labels = {line[:-1]: i for i, line in enumerate(code) if line.endswith(":")}
    for i, line in enumerate(code):
        branch = re.search(r"BRA.*`\((\S+)\)", line)
        if branch and labels.get(branch[1], i) < i:
            yield labels[branch[1]], i


def faults(code):
    products = [(i, PRODUCT.match(line)) for i, line in enumerate(code)]
    products = [(i, found) for i, found in products if found]
    left = {i: range(int(m[2]), int(m[2]) + LEFT_REGISTERS) for i, m in products if m[2]}
    written = {i: int(m[1]) for i, line in enumerate(code) if (m := WRITE.match(line))}
    for i, registers in left.items():
        wait = next((j for j in range(i, len(code)) if "WARPGROUP.DEPBAR" in code[j]), len(code))
        yield from (code[j] for j in range(i, wait) if written.get(j) in registers)
    by_columns = {i for i, m in products if m[2] and not m[3]}
    for first, last in loops(code):
        kept = {r for i in by_columns if first < i < last for r in left[i]}
        yield from (code[j] for j in range(first, last) if written.get(j) in kept)


def main(nvdisasm, cubin):
    sass = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True).stdout
    checked, bad = 0, 0
    for name, code in kernels(sass):
        count = sum(bool(PRODUCT.match(line)) for line in code)
        if not count:
            continue
        found = list(faults(code))
        checked, bad = checked + 1, bad + len(found)
        verdict = f"{len(found)} overwrite operands, such as {found[0]}" if found else "operands kept"
        print(f"{name:<28} {count:>4} products, {verdict}")
    if not checked:
        sys.exit("no kernel has products of a warpgroup")
    if bad:
        sys.exit(f"{bad} instructions overwrite what a product reads")


main(*sys.argv[1:])
