# SPDX-License-Identifier: Apache-2.0
"""What run.py measured, as JSON, as tables of Markdown and as charts."""
import html
import json
import math
import statistics
import struct

# Ours, the peer it is held against, the factor that is aimed at on every shape.
GOALS = [("sparse24-f32", "openvino-f32", 1.5), ("sparse24-f32", "deepsparse-f32", 1.0),
         ("sparse24-f32", "onnxruntime-f32", None), ("sparse24-f32", "sparse24-f32-dense", None),
         ("sparse24-bf16", "openvino-bf16", 1.35), ("sparse24-i8", "onnxruntime-i8", 1.3)]


DTYPES = ("f32", "bf16", "i8")


def read_embeddings(path):
    """The rows of the f32 matrix `embeddings` of a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    entry = json.loads(data[8:8 + size])["embeddings"]
    (rows, cols), begin = entry["shape"], 8 + size + entry["data_offsets"][0]
    return [struct.unpack_from(f"<{cols}f", data, begin + 4 * cols * r) for r in range(rows)]


def least_cosine(vectors, reference):
    """The worst text's; both sides have length 1, but for their rounding."""
    def cosine(a, b):
        return (math.fsum(x * y for x, y in zip(a, b, strict=True))
                / math.sqrt(math.fsum(x * x for x in a) * math.fsum(y * y for y in b)))
    return min(cosine(a, b) for a, b in zip(vectors, reference, strict=True))


def label(cell):
    return f"{cell['model']} {cell['batch']} x {cell['seq']}"


def columns(cells):
    """Every column that some cell has: by dtype, ours first."""
    def order(name):
        engine, dtype = name.split("-")[:2]
        return DTYPES.index(dtype), engine != "sparse24", name

    return sorted({name for cell in cells for name in cell["samples_ms"]}, key=order)


def ratios(cell, ours, peer):
    """(median, least, largest) of peer's time over ours in the same round; None without both."""
    samples = cell["samples_ms"]
    if ours not in samples or peer not in samples:
        return None
    found = [b / a for a, b in zip(samples[ours], samples[peer], strict=True)]
    return statistics.median(found), min(found), max(found)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def rate_table(cells):
    """Texts a second: the median round, and half of the rounds' range in percent of it."""
    names, rows = columns(cells), []
    for cell in cells:
        row = [label(cell), str(cell["threads"])]
        for name in names:
            times = cell["samples_ms"].get(name)
            if not times:
                row.append("-")
                continue
            middle = statistics.median(times)
            spread = 50 * (max(times) - min(times)) / middle
            row.append(f"{1000 * cell['batch'] / middle:.1f} ±{spread:.0f} %")
        rows.append(row)
    return table(["texts x tokens", "T", *names], rows)


def ratio_table(cells):
    """The goals' ratios; bold where the goal is reached."""
    goals = [g for g in GOALS if any(ratios(c, g[0], g[1]) for c in cells)]
    rows = []
    for cell in cells:
        row = [label(cell), str(cell["threads"])]
        for ours, peer, goal in goals:
            found = ratios(cell, ours, peer)
            if not found:
                row.append("-")
                continue
            text = f"{found[0]:.2f}"
            reached = goal is not None and found[0] >= goal * factor(cell)
            row.append((f"**{text}**" if reached else text) + f" ({found[1]:.2f}-{found[2]:.2f})")
        rows.append(row)
    rows += [mean_row(cells, goals, threads) for threads in sorted({c["threads"] for c in cells})]
    head = [f"{ours} / {peer}" + (f" (aim {goal})" if goal else "") for ours, peer, goal in goals]
    return table(["texts x tokens", "T", *head], rows)


def factor(cell):
    """BERT-base is asked for 95 % of what is asked for the small model."""
    return 0.95 if cell["model"] == "bert-base" else 1.0


def mean_row(cells, goals, threads):
    row = ["geometric mean", str(threads)]
    for ours, peer, _ in goals:
        found = [ratios(c, ours, peer) for c in cells if c["threads"] == threads]
        logs = [math.log(r[0]) for r in found if r]
        row.append(f"{math.exp(statistics.fmean(logs)):.2f}" if logs else "-")
    return row


def markdown(found):
    machine, cells = found["machine"], found["cells"]
    isa = ", ".join(machine["isa"])
    versions = ", ".join(f"{name} {v}" for name, v in found["versions"].items())
    lines = [f"# Encoders beside other engines, {found['date']}\n",
             f"{machine['cpu']} ({isa}), {machine['cores']} cores; {machine['system']}. {versions}. "
             f"{found['rounds']} rounds, turns of {found['turn_ms']} ms; `{found['command']}`\n",
             "Texts a second: median of the rounds ± half their range. sparse24-DTYPE runs 2:4 "
             "weights, sparse24-DTYPE-dense the same weights with their zeros; deepsparse has the "
             "2:4 weights, the others dense ones.\n", rate_table(cells),
             "Ratios of the same round, above 1: sparse24 is faster; median (least-largest), bold "
             "where the aim is reached (95 % of it for bert-base).\n", ratio_table(cells)]
    if found["least_cosine"]:
        lines += ["Least cosine of a text's vector to PyTorch's f32 one of the same weights:\n",
                  table(["engine", "least cosine"],
                        [[n, f"{c:.5f}"] for n, c in found["least_cosine"].items()])]
    if found["notes"]:
        lines += ["Left out:\n", "\n".join(f"- {message} ({'; '.join(places)})"
                                            for message, places in found["notes"].items()) + "\n"]
    return "\n".join(lines)


# ---- charts ------------------------------------------------------------------------------------

COLOURS = {"sparse24": "#1f6fb5", "deepsparse": "#c9651b", "openvino": "#7a828c",
           "onnxruntime": "#a9b0b8", "torch": "#cfd4d9"}
LEFT, BAR, WIDTH, RIGHT = 150, 13, 520, 60


def chart_bars(cells, threads, base):
    """(title, [(column, ratio to base)]) of every cell that has base."""
    groups = []
    for cell in cells:
        if cell["threads"] != threads or base not in cell["samples_ms"]:
            continue
        bars = [(name, ratios(cell, name, base)[0]) for name in columns(cells)
                if name in cell["samples_ms"]]
        groups.append((label(cell), bars))
    return groups


def chart(found, threads, base="openvino-f32"):
    """Bars of speed, base's being 1; None when no cell has base."""
    groups = chart_bars(found["cells"], threads, base)
    if not groups:
        return None
    most = max(value for _, bars in groups for _, value in bars)
    plural = "s" if threads > 1 else ""
    title = f"Encoders on {threads} thread{plural}: speed, {base} = 1 ({found['date']})"
    y, out = 48, []
    out.append(f'<text x="8" y="20" font-weight="bold">{html.escape(title)}</text>')
    out.append(f'<text x="8" y="36">{html.escape(found["machine"]["cpu"])}; texts x tokens</text>')
    for name, bars in groups:
        y += 18
        out.append(f'<text x="8" y="{y}" font-weight="bold">{html.escape(name)}</text>')
        for column, value in bars:
            y += BAR + 2
            colour = COLOURS[column.split("-")[0]]
            shade = ' fill-opacity="0.5"' if column.endswith("-dense") else ""
            width = WIDTH * value / most
            out.append(f'<text x="{LEFT - 6}" y="{y}" text-anchor="end">{html.escape(column)}</text>'
                       f'<rect x="{LEFT}" y="{y - BAR + 2}" width="{width:.1f}" height="{BAR}" '
                       f'fill="{colour}"{shade}/>'
                       f'<text x="{LEFT + width + 4:.1f}" y="{y}">{value:.2f}</text>')
        y += 4
    mark = LEFT + WIDTH / most
    out.append(f'<line x1="{mark:.1f}" x2="{mark:.1f}" y1="44" y2="{y}" stroke="#1c2128" '
               'stroke-dasharray="3 3"/>')
    width, height = LEFT + WIDTH + RIGHT, y + 12
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'font-family="system-ui, sans-serif" font-size="11"><title>{html.escape(title)}</title>'
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>' + "\n".join(out) + "</svg>\n")


def write(folder, found):
    (folder / "peers.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    text = markdown(found)
    for threads in sorted({c["threads"] for c in found["cells"]}):
        svg = chart(found, threads)
        if svg:
            (folder / f"peers-{threads}t.svg").write_text(svg, encoding="utf-8")
            text += f"\n![Speed, threads: {threads}](peers-{threads}t.svg)\n"
    (folder / "peers.md").write_text(text, encoding="utf-8")
