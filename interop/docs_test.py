#!/usr/bin/env python3
"""Runs the commands that README.md and docs/*.md show, and compares what they print with what the page shows.

    interop/docs_test.py [--server PROGRAM] [PAGE]...

How to write a page:

- A fenced block opened by ```console is run. Its lines that begin with `$ ` are commands for bash; a command goes on in
  the next line where its line ends with a backslash (that line may begin with `> `, as the shell shows it).
- The lines after a command, up to the next one, are its output (both streams). They must be equal to what it prints; a
  line `...` stands for any lines, none included. A command without output lines may print what it likes.
- Every command must end with status 0. `|| true` says that a failure is the point.
- A block opened by ```console no-run is left alone, as is every other kind (```sh, ```text): commands that install
  something, start a server in the foreground, or never end.

Each page gets a fresh server. The page speaks of port 6379 and the test puts the server's own port in its place, in
commands and outputs alike, and that of its HTTP port in the place of 8379; `redis-cli`, `redis-benchmark` and `penstock cli` without -p reach that server, too, and both
clis print what they print on a terminal unless a pipe takes it. A block is one shell, so that variables and background jobs last to
its end, with the repository as its directory, and the built programs on its PATH. What it leaves running ends with it.
"""

import argparse
import os
import pathlib
import re
import shutil
import sys
import tempfile

from cluster import free_port
from run import ROOT, Server, run_bounded

BLOCK_SECONDS_MAX = 120
# Between the outputs of a block's commands: a byte that no page shows, then the status of the command before it.
MARK = "\x1e"


def blocks(text):
    """The runnable blocks of a page, each as its line number and a list of (command, expected lines)."""
    for found in re.finditer(r"^```console *\n(.*?)^``` *$", text, re.MULTILINE | re.DOTALL):
        number = text.count("\n", 0, found.start()) + 1
        yield number, list(commands(found[1].splitlines()))


def commands(lines):
    """Splits a block's lines into commands and the output lines that follow each."""
    lines = list(lines)
    if lines and not lines[0].startswith("$ "):
        raise SystemExit(f"a console block begins with a command, not with {lines[0]!r}")
    while lines:
        command = lines.pop(0)[2:]
        while command.endswith("\\") and lines:
            command += "\n" + lines.pop(0).removeprefix("> ")
        output = []
        while lines and not lines[0].startswith("$ "):
            output.append(lines.pop(0))
        yield command, output


def matches(expected, printed):
    """Whether `printed` is what `expected` shows, where a line `...` stands for any lines."""
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line) + r"\n" for line in expected)
    return re.fullmatch(pattern, "".join(line + "\n" for line in printed)) is not None


def shims(directory, port, penstock):
    """Programs that reach our server where a page names no port. A later -p wins over this one."""
    as_on_a_terminal = "[ -p /dev/stdout ] || set -- --no-raw \"$@\"\n"
    cli = f'shift\n{as_on_a_terminal}exec {penstock} cli -p {port} "$@"\n'
    shim = pathlib.Path(directory, "penstock")
    shim.write_text(f'#!/bin/sh\nif [ "$1" = cli ]; then\n{cli}fi\nexec {penstock} "$@"\n')
    shim.chmod(0o755)
    for name, prelude in [("redis-cli", as_on_a_terminal), ("redis-benchmark", "")]:
        real = shutil.which(name)
        if real:
            shim = pathlib.Path(directory, name)
            shim.write_text(f'#!/bin/sh\n{prelude}exec {real} -p {port} "$@"\n')
            shim.chmod(0o755)


def run_block(steps, server, shim_directory):
    """Runs one block; returns what is wrong with it, or None."""

    def here(text):
        return text.replace("6379", str(server.port)).replace("8379", str(server.http_port))

    script = "".join(f"{here(command)}\nprintf '\\n{MARK}%s\\n' $?\n" for command, _ in steps)
    environment = server.environment()
    programs = os.path.dirname(os.path.abspath(server.command[0]))
    environment["PATH"] = f"{shim_directory}:{programs}:{environment['PATH']}"
    status, text = run_bounded(["bash", "-c", script], environment, ROOT, BLOCK_SECONDS_MAX)
    results = re.findall(rf"(.*?)\n{MARK}(\d+)\n", text.replace("\r", ""), re.DOTALL)
    for (command, expected), (output, code) in zip(steps, results):
        if code != "0":
            return f"$ {command}\nstatus {code}:\n{output}"
        printed = output.rstrip("\n").split("\n") if output.strip("\n") else []
        if expected and not matches([here(line) for line in expected], printed):
            return f"$ {command}\nprinted:\n{output}\nbut the page shows:\n" + "\n".join(expected)
    if len(results) < len(steps):
        ended = "no end" if status is None else f"the shell ended with status {status}"
        return f"$ {steps[len(results)][0]}\n{ended}:\n{text[-2000:]}"
    return None


def run_page(page, program):
    """Runs a page's blocks against a server of its own; returns (commands that were right, blocks that failed)."""
    found = list(blocks(page.read_text()))
    right = failed = 0
    if not found:
        return right, failed
    http_port = free_port()
    with Server(program, ["--http-port", str(http_port)]) as server, tempfile.TemporaryDirectory() as directory:
        server.http_port = http_port
        shims(directory, server.port, os.path.abspath(program))
        for number, steps in found:
            defect = run_block(steps, server, directory)
            if defect is None:
                right += len(steps)
            else:
                failed += 1
                print(f"{page.relative_to(ROOT)}:{number}: FAILED\n{defect}\n", flush=True)
    return right, failed


def self_test():
    """The rules above, checked on a page of our own, so that a page can't pass because nothing is compared."""
    page = "```console\n$ echo a \\\n> b\na b\n$ true\n```\n```sh\n$ false\n```\n```console no-run\n$ false\n```\n"
    assert list(blocks(page)) == [(1, [("echo a \\\nb", ["a b"]), ("true", [])])]
    for expected, printed, answer in [
        (["a"], ["a"], True), (["a"], ["b"], False), (["a"], ["a", "b"], False), (["a", "..."], ["a", "b", "c"], True),
        (["...", "c"], ["a", "c"], True), (["...", "c"], ["c"], True), (["a.c"], ["abc"], False),
    ]:  # fmt: skip
        assert matches(expected, printed) == answer, (expected, printed)


def pinned_versions():
    """The versions of cluster clients that the tests install, by the names of docs/cluster.md."""
    python, npm, go, java, test = (
        (ROOT / path).read_text()
        for path in ["interop/python/requirements.txt", "interop/node/package.json", "interop/go/go.mod", "interop/java/cluster/pom.xml", "test"]
    )

    def found(pattern, text):
        return re.search(pattern, text)[1]

    return {
        "redis-py": found(r"(?m)^redis==(.*)$", python),
        "ioredis": found(r'"ioredis": "(.*?)"', npm),
        "node-redis": found(r'"redis": "(.*?)"', npm),
        "go-redis": found(r"redis/go-redis/v9 v(\S+)", go),
        "rueidis": found(r"redis/rueidis v(\S+)", go),
        "Jedis": found(r"jedis</artifactId>\s*<version>(.*?)<", java),
        "Lettuce": found(r"lettuce-core</artifactId>\s*<version>(.*?)\.RELEASE<", java),
        "libvalkey": found(r"local version=(\S+) test=interop/c/cluster_test.c", test),
    }


def check_versions():
    """Checks that docs/cluster.md names the versions that are tested. Debian's package decides the version of redis-rb."""
    page = (ROOT / "docs/cluster.md").read_text()
    shown = dict(re.findall(r"^\| (\S+) (\d[\d.]*\d)\b.*\|$", page, re.MULTILINE))
    wrong = {name: version for name, version in pinned_versions().items() if shown.get(name) != version}
    if wrong:
        raise SystemExit(f"docs/cluster.md does not name these versions: {wrong}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default=str(ROOT / "target/release/penstock"), metavar="PROGRAM")
    parser.add_argument("pages", nargs="*", type=pathlib.Path, metavar="PAGE")
    options = parser.parse_args()
    self_test()
    check_versions()
    program = shutil.which(options.server)
    if program is None:
        parser.error(f"no such program: {options.server}")
    pages = [page.resolve() for page in options.pages] or [
        page for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if page.exists()
    ]
    results = [run_page(page, os.path.abspath(program)) for page in pages]
    right, failed = (sum(column) for column in zip(*results)) if results else (0, 0)
    print(f"docs: {right} passed; {failed} failed (in {len(pages)} pages)")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
