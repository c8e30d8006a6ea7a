#!/usr/bin/env python3
"""Tests the Grafana dashboard and Prometheus's alert rules of this directory against a running server.

    packaging/monitoring_test.py --binary FILE [--port PORT]

Each metric that they name must exist in /metrics of a server that has answered some batches, and each label that they choose by must be
one of the metric's. The dashboard must have the form that Grafana imports. With promtool from PATH, it also checks every expression, and
runs the rules on the series of alerts_test.yml.
"""

import argparse
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
DASHBOARD = HERE / "grafana" / "dashboard.json"
RULES = HERE / "prometheus" / "alerts.yml"
RULES_TEST = HERE / "prometheus" / "alerts_test.yml"
METRIC = re.compile(r"\b((?:redis|penstock)_[a-z0-9_]+)\b(?:\{([^}]*)\})?")
LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
# Labels that Prometheus adds to every series, and the one of buckets.
ADDED = {"instance", "job", "le"}
PANELS = {"row", "stat", "timeseries", "heatmap"}
COLUMNS = 24


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as reply:
        return reply.read().decode()


def batch(port, commands):
    """Sends commands as one batch, and reads the beginning of the replies."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall("".join(f"{command}\r\n" for command in commands).encode())
        assert client.recv(1), "no reply"


def metrics_of_a_server(binary, port):
    """Returns /metrics of a server that has answered batches of every class of depth."""
    http_port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        command = [binary, "--port", port, "--http-port", http_port, "--dir", directory, "--save", "", "--bind", "127.0.0.1", "--appendonly", "yes"]
        server = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    fetch(f"http://127.0.0.1:{http_port}/metrics")
                    break
                except urllib.error.URLError:
                    assert time.monotonic() < deadline and server.poll() is None, "the server doesn't start"
                    time.sleep(0.05)
            for depth in (1, 2, 16, 128):
                batch(port, ["PING"] * depth)
            return fetch(f"http://127.0.0.1:{http_port}/metrics")
        finally:
            server.terminate()
            server.wait()


def labels_by_metric(text):
    """Returns the labels of each sample's name."""
    found = {}
    for line in text.splitlines():
        sample = re.match(r"([a-z0-9_]+)(?:\{(.*)\})? ", line)
        if sample:
            found.setdefault(sample[1], set()).update(re.findall(r'([a-z_]+)="', sample[2] or ""))
    return found


def targets(board):
    return [(panel["title"], target) for panel in board["panels"] for target in panel.get("targets", [])]


def expressions(board):
    """Returns the expressions of a dashboard with its variables replaced, and those of its variables."""
    plain = lambda text: re.sub(r"\$(instance|depth)", ".*", text.replace("$__rate_interval", "5m"))
    return [(title, plain(target["expr"])) for title, target in targets(board)]


def check_form(board):
    """Yields what Grafana would not import, or show as intended."""
    for name in ("title", "uid", "schemaVersion", "templating", "time", "panels"):
        if name not in board:
            yield f"the dashboard has no {name}"
    ids = [panel["id"] for panel in board["panels"]]
    if len(set(ids)) != len(ids):
        yield "two panels have one id"
    taken = set()
    for panel in board["panels"]:
        title, place = panel.get("title"), panel["gridPos"]
        if panel["type"] not in PANELS or not title:
            yield f"panel {panel['id']}: type {panel['type']}, title {title}"
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        if taken & cells or any(x >= COLUMNS for x, _ in cells):
            yield f"{title}: overlaps another panel, or is beyond the last column"
        taken |= cells
        if panel["type"] != "row" and not panel.get("targets"):
            yield f"{title}: no expression"
        refs = [target["refId"] for target in panel.get("targets", [])]
        if len(set(refs)) != len(refs):
            yield f"{title}: two expressions have one refId"
    known = {variable["name"] for variable in board["templating"]["list"]} | {"__rate_interval"}
    for used in set(re.findall(r"\$\{?([a-z_]+)", json.dumps(board))) - known - {"__all"}:
        yield f"the variable {used} is not defined"


def check_names(where, expression, known):
    """Yields the metrics and labels of an expression that no server has."""
    for name, chosen in METRIC.findall(expression):
        if name not in known:
            yield f"{where}: no metric {name}"
        for label in set(LABEL.findall(chosen)) - ADDED - known.get(name, set()):
            yield f"{where}: {name} has no label {label}"


def check_with_promtool(board):
    """Yields promtool's complaints."""
    rules = [{"record": f"panel:number:{number}", "expr": expr} for number, (_, expr) in enumerate(expressions(board))]
    with tempfile.TemporaryDirectory() as directory:
        # JSON is YAML.
        panels = pathlib.Path(directory) / "panels.yml"
        panels.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
        for command in (["check", "rules", panels], ["check", "rules", RULES], ["test", "rules", RULES_TEST]):
            done = subprocess.run(["promtool", *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                yield f"promtool {' '.join(map(str, command))}:\n{done.stdout}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, metavar="FILE", help="the server")
    parser.add_argument("--port", type=int, help="its port [default: a free one]")
    options = parser.parse_args()
    board, rules = json.loads(DASHBOARD.read_text()), RULES.read_text()
    known = labels_by_metric(metrics_of_a_server(options.binary, options.port or free_port()))
    wrong = list(check_form(board))
    for where, expression in [*expressions(board), ("alerts.yml", rules)]:
        wrong += check_names(where, expression, known)
    for variable in board["templating"]["list"]:
        wrong += check_names(f"variable {variable['name']}", variable.get("definition", ""), known)
    if shutil.which("promtool"):
        wrong += check_with_promtool(board)
    else:
        print("promtool is missing: expressions are not checked")
    print("\n".join(wrong) or f"{len(board['panels'])} panels and the alert rules fit {len(known)} metrics")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
