"""What PyTorch reaches on the GPU with the encoder's products, attention and a copy: the bars beside ours.

    python cuda_bars.py [--tokens 16896] [--device cuda]

Each line: what was expected of an H200, and what is measured (median of 20 times ten in a row). What this
PyTorch does not have is skipped. Needs torch; opens no connection.
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F

# Outputs x inputs of the base shape, and TFLOP/s expected in bf16.
SHAPES = {
    "qkv": (2304, 768, "640"),
    "attention output": (768, 768, "550"),
    "ffn1": (3072, 768, "620"),
    "ffn2": (768, 3072, "710"),
}
FP8, FP8_ROWS = "1000 to 1100", "900 or more"
HEADS, HEAD_SIZE, LENGTH = 12, 64, 512


def seconds(work, device):
    """Median time of one call."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    times = []
    for _ in range(22):
        wait()
        began = time.perf_counter()
        for _ in range(10):
            work()
        wait()
        times.append((time.perf_counter() - began) / 10)
    return statistics.median(times[2:])


def show(name, expected, unit, amount, make, device):
    """Measures what `make` returns; `amount` in units of 1e12 a second."""
    try:
        measured = f"{amount / seconds(make(), device) / 1e12:.4g} {unit}"
    except Exception as error:  # whatever this PyTorch or GPU lacks
        measured = f"skipped: {str(error).splitlines()[0][:90]}"
    print(f"{name:<40} {expected + ' ' + unit + ' expected,':>34} {measured}", flush=True)


def scaled(x, weight, rows):
    """The product in e4m3 with a scale a tensor, or a scale a row."""
    def quantise(values):
        largest = values.abs().amax(1, keepdim=True) if rows else values.abs().amax().reshape(1, 1)
        scale = (largest / 448).float()
        return (values / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale

    (x, of_x), (weight, of_weight) = quantise(x), quantise(weight)
    return lambda: torch._scaled_mm(x, weight.t(), scale_a=of_x, scale_b=of_weight.t(), out_dtype=torch.bfloat16)


def varlen(q, k, v, count):
    """Attention over `count` sequences in one row of tokens, as polysift packs them."""
    from torch.nn.attention.varlen import varlen_attn

    q, k, v = (part.transpose(1, 2).reshape(-1, HEADS, HEAD_SIZE).contiguous() for part in (q, k, v))
    starts = torch.arange(0, count * LENGTH + 1, LENGTH, dtype=torch.int32, device=q.device)
    return lambda: varlen_attn(q, k, v, starts, starts, LENGTH, LENGTH)


def main():
    """Measures one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=16_896)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    device, tokens, half = args.device.split(":")[0], args.tokens, torch.bfloat16
    print(f"torch {torch.__version__}, {tokens} tokens", flush=True)

    def random(*shape):
        return torch.randn(shape, device=args.device, dtype=half)

    for name, (outputs, inputs, bf16) in SHAPES.items():
        x, weight, bias = random(tokens, inputs), random(outputs, inputs), random(outputs)
        name, work = f"{name} {outputs}x{inputs}", 2 * tokens * outputs * inputs
        show(f"{name}, bf16", bf16, "TFLOP/s", work, lambda: lambda: F.linear(x, weight, bias), device)
        show(f"{name}, fp8 tensor-wide", FP8, "TFLOP/s", work, lambda: scaled(x, weight, False), device)
        show(f"{name}, fp8 row-wise", FP8_ROWS, "TFLOP/s", work, lambda: scaled(x, weight, True), device)
    count = max(1, tokens // LENGTH)
    q, k, v = (random(count, HEADS, LENGTH, HEAD_SIZE) for _ in range(3))
    work = 4 * count * HEADS * LENGTH**2 * HEAD_SIZE
    attend = lambda: lambda: F.scaled_dot_product_attention(q, k, v)  # noqa: E731
    show(f"attention {tuple(q.shape)}", "250 to 450", "TFLOP/s", work, attend, device)
    show(f"attention, {count} packed sequences", "250 to 450", "TFLOP/s", work, lambda: varlen(q, k, v, count), device)
    source = torch.empty(2 * 10**9 * tokens // 16_896, dtype=torch.uint8, device=args.device)
    copy = torch.empty_like(source)
    show("copy, read and written", "4.3", "TB/s", 2 * source.numel(), lambda: lambda: copy.copy_(source), device)


if __name__ == "__main__":
    main()
