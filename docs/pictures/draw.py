"""Draws the pictures of the README beside this file: `make pictures`.

    python docs/pictures/draw.py                # throughput-light.svg, throughput-dark.svg, from benches/runs
    python docs/pictures/draw.py REPORT.html    # and report-light.png, report-dark.png, from a report's page
"""

import argparse
import io
import json
import re
from pathlib import Path

import altair as alt
from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
RUNS = HERE.parents[1] / "benches" / "runs"

# The chart. Workload W2: documents of mixed lengths, as on the web (benches/README.md).
CPU = RUNS / "2026-11-20-intel-r-xeon-r-processor" / "peers.json"
GPU = RUNS / "2026-11-27-h200"
GPU_PADDED = RUNS / "2026-11-26-h200" / "second.txt"  # the PyTorch that pads was measured on another card
ENGINES = {"polysift": "polysift", "ov": "OpenVINO", "ort": "ONNX Runtime", "torch": "PyTorch"}
# Pixels. Fonts differ in width where the chart is seen, so labels and numbers have room to spare.
PANEL, BAR, NUMBER = 190, 20, 50
LABELS = {"cpu": 105, "gpu": 185}
COLOURS = {
    "light": {"text": "#1f2328", "soft": "#59636e", "ours": "#2f6db3", "peers": "#c4cad1"},
    "dark": {"text": "#e6edf3", "soft": "#9198a1", "ours": "#6ea8e6", "peers": "#4b535d"},
}

# The top of the page: languages and findings.
WINDOW = {"width": 1100, "height": 925}
LARGEST = 250_000  # bytes


def cpu_rows():
    """Title, machine and bars of the run on a CPU."""
    run = json.loads(CPU.read_text("utf-8"))
    machine = run["machine"]
    name = " ".join(re.sub(r"\(R\)|Processor", "", machine["cpu"]).split())
    units = "AVX-512, no AMX" if not any(f.startswith("amx") for f in machine["flags"]) else "AVX-512, AMX"
    bars = []
    for row in run["engines"]:
        engine, _, dtype = row["engine"].partition("-")
        if row["workload"] == "W2" and dtype in ("f32", "int8") and engine in ENGINES:
            bars.append((dtype, ENGINES[engine], row["tokens_per_sec"], f"{row['tokens_per_sec']:,.0f}"))
    where = f"{machine['cores']} cores of an {name}, model {machine['model']} ({units})"
    return "Tokens per second, CPU", where, bars


def gpu_rows():
    """Title, machine and bars of the run on a GPU."""

    def find(pattern, path):
        found = re.findall(pattern, path.read_text("utf-8"), re.MULTILINE)
        if len(found) != 1:
            raise SystemExit(f"{path}: {len(found)} lines are like {pattern}")
        return int(found[0].replace(",", ""))

    ours = r"^polysift +W2 +(\d+) tokens/s .* batch_tokens 33792, batches_at_once all"
    packed = r"^packed, compiled, {} W2: ([\d,]+)"
    rates = [
        ("bf16", "polysift", find(ours + "$", GPU / "encode.txt")),
        ("bf16", "PyTorch, compiled, packed", find(packed.format("bf16"), GPU / "peers.txt")),
        ("bf16", "PyTorch, padded*", find(r"^pytorch-padded W2: ([\d,]+)", GPU_PADDED)),
        ("fp8", "polysift", find(ours + ", precision fp8$", GPU / "encode.txt")),
        ("fp8", "PyTorch, compiled, packed", find(packed.format("fp8"), GPU / "peers.txt")),
    ]
    card = re.search(r"^(NVIDIA \w+)", GPU.with_suffix(".md").read_text("utf-8"), re.MULTILINE)[1]
    bars = [(dtype, label, rate, f"{rate / 1e6:.2f}") for dtype, label, rate in rates]
    return "Million tokens per second, GPU", f"one {card} (* measured on another {card.split()[1]})", bars


def panel(title, machine, bars, labels, colours):
    """Horizontal bars with their numbers, a group for each precision."""
    groups = list(dict.fromkeys(dtype for dtype, *_ in bars))
    largest = max(rate for _, _, rate, _ in bars)
    charts = []
    axis = alt.Axis(minExtent=labels, maxExtent=labels)
    order = alt.EncodingSortField("rate", order="descending")
    for group in groups:
        rows = [
            {"label": label, "rate": rate, "text": text, "ours": label == "polysift"}
            for dtype, label, rate, text in bars
            if dtype == group
        ]
        base = alt.Chart(alt.Data(values=rows)).encode(
            y=alt.Y("label:N", sort=order, title=group, axis=axis),
            x=alt.X("rate:Q", axis=None, scale=alt.Scale(domain=[0, largest], range=[0, PANEL])),
        )
        highlight = alt.when(alt.datum.ours)
        bar = base.mark_bar(height=BAR * 0.7).encode(
            color=highlight.then(alt.value(colours["ours"])).otherwise(alt.value(colours["peers"]))
        )
        number = base.mark_text(align="left", dx=5, fontSize=12).encode(
            text="text:N",
            color=highlight.then(alt.value(colours["text"])).otherwise(alt.value(colours["soft"])),
        )
        charts.append((bar + number).properties(width=PANEL + NUMBER, height=BAR * len(rows)))
    heading = alt.TitleParams(title, subtitle=machine, anchor="start", offset=12)
    return alt.vconcat(*charts, spacing=14, title=heading)


def draw_chart():
    panels = [(*cpu_rows(), LABELS["cpu"]), (*gpu_rows(), LABELS["gpu"])]
    for scheme, colours in COLOURS.items():
        chart = alt.hconcat(*(panel(*rows, colours) for rows in panels), spacing=20)
        chart = chart.configure(
            background="transparent",
            font="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif",
            view=alt.ViewConfig(stroke=None),
            title=alt.TitleConfig(
                color=colours["text"], fontSize=14, subtitleColor=colours["soft"], subtitleFontSize=11.5
            ),
            axisY=alt.AxisConfig(
                domain=False,
                ticks=False,
                labelColor=colours["text"],
                labelFontSize=12,
                labelLimit=200,
                titleColor=colours["soft"],
                titleFontSize=12,
                titleFontWeight="normal",
                titleAngle=0,
                titleAlign="left",
                titleAnchor="start",
            ),
        )
        chart.save(HERE / f"throughput-{scheme}.svg")


def draw_report(page, chromium):
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in COLOURS:
            tab = browser.new_page(viewport=WINDOW, device_scale_factor=2, color_scheme=scheme)
            tab.goto(page.resolve().as_uri())
            tab.wait_for_function("document.documentElement.dataset.ready")
            tab.evaluate("document.fonts.ready")
            tab.wait_for_timeout(500)
            shot = tab.screenshot()
            save(Image.open(io.BytesIO(shot)).convert("RGB"), HERE / f"report-{scheme}.png")
            tab.close()
        browser.close()


def save(image, path):
    """A PNG with as many colours as fit into LARGEST bytes."""
    for colours in (256, 128, 64, 32, 16):
        data = io.BytesIO()
        image.quantize(colours, dither=Image.Dither.NONE).save(data, "PNG", optimize=True)
        if len(data.getvalue()) <= LARGEST:
            path.write_bytes(data.getvalue())
            return
    raise SystemExit(f"{path} has {len(data.getvalue())} bytes even in few colours: make WINDOW smaller")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("report", type=Path, nargs="?")
    arguments.add_argument("--chromium", default="/usr/bin/chromium")
    args = arguments.parse_args()
    draw_chart()
    if args.report:
        draw_report(args.report, args.chromium)
    for picture in sorted(HERE.glob("*-*.*g")):
        print(f"{picture.stat().st_size:>8}  {picture}")


if __name__ == "__main__":
    main()
