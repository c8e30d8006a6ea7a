#!/usr/bin/env python3
"""The code that the advisor suggests runs: each remedy of each command, in Python, Ruby, JavaScript (ioredis and
node-redis) and PHP (phpredis and Predis), against a server. The code in Go and Java is compiled (compiled.py).

    snippets_test.py [LANGUAGE]...

The example `snippets` of the advisor's crate prints the code. Variables that the code leaves to the application have values here. A
reply that the data is missing or of another type is fine; a syntax error, an unknown name, an unknown method, or a wrong number of
arguments is not.
"""

import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import compiled
import redis

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from run import Server  # noqa: E402

ROOT = HERE.parent.parent
NODE_REDIS = "JavaScript with node-redis"
# Values of variables that are single.
VALUES = {
    "n": 7, "n2": 8, "word": "w", "uuid": "u-1", "item": "i", "value": "5", "field": "f", "member": "m", "score": 1.5, "amount": 2,
    "offset": 0, "bit": 1, "start": 0, "stop": 1, "index": 0, "seconds": 60, "milliseconds": 60000, "timestamp": 4102444800, "count": 1,
    "min": 0, "max": 9, "message": "hello", "pattern": "*", "cursor": 0, "destination": "destination", "source": "source",
    "target": "target", "other": "other", "longitude": 13.4, "latitude": 52.5, "entry": "1-1", "pivot": "p", "element": "e",
    "database": 1, "argument": "a", "group": "group", "script": "return 1", "sha": "e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
    "procedure": "procedure", "consumer": "me", "stream": "stream", "radius": 100, "last_id": "0", "lastId": "0", "SCRIPT": "return redis.call('PING')",
}  # fmt: skip
# Values of variables that are lists.
LISTS = {"fields": ["f"], "members": ["m", "k"], "entries": ["1-1", "2-1"]}
# The keys of the patterns with these values.
KEYS = ["board", "user:7", "u-1", "a:7:w:8", '{q:7}"%$']
# Errors about data, and not about code.
FINE = re.compile(
    "no such key|NOSCRIPT|NOGROUP|WRONGTYPE|out of range|Function not found|DUMP payload|is not a(n integer|  ?valid)|could not decode|"
    "not an integer|not a valid float|same|Key is not a valid|wrong Lua|BUSYKEY|unaligned|not a bit|different|min or max|not a string|"
    # The value that a script computes from a missing key; commands of a module.
    "arguments must be strings or integers|unknown command 'JSON"
)
# The variables that a loop over a list binds.
BINDINGS = [
    r"for \(?(?:const )?\[?([\w, ]+?)\]? (?:in|of) LIST\b", r"LIST\.each do \|([\w, ]+)\|", r"LIST\.(?:flat_)?map \{ \|([\w, ]+)\|",
    r"foreach \(\$LIST as \[?([\w$, ]+?)\]?\)", r"LIST\.(?:flatM|m)ap\(\(\[?([\w, ]+)\]?\)",
]  # fmt: skip


def snippets():
    command = ["cargo", "run", "--quiet", "-p", "penstock-advisor", "--example", "snippets"]
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
    if "geoadd" in code and "for part in item" in code:
        return [[13.4, 52.5, "m"], [2.3, 48.8, "k"]]
    for pattern in BINDINGS:
        found = re.search(pattern.replace("LIST", name), code)
        if found:
            names = [name.strip(" $") for name in found[1].split(",")]
            values = [VALUES.get(name, "x") for name in names]
            return [values if len(names) > 1 else values[0]] * 2
    if "mapping=fields" in code or "hset(" in code.lower() and ", fields)" in code:
        return None
    if "geoadd" in code.lower():
        return [[13.4, 52.5, "m"], [2.3, 48.8, "k"]]
    return [["m", 1.5], ["k", 2.5]]


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


def run_python(code, url):
    r = redis.Redis.from_url(url, decode_responses=True)
    items = bound(code)
    names = VALUES | LISTS | {"items": items, "changes": bound(code, "changes"), "all": items, "options": {"ex": 60}, "URL": url, "r": r, "redis": redis, "changed": changed}
    if items is None:
        names["fields"] = {"f": "1"}
    if "cache." in code:
        names |= {"cache": django_cache(url), "timeout": 60}
    names["use"] = lambda element: element
    names["batched"] = lambda values, count: [values[at : at + count] for at in range(0, len(values), count)]
    try:
        exec(compile(code, "snippet", "exec"), names)
    except Told:
        return None
    except redis.ResponseError as error:
        return None if FINE.search(str(error)) else f"{error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        r.close()
    return None


def fill(client, snippet):
    """Elements for commands that wait."""
    client.flushall()
    client.config_set("notify-keyspace-events", "KA")
    if snippet["commands"][0] == "XREADGROUP":
        client.xgroup_create("stream", "group", id="0", mkstream=True)
        client.xadd("stream", {"f": "v"})
    if snippet["kind"] != "polling":
        return
    for key in KEYS:
        if snippet["commands"][0].startswith("Z"):
            client.zadd(key, {"m": 1})
        elif snippet["commands"][0].startswith("X"):
            client.xadd(key, {"f": 1})
        elif snippet["commands"][0] not in ("GET", "EXISTS"):
            client.rpush(key, "element")


def run_other(program, all_of, url):
    """Runs a program that reads the snippets and prints an error, or an empty line, for each."""
    for snippet in all_of:
        snippet["items"] = bound(snippet["code"])
        snippet["changes"] = bound(snippet["code"], "changes")
    values = {"values": VALUES, "lists": LISTS, "keys": KEYS, "snippets": all_of, "url": url}
    ran = subprocess.run(program, input=json.dumps(values), capture_output=True, text=True, timeout=600)
    if ran.returncode:
        raise SystemExit(f"{program} failed:\n{ran.stderr[-3000:]}")
    errors = json.loads(ran.stdout)
    return [None if error is None or FINE.search(error) else error for error in errors]


def main():
    all_of = snippets()
    compilers = {"Go": compiled.compile_go} if shutil.which("go") else {}
    if shutil.which("javac") and compiled.JARS.exists() and compiled.REDISSON.exists():
        compilers["Java"] = compiled.compile_java
    chosen = sys.argv[1:] or ["Python", "Ruby", "JavaScript", NODE_REDIS, "PHP", "PHP with Predis", *compilers]
    wrong = count = 0
    with Server(os.environ["PENSTOCK_PROGRAM"]) as server:
        url = f"redis://127.0.0.1:{server.port}"
        client = redis.Redis.from_url(url)
        for language in chosen:
            # A compiler gets the snippets of all libraries of its language.
            of_language = [s for s in all_of if language in (s["language"], s["language"].split(" with ")[0] if language in compilers else "")]
            if language == "Python":
                errors = []
                for snippet in of_language:
                    fill(client, snippet)
                    errors.append(run_python(snippet["code"], url))
            elif language in compilers:
                errors = compilers[language](of_language)
            else:
                # A subscriber waits for ever: its code is only parsed, by the other languages' runs.
                of_language = [s for s in of_language if s["kind"] != "polling" or language.startswith("PHP")]
                php = ["/usr/bin/php", HERE / "snippets.php"]
                node = ["node", HERE / "snippets.js"]
                program = {"Ruby": ["/usr/bin/ruby", HERE / "snippets.rb"], "JavaScript": node, NODE_REDIS: node, "PHP": php, "PHP with Predis": php}[language]
                errors = run_other(program, of_language, url)
            for snippet, error in zip(of_language, errors):
                if error:
                    wrong += 1
                    if wrong <= 40:
                        print(f"{language} {snippet['kind']} {snippet['commands']}: {error}\n{snippet['code']}")
            count += len(of_language)
            print(f"{language}: {len(of_language)} snippets", flush=True)
    if wrong:
        sys.exit(f"{wrong} of {count} do not run")
    print(f"{count} checks")


if __name__ == "__main__":
    main()
