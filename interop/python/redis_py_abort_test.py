#!/usr/bin/env python3
"""The redis-py example of docs/pipeline-control.md that stops at a failure, as it stands there."""

import contextlib
import io
import os
import pathlib
import re
import sys

import redis

PORT = os.environ["PENSTOCK_PORT"]
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/pipeline-control.md"
NOT_INTEGER = "ERR value is not an integer or out of range"

checks = 0


def check(what, actual, expected):
    """One check: ends the script where `actual` is not `expected`."""
    global checks
    checks += 1
    if actual != expected:
        sys.exit(f"{what}:\n  expected {expected!r}\n  got      {actual!r}")


def main():
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    code = next(block for block in blocks if "ABORT" in block)
    page, printed = {}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code.replace("6379", PORT), str(PAGE), "exec"), page)
    check("what the example prints", printed.getvalue(), f"2 {NOT_INTEGER}\n")
    client, run = page["client"], page["run_until_failure"]
    check("the value", client.get("color"), "red")
    replies, outcome = run(client, [("SET", "color", "green"), ("LPUSH", "color", "x"), ("SET", "color", "blue"), ("GET", "color")])
    wrong = "Operation against a key holding the wrong kind of value"
    check("the account", outcome, {"executed": 2, "failed": 2, "error": f"WRONGTYPE {wrong}", "skipped": 2})
    check("the replies", [type(reply).__name__ for reply in replies], ["bool" if replies[0] is True else "str"] + ["ResponseError"] * 3)
    check("a skipped one", str(replies[3]), f"ABORTED after command 2: WRONGTYPE {wrong}")
    check("the value", client.get("color"), "green")
    # The mode has ended, for every connection of the pool.
    replies = client.pipeline(transaction=False).lpush("color", "x").set("color", "blue").execute(raise_on_error=False)
    check("without the mode", replies[1], True)
    _, outcome = run(client, [("GET", "color")])
    check("no failure", outcome, {"executed": 1, "failed": 0, "error": None, "skipped": 0})
    # redis-py turns some errors into exceptions of their own; the account has their text.
    _, outcome = run(client, [("MULTI",), ("INCR", "color"), ("EXEC",), ("SET", "color", "no")])
    check("a transaction", (outcome["failed"], outcome["error"], outcome["skipped"]), (3, NOT_INTEGER, 1))
    print(f"{checks} checks")


main()
