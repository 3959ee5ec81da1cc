# SPDX-License-Identifier: Apache-2.0
"""The demo's result as a table of plain text and as one self-contained HTML page with plots.

The page loads nothing from anywhere: style and SVG stand in it. Plots are 360 units wide so that
their words stay readable on a phone, and take their colours from the style, light or dark.
"""
import html
import math
import shlex

TITLES = {"dense": "dense", "magnitude": "magnitude", "wanda": "Wanda", "sparsegpt": "SparseGPT",
          "refined": "refined", "recovered": "recovered"}
LEGEND = 3  # names a line

STYLE = """
:root { --ink: #1c2128; --soft: #59636e; --paper: #ffffff; --line: #d5dae0;
        --dense: #7a828c; --magnitude: #c9651b; --sparsegpt: #1f6fb5; --recovered: #2c8a57;
        --wanda: #b03a6f; --refined: #7250b8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --soft: #a2abb6; --paper: #15181c; --line: #363c44;
          --dense: #99a2ad; --magnitude: #e8955a; --sparsegpt: #62aae6; --recovered: #63c08d;
          --wanda: #e387ae; --refined: #ab92e6; } }
body { background: var(--paper); color: var(--ink); margin: 0 auto; padding: 1rem;
       max-width: 60rem; font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
p, li { max-width: 42rem; } small, .soft { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem .25rem 0; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr));
         gap: 1.5rem; }
figure { margin: 0; } figcaption { font-weight: 600; margin-bottom: .25rem; }
svg { width: 100%; height: auto; max-width: 32rem; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .soft { fill: var(--soft); } svg line { stroke: var(--line); }
.dense { fill: var(--dense); } .magnitude { fill: var(--magnitude); }
.sparsegpt { fill: var(--sparsegpt); } .recovered { fill: var(--recovered); }
.wanda { fill: var(--wanda); } .refined { fill: var(--refined); }
svg path { fill-opacity: .55; stroke-width: 1.5; }
@media (max-width: 30rem) { th, td { padding-right: .4rem; font-size: .85rem; } }
path.magnitude { stroke: var(--magnitude); } path.sparsegpt { stroke: var(--sparsegpt); }
path.recovered { stroke: var(--recovered); }
path.wanda { stroke: var(--wanda); } path.refined { stroke: var(--refined); }
pre { overflow-x: auto; padding: .75rem; border: 1px solid var(--line); border-radius: .4rem; }
"""


# ---- rows, shared by both forms -----------------------------------------------------------------


def models_of(result):
    """The models that were compared, in the order of their columns."""
    return [m for m in TITLES if m in result["files"]]


def quality_rows(result):
    """(label, one for each model), each already text."""
    models = models_of(result)
    files, layers, quality = result["files"], result["layer_bytes"], result["quality"]

    def megabytes(sizes):
        return [f"{sizes[m] / 1e6:.1f} ({sizes[m] / max(sizes['dense'], 1):.3f}x)" for m in models]

    rows = [["folder, MB", *megabytes({m: files[m]["folder"] for m in models})],
            ["weights file, MB", *megabytes({m: files[m]["weights"] for m in models})],
            ["pruned layers, MB", *megabytes(layers)],
            ["cosine to dense, mean", *(f"{quality[m]['cosine_mean']:.3f}" for m in models)],
            ["cosine to dense, worst", *(f"{quality[m]['cosine_worst']:.3f}" for m in models)]]
    for name, found in retrieval(result):
        for key, label in (("top1", "top-1"), ("top5", "top-5")):
            rows.append([f"{name}, {label} %", *(f"{found[m][key]:.2f}" for m in models)])
    return rows


def retrieval(result):
    """(name, {model: {top1, top5}}) of every set that was searched."""
    found = []
    if "top1" in result["quality"]["dense"]:
        found.append((result["texts"], result["quality"]))
    return found + [(entry["name"], entry) for entry in result["question_sets"]]


def speed_rows(result):
    """(label, dense sentences/s, 2:4 sentences/s, ratio), numbers."""
    rows = []
    for row in sorted(result["speed"], key=lambda r: (r["threads"], r["batch"], r["seq"])):
        threads = "1 thread" if row["threads"] == 1 else f"{row['threads']} threads"
        rate = 1000.0 * row["batch"]
        rows.append((f"{row['batch']} x {row['seq']} tokens, {threads}", rate / row["dense_ms"],
                     rate / row["sparse_ms"], row["dense_ms"] / row["sparse_ms"]))
    return rows


BUSY = 1.5  # times its median, at the 95th percentile, no pass of a quiet machine takes


def busy_note(result):
    """A sentence on other work that ran next to the speed rows, or ""."""
    worst = max((row["p95_ms"] / row["p50_ms"] for row in result["speed"]), default=1)
    if worst <= BUSY:
        return ""
    return (f"Other work ran on this machine while speed was measured: some passes took "
            f"{worst:.1f} times their median. Rates are too low, and ratios may be wrong.")


def table(result):
    """The table at the end of the demo, with what disturbed it."""
    lines = [["", *(TITLES[m] for m in models_of(result))], *quality_rows(result), [],
             ["sentences/s", "dense", "2:4", "ratio"]]
    lines += [[label, f"{dense:.1f}", f"{sparse:.1f}", f"{ratio:.2f}x"]
              for label, dense, sparse, ratio in speed_rows(result)]
    columns = len(lines[0])
    widths = [max(len(line[i]) for line in lines if i < len(line)) for i in range(columns)]
    text = []
    for line in lines:
        cells = [cell.ljust(widths[0]) if i == 0 else cell.rjust(widths[i])
                 for i, cell in enumerate(line)]
        text.append("  ".join(cells).rstrip())
        if line and not line[0] or line and line[0] == "sentences/s":
            text.append("-" * (sum(widths) + 2 * (columns - 1)))
    if busy_note(result):
        text += ["", busy_note(result)]
    return "\n".join(text)


# ---- plots --------------------------------------------------------------------------------------


def svg(height, inside, label):
    return (f'<svg viewBox="0 0 360 {height}" role="img" aria-label="{html.escape(label)}">'
            f"{''.join(inside)}</svg>")


def figure(title, picture):
    return f"<figure><figcaption>{html.escape(title)}</figcaption>{picture}</figure>"


def bars(title, groups, unit):
    """groups: (label, [(class, title, value, text)]); horizontal bars under each label."""
    top = max((bar[2] for _, group in groups for bar in group), default=1) or 1
    y, inside = 0, []
    for label, group in groups:
        inside.append(f'<text x="0" y="{y + 14}">{html.escape(label)}</text>')
        y += 20
        for kind, name, value, text in group:
            width = max(220 * value / top, 1)
            inside.append(f'<rect class="{kind}" x="0" y="{y}" width="{width:.1f}" height="14">'
                          f"<title>{html.escape(f'{label}, {name}: {text} {unit}')}</title></rect>"
                          f'<text x="{width + 5:.1f}" y="{y + 11}">{html.escape(text)} '
                          f'<tspan class="soft">{html.escape(name)}</tspan></text>')
            y += 17
        y += 6
    return figure(title, svg(y, inside, title))


def axis(low, high, digits):
    """A frame of 300 x 150 with the two ends of x below it."""
    return ['<line x1="30" y1="160" x2="350" y2="160"/>',
            f'<text class="soft" x="30" y="175">{low:.{digits}f}</text>',
            f'<text class="soft" x="350" y="175" text-anchor="end">{high:.{digits}f}</text>']


def legend(kinds):
    inside = []
    for i, kind in enumerate(kinds):
        x, y = 30 + 110 * (i % LEGEND), 184 + 16 * (i // LEGEND)
        inside.append(f'<rect class="{kind}" x="{x}" y="{y}" width="10" height="10"/>'
                      f'<text x="{x + 15}" y="{y + 9}">{TITLES[kind]}</text>')
    return inside


def histogram(title, series):
    """series: class to values; a step line each, from the lowest value to 1."""
    low = min((min(v) for v in series.values()), default=0)
    low = min(int(low * 10) / 10, 0.9)
    bins = 30
    counts = {}
    for kind, values in series.items():
        counts[kind] = [0] * bins
        for value in values:
            place = int((value - low) / (1 - low) * bins)
            counts[kind][min(max(place, 0), bins - 1)] += 1
    top = max(max(c) for c in counts.values()) or 1
    inside = axis(low, 1, 1)
    for kind, found in counts.items():
        points = []
        for i, count in enumerate(found):
            y = 160 - 150 * count / top
            points += [f"{30 + 320 * x / bins:.1f},{y:.1f}" for x in (i, i + 1)]
        inside.append(f'<path class="{kind}" d="M30,160 L{" ".join(points)} L350,160"/>')
    height = 182 + 16 * math.ceil(len(series) / LEGEND)
    return figure(title, svg(height, inside + legend(series), title))


def layer_bars(title, layers):
    """One thin bar a layer, in the order of the model: the output error of SparseGPT."""
    errors = [layer["output_error"] or 0 for layer in layers]
    top = max(errors, default=0) or 1
    step = 320 / max(len(errors), 1)
    inside = ['<line x1="30" y1="160" x2="350" y2="160"/>',
              f'<text class="soft" x="30" y="10">{top:.3f}</text>',
              '<text class="soft" x="30" y="175">first layer</text>',
              '<text class="soft" x="350" y="175" text-anchor="end">last</text>']
    for i, (layer, error) in enumerate(zip(layers, errors)):
        height = 140 * error / top
        name = html.escape(f"{layer['name']}: {error:.4f}")
        inside.append(f'<rect class="sparsegpt" x="{30 + i * step:.1f}" y="{160 - height:.1f}" '
                      f'width="{step * 0.75:.1f}" height="{height:.1f}">'
                      f'<title>{name}</title></rect>')
    return figure(title, svg(180, inside, title))


def plots(result):
    layers, quality, models = result["layer_bytes"], result["quality"], models_of(result)
    weights = {m: result["files"][m]["weights"] for m in models}
    sizes = [(label, [("dense", "dense", sizes["dense"] / 1e6, f"{sizes['dense'] / 1e6:.1f}"),
                      ("sparsegpt", "2:4 packed", sizes["sparsegpt"] / 1e6,
                       f"{sizes['sparsegpt'] / 1e6:.1f}")])
             for label, sizes in (("weights file", weights), ("pruned layers", layers))]
    found = [bars("Size, MB", sizes, "MB")]
    for name, got in retrieval(result):
        groups = [(label, [(m, TITLES[m], got[m][key], f"{got[m][key]:.1f}") for m in models])
                  for key, label in (("top1", "top-1"), ("top5", "top-5"))]
        found.append(bars(f"Retrieval: {name}, %", groups, "%"))
    found.append(bars("Sentences a second (bars: against dense)", [
        (label, [("dense", "dense", 1, f"{dense:.1f}"),
                 ("sparsegpt", f"2:4, {ratio:.2f}x", ratio, f"{sparse:.1f}")])
        for label, dense, sparse, ratio in speed_rows(result)], "sentences/s"))
    found.append(histogram("Cosine of the embeddings to the dense ones",
                           {m: quality[m]["cosines"] for m in models[1:]}))
    found.append(layer_bars("Relative squared output error, layer by layer (SparseGPT)",
                            result["layers"]["sparsegpt"]))
    return "".join(found)


CHOICES = {"magnitude": "the two largest (magnitude)",
           "wanda": "those largest next to what they multiply (Wanda)",
           "sparsegpt": "chosen and corrected by SparseGPT",
           "refined": "by SparseGPT, then refined by what layers give, without labels"}


def chosen(result):
    """How each column's weights were chosen."""
    return ", ".join(f"once {text}" for model, text in CHOICES.items() if model in result["files"])


# ---- the page -----------------------------------------------------------------------------------


def html_table(head, rows):
    def line(cells, tag):
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"
    return ('<div class="wide"><table>' + line(head, "th") + "".join(line(r, "td") for r in rows)
            + "</table></div>")


def search_part(search):
    if not search:
        return ""
    hits = "".join(f"<li>{h['score']:.3f}, line {h['line']}: {html.escape(h['text'][:160])}</li>"
                   for h in search["hits"])
    return ("<h2>Search by meaning</h2><pre>" + html.escape(shlex.join(search["command"]))
            + f"</pre><ol>{hits}</ol>")


def recovery_part(recovery):
    """Writes what the column "recovered" means."""
    if not recovery:
        return ""
    return (f"<p>Recovered: what SparseGPT left, distilled from the dense model for "
            f"{recovery['minutes']:g} minutes ({recovery['step']} steps, "
            f"{recovery['tokens']} tokens, {recovery['epoch']:.1f} epochs, without labels).</p>")


def html_page(result):
    """The whole report."""
    about = result["machine"]
    speeds = [[label, f"{dense:.1f}", f"{sparse:.1f}", f"{ratio:.2f}x"]
              for label, dense, sparse, ratio in speed_rows(result)]
    said = (f"{about['cpu']}, {about['cores']} cores · {about['system']}, "
            f"Linux {about['kernel']} · {result['tool']} · Python {about['python']} · {about['date']} · "
            f"{result['seconds']:.0f} s in all")
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>sparse24: {html.escape(result['model'])}</title><style>{STYLE}</style></head><body>
<h1>{html.escape(result['model'])}, made 2:4</h1>
<p class="soft">{html.escape(said)}</p>
<p>The linear layers of the blocks ({len(result['layers']['sparsegpt'])} matrices of a
{html.escape(result['model_type'])} model with {result['parameters'] / 1e6:.1f} M parameters) keep
two of every four weights: {html.escape(chosen(result))}. Texts:
{html.escape(result['texts'])}. All run from packed weights; embeddings, norms and the pooling stay
dense.</p>
<h2>Size and quality</h2>
{recovery_part(result["recovery"])}
{html_table(["", *(TITLES[m] for m in models_of(result))], quality_rows(result))}
<h2>Speed, sentences a second</h2>
{html_table(["batch x tokens", "dense", "2:4", "ratio"], speeds)}
<p>{html.escape(busy_note(result))}</p>
<p class="soft">Medians, from token ids to embeddings, the weights resident; dense is this build's
dense engine on the same weights in the same run.</p>
<h2>Plots</h2><div class="plots">{plots(result)}</div>
{search_part(result.get('search'))}
</body></html>
"""
