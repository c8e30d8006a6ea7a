#!/usr/bin/env python3
"""Counts the instructions of batches, per command, and compares them with the record.

    bench/instructions.py             fails if a batch takes over 5 percent more than on record
    bench/instructions.py --update    writes the record anew
    bench/instructions.py get set     these batches only

The batches of crates/penstock/benches/batches.rs run without sockets, and valgrind counts. Unlike times, the counts hardly depend on the
machine and its load. Each count is the difference between a run with the batches and one without. Counts depend on the compiler:
update the record after a change of it, or when a batch takes less.
"""

import argparse
import concurrent.futures
import json
import pathlib
import os
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = ROOT / "bench" / "instructions.json"
BATCHES = ["ping", "get", "set", "incr", "hset", "zadd", "lpush1", "sadd1", "zadd1", "mset10", "mget10", "zrange100",
           "setbit", "getbit", "bitcount", "bitfield", "bitop", "pfadd", "pfadd5", "pfcount", "pfcount2", "geoadd", "geodist", "hexpire",
           "hgetex", "hsetex", "hgetdel", "httl", "xadd", "xadd+idmp", "lmovem", "sinter2", "zintercard2", "zinter2",
           "hgetex100", "command_docs", "config_get", "shardchannels", "randomkey", "resetstat", "swapdb",
           "keys_none", "scan", "info", "memory_stats", "acl_setuser", "lolwut", "dump_fractions", "texts", "library",
           "restore_hash", "restore_list", "restore_set", "restore_ints", "restore_zset", "restore_stream", "sort_numbers",
           "get+rules", "set+rules", "get+glob", "get+selector", "set+waiters", "get+trackers", "set+trackers", "set+journal",
           "get+slots", "set+slots"]
# The end of a batch's name that runs it on a node of a cluster.
SLOTS = "+slots"
# By how much a batch may exceed its record.
TOLERANCE = 0.05
# Batches that are counted, and commands of each; keys few enough that filling takes no time.
COUNT, DEPTH, KEYS = 16, 1000, 1000


def binary():
    """Builds the benchmark and returns its path."""
    command = ["cargo", "build", "--release", "--quiet", "--locked", "-p", "penstock", "--example", "batches", "--message-format=json"]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    built = [json.loads(line) for line in lines if line.startswith("{")]
    paths = [item["executable"] for item in built if item.get("executable") and item["target"]["name"] == "batches"]
    return paths[-1]


def instructions(path, name, *more):
    """Instructions of one run."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", path]
    more += ("--slots",) if name.endswith(SLOTS) else ()
    command += ["--keys", str(KEYS), "--rounds", "1", "--count", str(COUNT), "--still", *more, name.removesuffix(SLOTS)]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = re.search(r"I\s+refs:\s+([\d,]+)", run.stdout)
    if run.returncode != 0 or not found:
        raise RuntimeError(f"{' '.join(command)} failed:\n{run.stdout}")
    return int(found[1].replace(",", ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("batches", nargs="*", metavar="BATCH", help=f"of {', '.join(BATCHES)}")
    parser.add_argument("--update", action="store_true", help="write the record anew")
    options = parser.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    path = binary()
    names = options.batches or BATCHES
    # Two runs a batch, one per core at a time: counts don't depend on the machine's load.
    grown = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [(pool.submit(instructions, path, name), pool.submit(instructions, path, name, "--dry")) for name in names]
        for name, (run, dry) in zip(names, runs):
            count = round((run.result() - dry.result()) / (COUNT * DEPTH))
            known = record.get(name)
            change = f"{count / known - 1:+7.1%}" if known else "    new"
            print(f"{name:12} {count:6} instructions a command {change}", flush=True)
            if options.update:
                record[name] = count
            elif known is None or count > known * (1 + TOLERANCE):
                grown += 1
    if options.update:
        RECORD.write_text(json.dumps(record, indent=2) + "\n")
    elif grown:
        print(f"{grown} exceed {RECORD.relative_to(ROOT)} by over {TOLERANCE:.0%}: find out why, or record what is worth it (--update)")
        sys.exit(1)


if __name__ == "__main__":
    main()
