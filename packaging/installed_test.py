"""The part of test.py that runs in a system of its own, with systemd as process 1: installs, runs and removes the package.

Each `check_` function is one test; they run in this order, and each builds on those before it. The results are in the file
`results`, a line each: the name, and what is wrong, if something is.
"""

import hashlib
import json
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
REDIS_CONF = pathlib.Path("/etc/redis/redis.conf")
DROP_IN = pathlib.Path("/etc/systemd/system/penstock.service.d/with-redis.conf")
# From 0, which is harmless, to 10, by systemd's own count; Debian's redis-server has 1.2.
EXPOSURE_MAX = 2.0
# A restart takes a tenth of a second, and more where other work has the cores.
SECONDS_MAX = 60


def run(*command, status=0):
    """Returns the output of a command. Fails unless its status is the expected one."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == status, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout.strip()


def cli(*words):
    return run("penstock", "cli", *words)


def shown(unit, *properties):
    """Properties of a unit, by name."""
    lines = run("systemctl", "show", unit, "-p", ",".join(properties)).splitlines()
    return dict(line.split("=", 1) for line in lines)


def start(unit):
    """Starts a unit. Reports its log if the start fails."""
    done = subprocess.run(["systemctl", "start", unit], stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{done.stderr}{run('systemctl', 'status', '--no-pager', unit, status=3)}\n{log()}")


def log(path="/var/log/penstock/penstock.log"):
    return pathlib.Path(path).read_text() if os.path.exists(path) else ""


def ownership(path):
    found = os.stat(path)
    return f"{pathlib.Path(path).owner()}:{pathlib.Path(path).group()} {found.st_mode & 0o7777:o}"


def until(holds):
    """Waits until a condition holds."""
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "it doesn't happen"
        time.sleep(0.05)


def check_it_installs():
    run("dpkg", "-i", str(HERE / "penstock.deb"))
    assert pwd.getpwnam("penstock").pw_shell.endswith("nologin")
    assert ownership("/var/lib/penstock") == "penstock:penstock 750"
    assert ownership("/var/log/penstock") == "penstock:adm 2750"
    assert ownership("/etc/penstock") == "root:penstock 2770"
    assert ownership("/etc/penstock/penstock.conf") == "penstock:penstock 640"
    assert run("systemctl", "is-enabled", "penstock") == "enabled"
    assert run("dpkg", "--verify", "penstock") == ""
    if shutil.which("man"):
        assert "penstock" in run("man", "-w", "penstock-server")


def check_systemd_finds_no_fault_with_the_unit():
    assert run("systemd-analyze", "verify", "/usr/lib/systemd/system/penstock.service") == ""
    level = re.search(r"exposure level for penstock.service: ([\d.]+)", run("systemd-analyze", "security", "penstock"))
    print(f"systemd-analyze security: {level[1]}")
    assert float(level[1]) <= EXPOSURE_MAX, level[0]


def check_it_serves():
    start("penstock")
    assert cli("PING") == "PONG"
    state = shown("penstock", "ActiveState", "StatusText", "MainPID")
    assert state["ActiveState"] == "active" and "Ready" in state["StatusText"], state
    assert "process_supervised:systemd" in cli("INFO", "server")
    process = pathlib.Path("/proc", state["MainPID"])
    status = dict(re.findall(r"^(\w+):\s+(\S+)", (process / "status").read_text(), re.MULTILINE))
    assert status["Uid"] == str(pwd.getpwnam("penstock").pw_uid), status
    assert (status["NoNewPrivs"], status["Seccomp"], int(status["CapBnd"], 16)) == ("1", "2", 0), status
    # If the host allows less than the unit requests, systemd grants as much as possible.
    files, allowed = (int(re.search(r"Max open files\s+(\d+)", (of / "limits").read_text())[1]) for of in (process, pathlib.Path("/proc/1")))
    assert files == min(65535, allowed), files


def check_what_the_unit_forbids_is_not_missed():
    """Tests the server's use of the system: files of all kinds, scripts, threads, its own configuration."""
    with open("/etc/penstock/penstock.conf", "a", encoding="utf-8") as configuration:
        configuration.write("unixsocket /run/penstock/socket\n")
    run("systemctl", "restart", "penstock")
    assert cli("SET", "key", "value") == "OK"
    assert cli("EVAL", "return redis.call('GET', KEYS[1])", "1", "key") == "value"
    assert cli("SAVE") == "OK"
    assert cli("CONFIG", "SET", "appendonly", "yes") == "OK"
    assert "started" in cli("BGREWRITEAOF")
    until(lambda: "aof_rewrite_in_progress:0" in cli("INFO", "persistence"))
    assert "aof_last_bgrewrite_status:ok" in cli("INFO", "persistence")
    assert run("penstock", "cli", "-s", "/run/penstock/socket", "PING") == "PONG"
    assert cli("CONFIG", "REWRITE") == "OK"
    assert "appendonly yes" in pathlib.Path("/etc/penstock/penstock.conf").read_text()
    run("penstock", "bench", "-q", "-n", "20000", "-P", "16", "-t", "set,get,lpush,hset")
    assert ownership("/var/lib/penstock/dump.rdb") == "penstock:penstock 640", ownership("/var/lib/penstock/dump.rdb")
    assert ownership("/var/log/penstock/penstock.log") == "penstock:adm 640"
    for word in ("not permitted", "Bad system call", "Permission denied", "Read-only file system"):
        assert word not in log(), log()


def check_what_dies_is_started_again_with_its_data():
    before = shown("penstock", "MainPID")["MainPID"]
    run("systemctl", "kill", "--signal=KILL", "penstock")
    until(lambda: shown("penstock", "MainPID")["MainPID"] not in (before, "0"))
    until(lambda: subprocess.run(["penstock", "cli", "PING"], stdout=subprocess.PIPE).stdout == b"PONG\n")
    assert cli("GET", "key") == "value"
    run("systemctl", "restart", "penstock")
    assert cli("GET", "key") == "value"
    run("systemctl", "stop", "penstock")
    assert shown("penstock", "Result") == {"Result": "success"}


def check_it_takes_the_place_of_redis_server():
    """The commands at the head of the drop-in, with Debian's redis.conf as it is."""
    as_it_is = hashlib.sha256(REDIS_CONF.read_bytes()).digest()
    start("redis-server")
    assert cli("SET", "from", "redis") == "OK"
    example = "/usr/share/doc/penstock/examples/with-redis.conf"
    commands = re.findall(r"^#     (.*)", pathlib.Path(example).read_text(), re.MULTILINE)
    assert len(commands) == 4, commands
    for command in commands:
        run(*command.split())
    assert DROP_IN.exists()
    assert (cli("GET", "from"), cli("CONFIG", "GET", "dir").split()) == ("redis", ["dir", "/var/lib/redis"])
    assert "process_supervised:systemd" in cli("INFO", "server") and "penstock" in cli("INFO", "server")
    assert cli("SET", "from", "penstock") == "OK"
    assert cli("SAVE") == "OK"
    assert ownership("/var/lib/redis/dump.rdb").startswith("redis:redis")
    assert pathlib.Path("/run/redis/redis-server.pid").exists() and "Penstock" in log("/var/log/redis/redis-server.log")
    assert hashlib.sha256(REDIS_CONF.read_bytes()).digest() == as_it_is
    # The way back: each of the two ends the other one.
    start("redis-server")
    assert shown("penstock", "ActiveState")["ActiveState"] == "inactive"
    assert cli("GET", "from") == "penstock" and "penstock" not in cli("INFO", "server")
    start("penstock")
    assert shown("redis-server", "ActiveState")["ActiveState"] == "inactive"


def check_it_leaves_data_and_takes_the_rest():
    run("dpkg", "-r", "penstock")
    assert shown("penstock", "ActiveState")["ActiveState"] == "inactive"
    assert not os.path.exists("/usr/bin/penstock") and os.path.exists("/etc/penstock/penstock.conf")
    run("dpkg", "-P", "penstock")
    assert not os.path.exists("/etc/penstock") and not os.path.exists("/var/log/penstock")
    assert os.path.exists("/var/lib/penstock/dump.rdb")


def main():
    results = {}
    checks = [(name, check) for name, check in globals().items() if name.startswith("check_")]
    for name, check in checks:
        if "redis_server" in name and not shutil.which("redis-server"):
            continue
        try:
            check()
            results[name] = None
        except Exception:  # pylint: disable=broad-except
            results[name] = traceback.format_exc()
            break
    (HERE / "results").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
    sys.exit(0)
