#!/usr/bin/env python3
"""The code that the advisor suggests runs, and leaves the data that the loop leaves: each remedy of each command, in each library.

    snippets_test.py [LANGUAGE]...

The example `snippets` of the advisor's crate prints the code. The wasteful loop runs at one server (loops.py), and the code at another.
The code in Go and Java is compiled first (compiled.py). A reply that the data is missing or of another type is fine; a syntax
error, an unknown name, an unknown method, or a wrong number of arguments is not, and neither are other data.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

import compiled
import loops
import redis
from loops import VALUES

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from run import Server  # noqa: E402

ROOT = HERE.parent.parent
NODE_REDIS = "JavaScript with node-redis"
# The commands alone, for libraries without code.
PLAIN = "redis-cli"
# Errors about data, and not about code.
FINE = re.compile(
    "no such key|NOSCRIPT|NOGROUP|WRONGTYPE|out of range|Function not found|DUMP payload|is not a(n integer|  ?valid)|could not decode|"
    "not an integer|not a valid float|same|Key is not a valid|wrong Lua|BUSYKEY|unaligned|not a bit|different|min or max|not a string|"
    # The value that a script computes from a missing key; commands of a module.
    "arguments must be strings or integers|unknown command 'JSON|Unknown Redis command called from script.*JSON"
)
# A place for a value among the commands alone.
PLACE = re.compile("<([A-Za-z0-9 ]+)>")
# The variables that a loop over a list binds.
BINDINGS = [
    r"for \(?(?:const )?\[?([\w, ]+?)\]? (?:in|of) LIST\b", r"LIST\.each do \|([\w, ]+)\|", r"LIST\.(?:flat_)?map \{ \|([\w, ]+)\|",
    r"foreach \(\$LIST as \[?([\w$, ]+?)\]?\)", r"LIST\.(?:flatM|m)ap\(\(\[?([\w, ]+)\]?\)",
]  # fmt: skip


def snippets():
    # The release directory, because the unit tests may be compiling in the other one, and a build locks its directory.
    command = ["cargo", "run", "--quiet", "--locked", "--release", "-p", "penstock-advisor", "--example", "snippets"]
    lines = os.environ.get("SNIPPETS")
    text = pathlib.Path(lines).read_text() if lines else subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    seen, all_of = set(), []
    for line in text.splitlines():
        snippet = json.loads(line)
        key = (snippet["language"], snippet["code"])
        if key not in seen:
            seen.add(key)
            all_of.append(snippet)
    return all_of


def bound(code, name="items"):
    """The elements of a list in the code's loops: lists of values if a loop binds several variables."""
    rounds = range(loops.ROUNDS)
    place = [[loops.value(name, number) for name in ("longitude", "latitude", "member")] for number in rounds]
    if "geoadd" in code and "for part in item" in code:
        return place
    for pattern in BINDINGS:
        found = re.search(pattern.replace("LIST", name), code)
        if found:
            names = [name.strip(" $") for name in found[1].split(",")]
            values = [[loops.value(name, number) for name in names] for number in rounds]
            return values if len(names) > 1 else [value for [value] in values]
    if "mapping=fields" in code or "hset(" in code.lower() and ", fields)" in code:
        return None
    if "geoadd" in code.lower():
        return place
    return [[loops.value("member", number), loops.value("score", number)] for number in rounds]


def complete(snippet, url, cluster_url):
    """Adds the values of a snippet's variables, the data to begin with, and the server's address."""
    snippet["url"] = cluster_url if loops.needs_cluster(snippet) else url
    code = snippet["code"]
    rounds = range(loops.ROUNDS)
    snippet["items"], snippet["changes"] = bound(code), bound(code, "changes")
    snippet["values"] = VALUES | loops.scripts_of(snippet["commands"]) | {"amount": loops.amount(snippet)}
    snippet["lists"] = {"fields": ["f"], "members": loops.members(snippet), "entries": [loops.value("entry", number) for number in rounds]}
    snippet["map"] = {loops.value("field", number): loops.value("value", number) for number in rounds}
    snippet["seed"] = loops.seed(snippet)


def django_cache(url):
    """Django's cache."""
    from django.conf import settings
    from django.core.cache import caches

    if not settings.configured:
        settings.configure(CACHES={"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url}})
    return caches["default"]


class Told(Exception):
    """A notification arrived."""


def changed(*_):
    raise Told


def run_python(snippet, client):
    """Runs a snippet. Returns the error, or None, and the data that it leaves."""
    loops.run(client, snippet["seed"], redis.ResponseError)
    error = error_of_python(snippet, snippet["url"])
    return error, client.execute_command("EVAL", loops.SNAPSHOT, "0")


def error_of_python(snippet, url):
    code, items = snippet["code"], snippet["items"]
    r = redis.Redis.from_url(url, decode_responses=True, encoding_errors="replace")
    names = snippet["values"] | snippet["lists"] | {"items": items, "changes": snippet["changes"], "all": items, "options": {"ex": 60}}
    names |= {"URL": url, "r": r, "redis": redis, "changed": changed}
    if items is None:
        names["fields"] = snippet["map"]
    if "cache." in code:
        names |= {"cache": django_cache(url), "timeout": 60}
    names["use"] = lambda element: element
    names["batched"] = lambda values, count: [values[at : at + count] for at in range(0, len(values), count)]
    try:
        exec(compile(code, "snippet", "exec"), names)
    except Told:
        return None
    except redis.ResponseError as error:
        return f"{error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        r.close()
    return None


def run_plain(snippet, client):
    """Runs the commands of a snippet, each with the values of one round. Returns the error, or None; the loop leaves more data."""
    loops.run(client, snippet["seed"], redis.ResponseError)
    values = snippet["values"] | {"sum": 6}
    connection = redis.Redis.from_url(snippet["url"], single_connection_client=True)
    try:
        for line in snippet["code"].splitlines():
            words = [] if line.startswith("#") else [word for word in shlex.split(line) if word != "..."]
            if words and words[0] != "SUBSCRIBE":
                connection.execute_command(*[PLACE.sub(lambda place: str(values[place[1]]), word) for word in words])
    except redis.ResponseError as error:
        return f"{error}", None
    except (redis.RedisError, KeyError) as error:
        return f"{type(error).__name__}: {error}", None
    finally:
        connection.close()
    return None, None


def run_other(program, all_of, url):
    """Runs a program that reads the snippets and prints an error, or null, and the data left, for each."""
    values = {"snapshot": loops.SNAPSHOT, "snippets": all_of, "url": url}
    ran = subprocess.run(program, input=json.dumps(values), capture_output=True, text=True, timeout=600)
    if ran.returncode:
        raise SystemExit(f"{program} failed:\n{ran.stderr[-3000:]}")
    return [tuple(outcome) for outcome in json.loads(ran.stdout)]


class Loops:
    """The data that each loop leaves."""

    def __init__(self, client):
        self.client, self.known = client, {}

    def left(self, snippet):
        name = json.dumps([snippet["kind"], snippet["steps"]])
        if name not in self.known:
            self.known[name] = loops.left_by_loop(self.client, snippet, redis.ResponseError)
        return self.known[name]


def mistake(snippet, error, left, expected):
    """The error of a snippet, the difference between the data that it and the loop left, or None."""
    if error and not FINE.search(error):
        return error
    if left is None or not loops.is_compared(snippet) or left == expected:
        return None
    return f"the loop leaves\n{expected}\nand not\n{left}"


COMPILERS = {"Go": compiled.run_go, "Java": compiled.run_java}


def outcomes(language, of_language, client, url):
    """An error, or None, and the data left, or None, of each snippet of a language."""
    if language == "Python":
        return [run_python(snippet, client) for snippet in of_language]
    if language == PLAIN:
        return [run_plain(snippet, client) for snippet in of_language]
    if language in COMPILERS:
        return COMPILERS[language](of_language, url)
    php = ["/usr/bin/php", HERE / "snippets.php"]
    node = ["node", HERE / "snippets.js"]
    programs = {"Ruby": ["/usr/bin/ruby", HERE / "snippets.rb"], "JavaScript": node, NODE_REDIS: node, "PHP": php, "PHP with Predis": php}
    return run_other(programs[language], of_language, url)


def serve_all_slots(node):
    """Makes a server a cluster of one node."""
    with redis.Redis(port=node.port, decode_responses=True) as client:
        client.cluster("ADDSLOTSRANGE", 0, 16383)
        while client.cluster("INFO")["cluster_state"] != "ok":
            time.sleep(0.05)


def languages():
    """The languages whose tools exist on this machine."""
    has_java = shutil.which("javac") and compiled.JARS.exists() and compiled.REDISSON.exists()
    compilers = ["Go"] * bool(shutil.which("go")) + ["Java"] * bool(has_java)
    return [PLAIN, "Python", "Ruby", "JavaScript", NODE_REDIS, "PHP", "PHP with Predis", *compilers]


def is_of(language, snippet):
    # A compiler gets the snippets of all libraries of its language.
    name = snippet["language"].split(" with ")[0] if language in COMPILERS else snippet["language"]
    # Redisson has no WATCH: its clients never send it.
    is_sent = snippet["language"] != "Java with Redisson" or "WATCH" not in snippet["commands"]
    return name == language and is_sent


def main():
    all_of = snippets()
    wrong = count = 0
    program = os.environ["PENSTOCK_PROGRAM"]
    with Server(program) as server, Server(program) as other, Server(program, ["--cluster-enabled", "yes"]) as node:
        url = f"redis://127.0.0.1:{server.port}"
        serve_all_slots(node)
        for snippet in all_of:
            complete(snippet, url, f"redis://127.0.0.1:{node.port}")
        client = redis.Redis.from_url(url, decode_responses=True, encoding_errors="replace")
        expected = Loops(redis.Redis.from_url(f"redis://127.0.0.1:{other.port}", decode_responses=True, encoding_errors="replace"))
        for language in sys.argv[1:] or languages():
            known = [snippet for snippet in all_of if is_of(language, snippet)]
            for snippet, (error, left) in zip(known, outcomes(language, known, client, url), strict=True):
                said = mistake(snippet, error, left, expected.left(snippet))
                if said:
                    wrong += 1
                    if wrong <= 40:
                        print(f"{snippet['language']} {snippet['kind']} {snippet['commands']}: {said}\n{snippet['code']}")
            count += len(known)
            print(f"{language}: {len(known)} snippets", flush=True)
    if wrong:
        sys.exit(f"{wrong} of {count} do not run, or leave other data than the loop")
    print(f"{count} checks")


if __name__ == "__main__":
    main()
