#!/usr/bin/env python3
"""Common programs, unmodified: nc as the manual shows it, redis-cli and redis-benchmark.

Only the standard library, so that it runs before anything is installed but Debian's packages.
"""

import os
import subprocess
import sys

PORT = os.environ["PENSTOCK_PORT"]
checks = 0


def fail(what, text):
    sys.exit(f"{what}: wrong answer:\n{text}")


def check(what, condition, text):
    """One check: ends the script where `condition` is false, with the text that shows it."""
    global checks
    checks += 1
    if not condition:
        fail(what, text)


def run(command, feed="", seconds=60, may_time_out=False):
    """Runs a shell command with PORT in it; returns what it printed. A status other than 0 ends the script."""
    command = command.replace("PORT", PORT)
    try:
        done = subprocess.run(
            ["bash", "-c", command], input=feed.encode(), capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"{command}: no end after {seconds} seconds")
    answer = done.stdout.decode()
    if done.returncode not in ((0, 124) if may_time_out else (0,)):
        sys.exit(f"{command}: status {done.returncode}\n{answer}{done.stderr.decode()}")
    return answer


def cli(arguments, feed="", **options):
    return run(f"redis-cli -p PORT {arguments}", feed, **options)


def manual():
    """The manual's example. OpenBSD's nc stays until the server hangs up, hence the timeout."""
    answer = run(
        r'(printf "PING\r\nPING\r\nPING\r\n"; sleep 1) | timeout 2 nc localhost PORT', may_time_out=True
    )
    check("three inline PINGs through nc", answer == "+PONG\r\n" * 3, answer)
    answer = run(r'printf "SET nc 1\r\nINCR nc\r\n\r\nGET nc\r\nQUIT\r\n" | timeout 5 nc localhost PORT')
    check("inline commands, an empty line and QUIT", answer == "+OK\r\n:2\r\n$1\r\n2\r\n+OK\r\n", answer)


def redis_cli():
    for arguments, expected in [
        ("PING", "PONG\n"),
        ("SET greeting 'hello world'", "OK\n"),
        ("GET greeting", "hello world\n"),
        ("GET nothing", "\n"),
        ("--no-raw GET nothing", "(nil)\n"),
        ("--no-raw INCR counter", "(integer) 1\n"),
        ("--no-raw RPUSH letters a b c", "(integer) 3\n"),
        ("--no-raw LRANGE letters 0 -1", '1) "a"\n2) "b"\n3) "c"\n'),
        ("--no-raw HSET h f v", "(integer) 1\n"),
        ("--no-raw -3 HGETALL h", '1# "f" => "v"\n'),
        ("--no-raw -3 ZADD z 1.5 m", "(integer) 1\n"),
        ("--no-raw -3 ZSCORE z m", "(double) 1.5\n"),
        ("--csv LRANGE letters 0 -1", '"a","b","c"\n'),
        ("-n 3 DBSIZE", "0\n"),
        ("-r 3 INCR repeated", "1\n2\n3\n"),
        ("LPUSH greeting x", "WRONGTYPE Operation against a key holding the wrong kind of value\n\n"),
        ("NOSUCH a b", "ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' \n\n"),
        ("GET", "ERR wrong number of arguments for 'get' command\n\n"),
    ]:
        answer = cli(arguments)
        check(f"redis-cli {arguments}", answer == expected, answer)
    answer = cli("", feed="SET piped 1\nINCR piped\nMULTI\nINCR piped\nEXEC\n")
    check("redis-cli with commands on its input", answer == "OK\n2\nOK\nQUEUED\n3\n", answer)
    answer = cli("-x SET from-input", feed="a value\nof two lines")
    check("redis-cli -x", answer == "OK\n" and cli("GET from-input") == "a value\nof two lines\n", answer)


def redis_cli_modes():
    cli("FLUSHALL")
    answer = cli("--pipe", feed="".join(f"SET key:{i} value:{i}\r\n" for i in range(10_000)))
    check("redis-cli --pipe", "errors: 0, replies: 10000" in answer, answer)
    check("what --pipe loaded", cli("DBSIZE") == "10000\n" and cli("GET key:9999") == "value:9999\n", cli("DBSIZE"))
    requests = "".join(f"*3\r\n$3\r\nSET\r\n${len(key)}\r\n{key}\r\n$1\r\nx\r\n" for key in (f"b{i}" for i in range(999)))
    answer = cli("--pipe", feed=requests)
    check("redis-cli --pipe, protocol", "errors: 0, replies: 999" in answer, answer)
    names = set(cli("--scan --pattern 'key:*'").split())
    check("redis-cli --scan", names == {f"key:{i}" for i in range(10_000)}, f"{len(names)} names")
    cli("RPUSH biglist " + " ".join(map(str, range(500))))
    cli("ZADD bigzset " + " ".join(f"{i} m{i}" for i in range(300)))
    answer = cli("--bigkeys")
    for line in ["\"biglist\"' has 500 items", "\"bigzset\"' has 300 members", "Sampled 11001 keys"]:
        check("redis-cli --bigkeys", line in answer, answer)
    answer = cli("--memkeys --memkeys-samples 0")
    check("redis-cli --memkeys", "Sampled 11001 keys" in answer, answer)
    answer = run("timeout 2 stdbuf -oL redis-cli -p PORT --stat", may_time_out=True)
    check("redis-cli --stat", "keys" in answer and "11001" in answer, answer)
    answer = run("timeout 2 redis-cli -p PORT --latency", may_time_out=True)
    check("redis-cli --latency", len(answer.split()) >= 3, answer)
    answer = run("timeout 2 redis-cli -p PORT MONITOR & sleep 0.7; redis-cli -p PORT GET 'mon itor' >/dev/null; wait")
    check("redis-cli MONITOR", answer.startswith("OK\n") and '"GET" "mon itor"\n' in answer, answer)


def redis_benchmark():
    tests = "ping_inline ping_mbulk set get incr lpush rpush lpop rpop sadd hset spop zadd zpopmin lrange_100 mset"
    for options in ["-q -n 10000 -P 16", "-q -n 2000 -c 10", "-q -n 10000 -P 16 -r 1000 --threads 2"]:
        answer = run(f"redis-benchmark -p PORT {options} -t {','.join(tests.split())}", seconds=120)
        check(f"redis-benchmark {options}", answer.count("requests per second") >= 16 and "rror" not in answer, answer)
    answer = run("redis-benchmark -p PORT -q -n 1000 -P 10 SET key:__rand_int__ v", seconds=60)
    check("redis-benchmark with a command of one's own", "requests per second" in answer, answer)


def main():
    for part in [manual, redis_cli, redis_cli_modes, redis_benchmark]:
        part()
    print(f"{checks} checks")


main()
