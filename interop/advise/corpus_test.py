#!/usr/bin/env python3
"""The advisor before real applications: what it finds is what corpus.tsv says by hand, and nothing else.

    corpus_test.py [NAME]...

Each application of the table runs through `penstock advise --proxy`, and then at the server itself. The findings of three advisors are
compared with the table's: of the proxy, of the server, and of `penstock advise redis://`, which reads MONITOR. Each run has a server of its
own, which has learned no words of other keys. A busy machine turns round trips into pauses, so an application with a wrong result runs up
to three times (ADVISE_TRIES), and the best result of each advisor counts.

The last lines have the numbers of each advisor: wasteful applications whose findings were all found and had the right remedy, and clean
applications with a false finding. The test fails if a promise is broken: no advisor has a false finding with high confidence, few clean
applications have a finding of more than low confidence, and most wasteful applications are found.

Applications that are left after ADVISE_SECONDS (400) are not run. The order is the same each time, and all languages are among the first
applications.

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
import time

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
    "php": ["/usr/bin/php", str(HERE / "corpus.php")],
    "go": [str(CACHE / "corpus-go")],
    "java": ["java", "-cp", f"{CACHE}/redisson/*", str(HERE / "Corpus.java")],
}
# A network on which a busy machine's delays are no pauses.
ROUND_TRIP = "2ms"
# What a busy machine may make of round trips: of so many of the trips in the table must be counted.
COUNTED_MIN = 0.5
TRIES = int(os.environ.get("ADVISE_TRIES", "3"))
SECONDS_MAX = float(os.environ.get("ADVISE_SECONDS", "400"))
# The promises. A quiet machine finds more than FOUND_MIN.
CLEAN_WITH_FINDING_MAX = 2
FOUND_MIN = 0.85
# Steps through the table that reach each application once: no divisor of their number.
STRIDE = 37
# Longer than any application runs: the watch ends with it.
WATCH_TIME = "600s"
APPLICATION_SECONDS_MAX = 90
ADVISORS = ["proxy", "server", "MONITOR"]


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
        assert "forwarding " in line, line
        self.url = "redis://" + line.split("forwarding ")[1].split()[0]

    def end(self):
        self.process.send_signal(signal.SIGINT)
        output, _ = self.process.communicate(timeout=30)
        return json.loads(output)["findings"]


class Watch:
    """`penstock advise` that reads the server's MONITOR."""

    def __init__(self, url):
        program = os.environ.get("ADVISE_PROGRAM", os.environ["PENSTOCK_PROGRAM"])
        command = [program, "advise", "--for", WATCH_TIME, "--json", url]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        line = self.process.stderr.readline()
        assert "watching " in line, line
        with redis.Redis.from_url(url, client_name="setup") as client:
            while not any(fields["cmd"] == "monitor" for fields in client.client_list()):
                time.sleep(0.01)

    end = Proxy.end


def steps_of(finding):
    return ", ".join(f"{step['command']} {step['pattern']}".strip() for step in finding["steps"])


def of_json(findings):
    """The findings of a report, without those of clients that make ready."""
    return [
        {"kind": f["kind"], "steps": steps_of(f), "remedy": f["remedy"], "made": f["trips_made"], "sure": f["confidence"]}
        for f in findings
        if not f["client"]["name"].startswith("setup")
    ]


def run(program, name, url, direct):
    """Runs an application. It connects to `url`, and prepares its data at `direct`."""
    environment = os.environ | {"PENSTOCK_URL": url, "DIRECT_URL": direct}
    try:
        subprocess.run(
            [*PROGRAMS[program], name], env=environment, stdin=subprocess.DEVNULL, check=True, capture_output=True, text=True,
            timeout=APPLICATION_SECONDS_MAX,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{name} failed:\n{error.stdout}\n{error.stderr}") from error


def behind_proxy(program, name, url):
    """Runs an application behind a proxy; returns the findings of the proxy and of MONITOR."""
    watch, proxy = Watch(url), Proxy(url)
    try:
        run(program, name, proxy.url, url)
    finally:
        found, watched = proxy.end(), watch.end()
    return {"proxy": of_json(found), "MONITOR": of_json(watched)}


def at_server(program, name, url):
    """Runs an application at the server; returns the findings of the server, which measures the network of each connection itself."""
    run(program, name, url, url)
    # What connections were in the midst of is told when they are closed, and these are.
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return {"server": of_server(client)}


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


def is_false_high(wrong):
    """True if a false finding has high confidence."""
    return any("(high)" in line for line in wrong if line.startswith("found in vain"))


class Counts:
    """The results of one advisor."""

    def __init__(self):
        self.found = self.right = self.false = self.false_low = self.false_high = 0

    def add(self, expected, wrong):
        self.found += bool(expected) and not any(line.startswith("not found") for line in wrong)
        self.right += bool(expected) and not any(line.startswith(("not found", "remedy")) for line in wrong)
        false = [line for line in wrong if line.startswith("found in vain")]
        self.false += not expected and bool(false)
        self.false_low += not expected and bool(false) and all("(low)" in line for line in false)
        self.false_high += is_false_high(wrong)


def attempt(name, program, expected):
    """Runs an application. Returns what is wrong with the findings of each advisor."""
    found = {}
    for watched in (behind_proxy, at_server):
        with Server(os.environ["PENSTOCK_PROGRAM"]) as server:
            try:
                found |= watched(program, name, f"redis://127.0.0.1:{server.port}")
            except subprocess.TimeoutExpired:
                return {advisor: [f"not found: no end after {APPLICATION_SECONDS_MAX} seconds"] for advisor in ADVISORS}
    return {advisor: mistakes(expected, found[advisor]) for advisor in ADVISORS}


def check(name, program, expected):
    """Runs an application until its findings are right, a few times at most. Returns the mistakes in the best result of each advisor."""
    best = {}
    for _ in range(TRIES):
        for advisor, wrong in attempt(name, program, expected).items():
            best[advisor] = min(best.get(advisor, wrong), wrong, key=len)
        if not any(best.values()):
            break
    return best


def mixed(names):
    """The names in an order in which neighbours of the table are far from each other."""
    assert len(names) % STRIDE
    return [names[place * STRIDE % len(names)] for place in range(len(names))]


def broken_promises(counts, wasteful):
    """The promises that an advisor breaks, as lines. `wasteful` is the number of applications that must have a finding."""
    broken = []
    for advisor, of in counts.items():
        if of.false_high:
            broken.append(f"{advisor}: {of.false_high} applications have a false finding with high confidence")
        # A finding with low confidence tells that it may have another cause.
        if of.false - of.false_low > CLEAN_WITH_FINDING_MAX:
            broken.append(f"{advisor}: more than {CLEAN_WITH_FINDING_MAX} clean applications have a finding")
        if of.found < FOUND_MIN * wasteful:
            broken.append(f"{advisor}: only {of.found} of {wasteful} wasteful applications were found")
    return broken


def main():
    applications = table()
    chosen = sys.argv[1:] or mixed(list(applications))
    began = time.monotonic()
    has_java = (CACHE / "redisson").exists()
    counts = {advisor: Counts() for advisor in ADVISORS}
    wasteful = clean = failed = 0
    for place, name in enumerate(chosen):
        if time.monotonic() - began > SECONDS_MAX:
            print(f"{len(chosen) - place} applications are left out after {SECONDS_MAX:.0f} seconds")
            break
        program, expected = applications[name]
        if program == "java" and not has_java:
            print(f"{name}: left out, without Java")
            continue
        wrong = check(name, program, expected)
        lines = [f"{advisor}: {line}" for advisor in ADVISORS for line in wrong[advisor]]
        print(f"{name}: {'; '.join(lines) or 'right'}", flush=True)
        for advisor in ADVISORS:
            counts[advisor].add(expected, wrong[advisor])
        failed += bool(lines)
        wasteful += bool(expected)
        clean += not expected
    for advisor, of in counts.items():
        print(
            f"{advisor}: {of.found} of {wasteful} found, {of.right} right, {of.false} of {clean} clean ones with a false finding, "
            f"{of.false_low} only low; {of.false_high} false ones high"
        )
    print(f"{wasteful} that waste, {clean} that don't; {failed} wrong")
    broken = broken_promises(counts, wasteful)
    if broken:
        sys.exit("\n".join(broken))
    print(f"{wasteful + clean} checks")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
