#!/usr/bin/env python3
"""Compares the names that servers tell of themselves: commands and what COMMAND says of each, directives, fields of INFO, DEBUG's words.

    interop/surface.py [--server PROGRAM] [--peer NAME=PROGRAM]...

Each peer is a server of docs/compatibility.md: "Redis 7.0", "Redis 8.6", "Valkey 9.1", by default redis-server, redis8-server and
valkey-server from PATH. What a peer has and Penstock lacks, or says otherwise, must be in a table of that page, with its reason; and what
is in a table must be a difference. Prints what isn't so, and ends with status 1 then. Peers that aren't there are named and left out.
"""

import argparse
import fnmatch
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
PEERS = {"Redis 7.0": "redis-server", "Redis 8.6": "redis8-server", "Valkey 9.1": "valkey-server"}
# Fields of INFO that are there once for each command, error, database and so on.
COUNTED = re.compile(r"(cmdstat|errorstat|latency_percentiles|db\d|slave\d|listener\d|module:|io_thread_)")


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")

    def call(self, *words):
        words = [word.encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words))
        return self.read()

    def read(self):
        line = self.file.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind in b"+-,(":
            return rest.decode()
        if kind == b":":
            return int(rest)
        if kind == b"_":
            return None
        if kind in b"$=":
            text = self.file.read(int(rest) + 2)[:-2].decode() if int(rest) >= 0 else None
            return text[4:] if kind == b"=" else text
        if kind in b"*~>":
            return [self.read() for _ in range(int(rest))]
        if kind == b"%":
            return {self.read(): self.read() for _ in range(int(rest))}
        raise SystemExit(f"no reply: {line!r}")


class Server:
    """A server with nothing in it, and what it tells of itself."""

    def __init__(self, program):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.directory = tempfile.TemporaryDirectory()
        argv = [program, "--port", str(port), "--save", "", "--enable-debug-command", "yes", "--dir", self.directory.name]
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while True:
            try:
                connection = Connection(port)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise SystemExit(f"{program} does not listen")
                time.sleep(0.05)
        connection.call("HELLO", "3")
        self.commands, self.docs = {}, {}
        for entry in connection.call("COMMAND"):
            self.add_command(entry)
        self.add_docs(connection.call("COMMAND", "DOCS"))
        self.directives = set(connection.call("CONFIG", "GET", "*"))
        lines = connection.call("INFO", "everything").splitlines()
        fields = (line.split(":")[0] for line in lines if ":" in line and not COUNTED.match(line))
        self.fields = set(fields)
        self.words = debug_words(connection.call("DEBUG", "HELP"))
        self.process.kill()
        self.process.wait()
        self.directory.cleanup()

    def add_command(self, entry):
        name, arity, flags, first, last, step, categories, tips, specs, subcommands = entry[:10]
        specs = [{key: value for key, value in spec.items() if key != "notes"} for spec in specs]
        for spec in specs:
            spec["flags"] = sorted(spec["flags"])
        # Names of vector sets are in upper case in Redis.
        self.commands[name.lower()] = {
            "arity": arity, "flags": set(flags), "positions": (first, last, step), "categories": set(categories),
            "tips": set(tips), "key specs": specs,
        }
        for subcommand in subcommands:
            self.add_command(subcommand)

    def add_docs(self, docs):
        for name, entry in docs.items():
            self.docs[name.lower()] = {
                "tokens": tokens(entry.get("arguments")), "since": entry.get("since"), "group": entry.get("group"),
                "history": {version for version, _ in entry.get("history", ())}, "types": types(entry.get("arguments")),
                "versions": versions(entry.get("arguments")), "deprecated": entry.get("deprecated_since"), "marks": set(entry.get("doc_flags", ())) - {"deprecated"},
            }
            self.add_docs(entry.get("subcommands", {}))


def tokens(arguments):
    found = set()
    for argument in arguments or ():
        if argument.get("token"):
            found.add(argument["token"].upper())
        found |= tokens(argument.get("arguments"))
    return found


def types(arguments):
    """The types of the arguments that are given a value, by their names."""
    found = {}
    for argument in arguments or ():
        if argument["type"] not in ("oneof", "block", "pure-token"):
            found[argument["name"]] = argument["type"]
        found |= types(argument.get("arguments"))
    return found


def versions(arguments):
    """What brought and what deprecated the arguments, by their words; by their names, if they have none."""
    found = {}
    for argument in arguments or ():
        # Redis 7.0 writes names with underscores.
        word = argument.get("token") or argument["name"].replace("_", "-")
        found.setdefault(word, set()).add((argument.get("since"), argument.get("deprecated_since")))
        for word, pairs in versions(argument.get("arguments")).items():
            found.setdefault(word, set()).update(pairs)
    return found


def debug_words(lines):
    """The subcommands; Penstock's page has several in a line."""
    words = set()
    for line in lines[1:]:
        if not line.startswith(" "):
            words |= set(re.findall(r"(?:^|, )([A-Z][A-Z_-]+)", line))
    return words


def differences(ours, theirs):
    """Pairs of what differs and the name of where."""
    for name, facts in theirs.commands.items():
        if name not in ours.commands:
            yield "command", name, ""
            continue
        for what, fact in facts.items():
            if fact != ours.commands[name][what]:
                yield what, name, f"{fact} there, {ours.commands[name][what]} here"
    for name, facts in theirs.docs.items():
        here = ours.docs.get(name)
        if here:
            missing = facts.pop("tokens") - here["tokens"]
            if missing:
                yield "tokens", name, f"{sorted(missing)}"
            # Penstock may have what the peer lacks, and has names of its own for some arguments.
            versions = facts.pop("history") - here["history"]
            if versions:
                yield "history", name, f"{sorted(versions)}"
            there, own = facts.pop("types"), here["types"]
            unlike = {argument for argument in there if there[argument] != "string" and own.get(argument, there[argument]) != there[argument]}
            if unlike:
                yield "types", name, f"{sorted(unlike)}"
            # Some arguments have names of their own here, and some words are in several places.
            there, own = facts.pop("versions"), here["versions"]
            unlike = {word: (sorted(there[word], key=str), sorted(own[word], key=str)) for word in there if not there[word] <= own.get(word, there[word])}
            if unlike:
                yield "versions", name, f"there and here: {unlike}"
            for what, fact in facts.items():
                if fact != here[what]:
                    yield what, name, f"{fact} there, {here[what]} here"
    for what, there, here in (("directive", theirs.directives, ours.directives), ("INFO", theirs.fields, ours.fields),
                              ("DEBUG", theirs.words, ours.words)):
        for name in there - here:
            yield what, name, ""


def listed():
    """The page's rows: what, a name or pattern, the peers."""
    rows = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and cells[0] in KINDS:
            for name in re.findall(r"`([^`]+)`", cells[1]):
                rows.append((cells[0], name.replace("\\|", "|"), cells[2]))
    return rows


KINDS = {"command", "arity", "flags", "positions", "categories", "tips", "key specs", "tokens", "since", "group", "deprecated", "marks",
         "history", "types", "versions", "directive", "INFO", "DEBUG"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=str(ROOT / "target" / "release" / "penstock"))
    parser.add_argument("--peer", action="append", default=[])
    args = parser.parse_args()
    peers = PEERS | dict(peer.split("=", 1) for peer in args.peer)
    ours, rows, used, wrong = Server(args.server), listed(), set(), 0
    for peer, program in peers.items():
        if not shutil.which(program):
            print(f"{peer} is left out: there is no {program}")
            used |= {row for row in rows if peer in row[2]}
            continue
        for what, name, how in sorted(differences(ours, Server(program)), key=str):
            reasons = [row for row in rows if row[0] == what and fnmatch.fnmatchcase(name, row[1]) and (row[2] == "all" or peer in row[2])]
            used |= set(reasons)
            if not reasons:
                print(f"{peer}: {what} of {name} differs, which docs/compatibility.md doesn't say: {how}")
                wrong += 1
    for what, name, where in rows:
        if (what, name, where) not in used:
            print(f"docs/compatibility.md says that {what} of {name} differs ({where}), which isn't so")
            wrong += 1
    print(f"{len(used)} rows of differences, {wrong} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
