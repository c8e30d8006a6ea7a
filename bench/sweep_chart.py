#!/usr/bin/env python3
"""Makes the chart and the list of the documentation from the output of bench/sweep.py.

    bench/sweep_chart.py RESULTS... --plot docs/sweep.svg     a chart of all families, a bar for each file
    bench/sweep_chart.py RESULTS... --slowest 10              the slowest cases of each file, as a table in Markdown

A bar is the geometric mean of a family's ratios: the time of the fastest other server divided by the last server's. The line in each bar
spans its slowest and its fastest case.
"""

import argparse
import math
import pathlib
import re
import sys

ROW = re.compile(r"\s*(?P<ratio>[\d.]+)\s+[\d.]+ to\s+[\d.]+  (?P<family>[a-z ]+): (?P<case>.+): (?P<times>[^:]+)$")
COLOURS = ["#2a6fb0", "#dd8452", "#55a868", "#c44e52"]
LEFT, WIDTH, BAR, GAP = 170, 520, 9, 8
# The axis is logarithmic.
LOWEST, HIGHEST, MARKS = 0.5, 64, (0.5, 1, 2, 4, 8, 16, 32, 64)


def read(path):
    """The title of a file, and its rows: ratio, family, case, times."""
    title, rows = pathlib.Path(path).stem, []
    for line in pathlib.Path(path).read_text().splitlines():
        if line.startswith("# depth"):
            title = line[2:]
        elif row := ROW.match(line):
            rows.append((float(row["ratio"]), row["family"], row["case"], row["times"]))
    if not rows:
        sys.exit(f"{path} holds no output of bench/sweep.py")
    return title, rows


def place(ratio):
    """The horizontal place of a ratio."""
    bounded = min(max(ratio, LOWEST), HIGHEST)
    return LEFT + WIDTH * math.log(bounded / LOWEST) / math.log(HIGHEST / LOWEST)


def bar(ratios, top, colour):
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    start, end = sorted((place(1), place(mean)))
    middle = top + BAR / 2
    yield f'<rect x="{start:.1f}" y="{top}" width="{end - start:.1f}" height="{BAR}" fill="{colour}"/>'
    yield f'<line x1="{place(min(ratios)):.1f}" x2="{place(max(ratios)):.1f}" y1="{middle}" y2="{middle}" stroke="#333"/>'
    yield f'<text x="{LEFT + WIDTH + 8}" y="{top + BAR}" font-size="10" fill="{colour}">{mean:.2f}</text>'


def chart(files):
    families = list(dict.fromkeys(family for _, rows in files for _, family, _, _ in rows))
    step = len(files) * BAR + GAP
    top = 30 + 16 * len(files)
    height = top + step * len(families) + 30
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="760" height="{height}" fill="white"/>',
           f'<text x="{LEFT}" y="18" font-weight="bold">CPU time of the fastest other server, divided by Penstock\'s</text>']
    for number, (title, _) in enumerate(files):
        out.append(f'<text x="{LEFT}" y="{36 + 16 * number}" fill="{COLOURS[number % len(COLOURS)]}">{title}</text>')
    for mark in MARKS:
        stroke = "#000" if mark == 1 else "#ddd"
        out.append(f'<line x1="{place(mark):.1f}" x2="{place(mark):.1f}" y1="{top - 4}" y2="{height - 26}" stroke="{stroke}"/>')
        out.append(f'<text x="{place(mark):.1f}" y="{height - 10}" text-anchor="middle">{mark:g}</text>')
    for index, family in enumerate(sorted(families)):
        at = top + step * index
        out.append(f'<text x="{LEFT - 8}" y="{at + len(files) * BAR / 2 + 4}" text-anchor="end">{family}</text>')
        for number, (_, rows) in enumerate(files):
            ratios = [max(ratio, 0.01) for ratio, of, _, _ in rows if of == family]
            if ratios:
                out += bar(ratios, at + BAR * number, COLOURS[number % len(COLOURS)])
    return "\n".join(out + ["</svg>"]) + "\n"


def slowest(files, count):
    """The slowest cases of each file in Markdown."""
    for title, rows in files:
        yield f"| {title} | ratio | nanoseconds |\n| --- | --- | --- |"
        for ratio, family, case, times in sorted(rows)[:count]:
            yield f"| {family}: {case} | {ratio:.2f} | {times} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", help="files with the output of bench/sweep.py")
    parser.add_argument("--plot", metavar="FILE.svg")
    parser.add_argument("--slowest", type=int, default=0, metavar="N")
    options = parser.parse_args()
    files = [read(path) for path in options.results]
    if options.slowest:
        print("\n".join(slowest(files, options.slowest)))
    if options.plot:
        pathlib.Path(options.plot).write_text(chart(files))


if __name__ == "__main__":
    main()
