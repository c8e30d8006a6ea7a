#!/usr/bin/env python3
"""The advisor before real applications: what it finds is what corpus.tsv says by hand, and nothing else.

    corpus_test.py [NAME]...

Each application of the table runs once through `penstock advise --proxy`, whose findings are compared with the table's, and so are
those of the server's own advisor. Each has a server of its own, which hasn't learned words of others' keys. A machine that is too busy makes pauses of round trips, so a wrong result counts only when
it comes up three times.

Columns of corpus.tsv: the program, the application's name in it, the finding (`-`: there must be none), its steps, words of its remedy,
the trips that it must count at least, and why that is so. An application has a line for each finding.
"""

import contextlib
import csv
import json
import os
import pathlib
import signal
import subprocess
import sys

import redis

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from run import Server  # noqa: E402

ROOT = HERE.parent.parent
CACHE = ROOT / ".cache"
PROGRAMS = {
    "python": [str(CACHE / "venv/bin/python"), str(HERE / "corpus.py")],
    "ruby": ["/usr/bin/ruby", str(HERE / "corpus.rb")],
    "node": ["node", str(HERE / "corpus.js")],
    "go": [str(CACHE / "corpus-go")],
    "java": ["java", "-cp", f"{CACHE}/redisson/*", str(HERE / "Corpus.java")],
}
# A network on which a busy machine's delays are no pauses.
ROUND_TRIP = "2ms"
# What a busy machine may make of round trips: of so many of the trips in the table must be counted.
COUNTED_MIN = 0.5
TRIES = 3
APPLICATION_SECONDS_MAX = 90


def table():
    """The applications by name: the program, and the findings that each must lead to."""
    applications = {}
    with open(HERE / "corpus.tsv", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            assert None not in row.values() and None not in row, row
            _, findings = applications.setdefault(row["application"], (row["program"], []))
            if row["finding"] != "-":
                findings.append(row)
    return applications


class Proxy:
    """`penstock advise --proxy` before the server: its address, and its report once it has ended."""

    def __init__(self, url, round_trip=ROUND_TRIP):
        program = os.environ.get("ADVISE_PROGRAM", os.environ["PENSTOCK_PROGRAM"])
        command = [program, "advise", "--proxy", "0", "--rtt", round_trip, "--json", url]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        line = self.process.stderr.readline()
        assert "passing " in line, line
        self.url = "redis://" + line.split("passing ")[1].split()[0]

    def end(self):
        self.process.send_signal(signal.SIGINT)
        output, _ = self.process.communicate(timeout=30)
        return json.loads(output)["findings"]


def steps_of(finding):
    return ", ".join(f"{step['command']} {step['pattern']}".strip() for step in finding["steps"])


def run(program, name, url):
    """Runs an application behind a proxy; returns what is found."""
    proxy = Proxy(url)
    environment = os.environ | {"PENSTOCK_URL": proxy.url, "DIRECT_URL": url}
    try:
        subprocess.run(
            [*PROGRAMS[program], name], env=environment, stdin=subprocess.DEVNULL, check=True, capture_output=True, text=True,
            timeout=APPLICATION_SECONDS_MAX,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{name} failed:\n{error.stdout}\n{error.stderr}") from error
    finally:
        found = proxy.end()
    return [
        {"kind": f["kind"], "steps": steps_of(f), "remedy": f["remedy"], "made": f["trips_made"], "sure": f["confidence"]}
        for f in found
    ]


def of_server(client):
    """What the server's own advisor has found, of all clients but those that make ready."""
    found = []
    for fields in client.execute_command("ADVISE", "LIST", "COUNT", "-1"):
        finding = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2]))
        if finding["client"].startswith("setup"):
            continue
        steps = ", ".join(finding["steps"])
        made = int(finding["round-trips-made"])
        found.append({"kind": finding["kind"], "steps": steps, "remedy": finding["remedy"], "made": made, "sure": finding["confidence"]})
    return found


def mistakes(expected, found):
    """What is wrong with the findings, as lines."""
    wrong, left = [], list(found)
    for row in expected:
        # A round may begin at any of its steps.
        steps = sorted(row["steps"].split(", "))
        fits = [f for f in left if f["kind"] == row["finding"] and sorted(f["steps"].split(", ")) == steps]
        if not fits:
            wrong.append(f"not found: {row['finding']} of {row['steps']}")
            continue
        left.remove(fits[0])
        if row["remedy"] not in fits[0]["remedy"]:
            wrong.append(f"remedy of {row['steps']}: {fits[0]['remedy']!r}, and not {row['remedy']!r}")
        if fits[0]["made"] < int(row["trips"]) * COUNTED_MIN:
            wrong.append(f"{row['steps']}: {fits[0]['made']} trips, and not {row['trips']}")
    wrong.extend(f"found in vain: {f['kind']} of {f['steps']} ({f['sure']}): {f['remedy']}" for f in left)
    return wrong


def check(name, program, expected):
    """Runs an application until its findings are right, a few times at most. Returns what is wrong with them."""
    for _ in range(TRIES):
        with Server(os.environ["PENSTOCK_PROGRAM"]) as server:
            url = f"redis://127.0.0.1:{server.port}"
            try:
                wrong = [f"proxy: {line}" for line in mistakes(expected, run(program, name, url))]
            except subprocess.TimeoutExpired:
                wrong = [f"no end after {APPLICATION_SECONDS_MAX} seconds"]
            # What connections were in the midst of is told when they are closed, and these are.
            client = redis.Redis.from_url(url, decode_responses=True)
            wrong += [f"server: {line}" for line in mistakes(expected, of_server(client))]
            client.close()
        if not wrong:
            return []
    return wrong


def main():
    applications = table()
    chosen = sys.argv[1:] or list(applications)
    has_java = (CACHE / "redisson").exists()
    wasteful = clean = failed = 0
    for name in chosen:
        program, expected = applications[name]
        if program == "java" and not has_java:
            print(f"{name}: left out, without Java")
            continue
        wrong = check(name, program, expected)
        print(f"{name}: {'; '.join(wrong) or 'right'}", flush=True)
        failed += bool(wrong)
        wasteful += bool(expected)
        clean += not expected
    print(f"{wasteful} that waste, {clean} that don't; {failed} wrong")
    if failed:
        sys.exit(1)
    print(f"{wasteful + clean} checks")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
