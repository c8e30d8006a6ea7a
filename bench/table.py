#!/usr/bin/env python3
"""Makes the tables and the plot of the documentation from the output of bench/side_by_side.py.

    bench/table.py bench/results/DATE-side-by-side.txt                       a table in Markdown
    bench/table.py bench/results/DATE-side-by-side.txt --plot FILE.svg      and a plot of commands a second and core by depth

The last server is compared with the others. Each cell shows the first server's nanoseconds a command, this one's, and their ratio.
"""

import argparse
import math
import pathlib
import sys

NAMES = {
    "ping": "PING", "get": "GET", "set": "SET", "incr": "INCR", "hset": "HSET, a key each", "zadd": "ZADD, a key each",
    "lpush1": "LPUSH, one list", "sadd1": "SADD, one set", "hset1": "HSET, one hash", "zadd1": "ZADD, one sorted set",
    "mset10": "MSET of ten", "mget10": "MGET of ten", "zrange100": "ZRANGE of 100",
}
COLOURS = ["#7f7f7f", "#c44e52", "#dd8452", "#2a6fb0"]


def read(path):
    """Nanoseconds a command: {test: {depth: {server: ns}}}, and the servers in their order."""
    times, servers = {}, []
    for line in pathlib.Path(path).read_text().splitlines():
        words = line.split()
        if len(words) != 6 or words[0] not in NAMES:
            continue
        test, depth, server, ns = words[0], int(words[1]), words[2], float(words[3])
        times.setdefault(test, {}).setdefault(depth, {})[server] = ns
        if server not in servers:
            servers.append(server)
    if not servers:
        sys.exit(f"{path} holds no output of bench/side_by_side.py")
    return times, servers


def table(times, servers):
    """The first server against the last, in Markdown."""
    depths = sorted({depth for by_depth in times.values() for depth in by_depth})
    yield "| | " + " | ".join(f"depth {depth}" if i == 0 else str(depth) for i, depth in enumerate(depths)) + " |"
    yield "| --- |" + " --- |" * len(depths)
    for test, by_depth in times.items():
        cells = []
        for depth in depths:
            ns = by_depth.get(depth, {})
            first, last = ns.get(servers[0]), ns.get(servers[-1])
            cells.append(f"{first:.0f} / {last:.0f} = {first / last:.2f}" if first and last else "")
        yield f"| {NAMES[test]} | " + " | ".join(cells) + " |"


def plot(times, servers, test):
    """Commands a second that one core of each server executes, over the depth, on logarithmic axes."""
    points = {s: [(d, 1e9 / ns[s]) for d, ns in sorted(times[test].items()) if s in ns] for s in servers}
    left, top, width, height = 90, 30, 520, 260
    x_max = math.log10(max(d for line in points.values() for d, _ in line))
    rates = [math.log10(rate) for line in points.values() for _, rate in line]
    low, high = math.floor(min(rates)), math.ceil(max(rates))
    x = lambda depth: left + width * math.log10(depth) / x_max
    y = lambda rate: top + height * (1 - (math.log10(rate) - low) / (high - low))
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 350" font-family="sans-serif" font-size="13">',
           '<rect width="760" height="350" fill="white"/>',
           f'<text x="{left}" y="18" font-weight="bold">{NAMES[test]}: commands a second and core, by the depth of the pipeline</text>']
    for power in range(low, high + 1):
        at = y(10 ** power)
        out.append(f'<line x1="{left}" x2="{left + width}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        label = {5: "100,000", 6: "1 million", 7: "10 million", 8: "100 million"}.get(power, f"10^{power}")
        out.append(f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    for depth in sorted({d for line in points.values() for d, _ in line}):
        out.append(f'<text x="{x(depth):.1f}" y="{top + height + 20}" text-anchor="middle">{depth:,}</text>')
    out.append(f'<text x="{left + width / 2}" y="{top + height + 42}" text-anchor="middle">depth of the pipeline</text>')
    ends = sorted(((line[-1][1], server) for server, line in points.items()), reverse=True)
    label_y = -math.inf
    for rate, server in ends:
        colour = COLOURS[-1] if server == servers[-1] else COLOURS[servers.index(server) % 3]
        line = " ".join(f"{x(d):.1f},{y(r):.1f}" for d, r in points[server])
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        out += [f'<circle cx="{x(d):.1f}" cy="{y(r):.1f}" r="3.5" fill="{colour}"/>' for d, r in points[server]]
        # Labels of lines that end close together must not lie on each other.
        label_y = max(label_y + 16, y(rate) + 4)
        out.append(f'<text x="{left + width + 10}" y="{label_y:.1f}" fill="{colour}">{server} {rate / 1e6:.1f} million</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="what bench/side_by_side.py has printed")
    parser.add_argument("--plot", metavar="FILE.svg")
    parser.add_argument("--test", default="get", help="what to plot")
    options = parser.parse_args()
    times, servers = read(options.results)
    print("\n".join(table(times, servers)))
    if options.plot:
        pathlib.Path(options.plot).write_text(plot(times, servers, options.test))


if __name__ == "__main__":
    main()
