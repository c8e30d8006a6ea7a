#!/usr/bin/env python3
"""redis-py's calls for RediSearch's suggestions, unmodified: most are from its own tests."""

import os
import sys

import redis
from redis.commands.search.suggestion import Suggestion

PORT = int(os.environ["PENSTOCK_PORT"])
PATIENCE_SECONDS = 10

checks = 0


def check(what, actual, expected):
    """One check: ends the script where `actual` is not `expected`."""
    global checks
    checks += 1
    if actual != expected:
        sys.exit(f"{what}:\n  expected {expected!r}\n  got      {actual!r}")


def titles():
    words = ["bad", "badger", "badminton", "bade", "bat", "band", "bid", "had", "sad", "good", "The Bad and the Beautiful"]
    return [(word, 1 + number) for number, word in enumerate(words)]


def shown(found):
    return [(one.string, one.score, one.payload) for one in found]


def suggestions(client):
    search = client.ft()
    for number, (title, score) in enumerate(titles(), 1):
        check("sugadd", search.sugadd("ac", Suggestion(title, score=score)), number)
    check("suglen", search.suglen("ac"), len(titles()))
    found = search.sugget("ac", "bad", with_scores=True)
    check("the text itself comes first", found[0].string, "bad")
    check("a score is a number", type(found[0].score), float)
    check("the others", {one.string for one in found[1:]}, {"bade", "badger", "badminton"})
    check("in their order", [one.score for one in found], sorted((one.score for one in found), reverse=True))
    fuzzy = search.sugget("ac", "bad", fuzzy=True, num=10)
    check("fuzzy", {one.string for one in fuzzy}, {"bad", "badger", "badminton", "bade", "bat", "band", "bid", "had", "sad"})
    for one in fuzzy:
        check("sugdel", search.sugdel("ac", one.string), 1)
        check("sugdel of what is gone", search.sugdel("ac", one.string), 0)
    check("nothing of them is left", shown(search.sugget("ac", "bad", fuzzy=True, num=10)), [])
    check("the case doesn't matter", [one.string for one in search.sugget("ac", "the BAD")], ["The Bad and the Beautiful"])


def payloads(client):
    search = client.ft()
    many = [Suggestion(f"pay{number}", score=number, payload=f"pl{number}") for number in range(1, 4)]
    check("several at once", search.sugadd("p", *many), 3)
    found = search.sugget("p", "pay", with_payloads=True, with_scores=True)
    check("payloads", [(one.string, one.payload) for one in found], [("pay3", "pl3"), ("pay2", "pl2"), ("pay1", "pl1")])
    search.sugadd("p", Suggestion("pay1", score=10), increment=True)
    found = search.sugget("p", "pay", with_payloads=True, num=1)
    check("an increment keeps the payload", shown(found), [("pay1", 1.0, "pl1")])
    search.sugadd("p", Suggestion("caf\u00e9 \U0001f600", score=1))
    check("accents and emoji", [one.string for one in search.sugget("p", "CAF\u00c9")], ["caf\u00e9 \U0001f600"])
    check("type", client.type("p"), "trietype0")


def main():
    for protocol in (2, 3):
        client = redis.Redis(port=PORT, protocol=protocol, decode_responses=True, socket_timeout=PATIENCE_SECONDS)
        client.flushall()
        suggestions(client)
        payloads(client)
        try:
            client.execute_command("FT.SUGGET", "p", "a", "FUZZ")
        except redis.ResponseError as error:
            check("an error", "Unrecognized argument: FUZZ" in str(error), True)
    print(f"{checks} checks")


if __name__ == "__main__":
    main()
