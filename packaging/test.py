#!/usr/bin/env python3
"""Tests the Debian package and the container image that build.py has made, and the release that release.py makes.

    packaging/test.py --deb FILE --image DIRECTORY

The package is installed into a system of its own: this one's files beneath, whatever changes above them in memory, and systemd as
its process 1, in namespaces that end with the test. `installed_test.py` is what runs there. That takes root and systemd's program;
where one of them is missing, the package is unpacked, and its program started by hand.

The image's file is followed step by step into a directory, and what it describes is run there, as its user, without anything
else. Where podman, or docker with its daemon, is at hand, the image is built and run by that, too.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import traceback

HERE = pathlib.Path(__file__).resolve().parent
# Services of the machine beneath that have nothing to do here.
MASKED = """systemd-udevd systemd-udev-trigger systemd-logind systemd-networkd systemd-timesyncd systemd-remount-fs systemd-sysctl
    systemd-modules-load systemd-binfmt systemd-journal-flush getty@tty1 console-getty dbus""".split()
# The whole takes 10 seconds on a quiet machine.
SECONDS_MAX = 300
SIZE_OF_IMAGE_MAX = 32 << 20


class Skipped(Exception):
    """A requirement of a check is missing."""


def run(*command, **options):
    """Returns the output of a command, which must succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS_MAX, **options
    )
    assert done.returncode == 0, f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout.strip()


def until(holds, what):
    """Waits for another process to fulfil a condition."""
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, f"{what} doesn't happen"
        time.sleep(0.05)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- the package as a file -------------------------------------------------------------------------------------------------


def check_the_package_is_well_formed(options, directory):
    """Checks the main points of lintian."""
    tree = directory / "tree"
    run("dpkg-deb", "--raw-extract", options.deb, tree)
    control = dict(re.findall(r"^(\S+): (.*)", (tree / "DEBIAN/control").read_text(), re.MULTILINE))
    assert re.fullmatch(r"penstock_\d[\w.~+-]*_\w+\.deb", options.deb.name), options.deb.name
    assert "libc6 (>= " in control["Depends"], control
    assert all(len(line) <= 80 for line in (tree / "DEBIAN/control").read_text().splitlines())
    listed = re.findall(r"^(\S+) (\S+) +\d+ \S+ \S+ \.(/\S*)", run("dpkg-deb", "--contents", options.deb), re.MULTILINE)
    for mode, owner, path in listed:
        assert owner == "root/root", path
        assert mode in ("drwxr-xr-x", "-rw-r--r--") or (mode, path) == ("-rwxr-xr-x", "/usr/bin/penstock"), (mode, path)
    paths = {path for _, _, path in listed}
    pages = {path.removeprefix("/usr/share/man/man1/") for path in paths if "/man1/" in path} - {""}
    tools = ["server", "advise", "bench", "bench-pipelining", "check", "cli", "load"]
    assert pages == {"penstock.1.gz", *(f"penstock-{tool}.1.gz" for tool in tools)}, pages
    for path in ["copyright", "changelog.gz", "third-party-licences.gz"]:
        assert f"/usr/share/doc/penstock/{path}" in paths, path
    conffiles = (tree / "DEBIAN/conffiles").read_text().split()
    assert conffiles == sorted(path for path in paths if path.startswith("/etc/") and not path.endswith("/")), conffiles
    run("md5sum", "--check", "--quiet", "DEBIAN/md5sums", cwd=tree)
    for script in ["postinst", "prerm", "postrm"]:
        run("sh", "-n", tree / "DEBIAN" / script)


def check_the_licences_of_all_that_is_linked_are_there(options, directory):
    text = run("gzip", "-dc", directory / "tree/usr/share/doc/penstock/third-party-licences.gz")
    for word in ["\nring ", "\nrustls ", "\nlibmimalloc-sys ", "\nlua 5.1.5: MIT", "PUC-Rio", "Microsoft Corporation"]:
        assert word in text, word
    assert "\nproptest " not in text, "what only tests use isn't linked"


# --- the package installed -------------------------------------------------------------------------------------------------


def mount(*words):
    run("mount", *words)


def system_of_its_own(scratch):
    """Makes a system's files from those of this machine, in namespaces of its own; returns its root."""
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "scratch", scratch)
    for name in ("upper", "work", "root"):
        (scratch / name).mkdir()
    root = scratch / "root"
    mount("-t", "overlay", "overlay", f"-olowerdir=/,upperdir={scratch}/upper,workdir={scratch}/work", root)
    mount("-t", "proc", "proc", root / "proc")
    mount("--rbind", "/dev", root / "dev")
    mount("-t", "sysfs", "-o", "ro", "sysfs", root / "sys")
    for name in ("run", "tmp"):
        mount("-t", "tmpfs", name, root / name)
    groups = root / "sys/fs/cgroup"
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        mount("-t", "cgroup2", "cgroup2", groups)
        return root
    mount("-t", "tmpfs", "-o", "mode=755", "groups", groups)
    for name, options in [("systemd", "none,name=systemd"), ("unified", None)]:
        (groups / name).mkdir()
        mount("-t", "cgroup", "-o", options, "cgroup", groups / name) if options else mount("-t", "cgroup2", "cgroup2", groups / name)
    return root


def boot(files):
    """Becomes systemd, in a system that runs installed_test.py and ends. Runs in namespaces of its own."""
    root = system_of_its_own(pathlib.Path(tempfile.mkdtemp()))
    units = root / "etc/systemd/system"
    for wanted in units.glob("*.wants"):
        shutil.rmtree(wanted)
    for name in MASKED:
        unit = units / f"{name}.service"
        unit.unlink(missing_ok=True)
        unit.symlink_to("/dev/null")
    # Images of containers have it, so that packages start nothing; here they should.
    (root / "usr/sbin/policy-rc.d").unlink(missing_ok=True)
    inside = root / "mnt"
    mount("--bind", files, inside)
    (units / "penstock-test.service").write_text(
        "[Service]\nType=oneshot\nStandardOutput=file:/mnt/output\nStandardError=inherit\nExecStart=/usr/bin/python3 "
        "/mnt/installed_test.py\nExecStopPost=/bin/systemctl exit --force 0\n"
    )
    (units / "penstock-test.target").write_text(
        "[Unit]\nRequires=basic.target penstock-test.service\nAfter=basic.target\n"
    )
    # A change of root by chroot would keep units from having users of their own.
    os.chdir(root)
    pathlib.Path("beneath").mkdir()
    run("pivot_root", ".", "beneath")
    run("umount", "-l", "/beneath")
    arguments = ["--system", "--unit=penstock-test.target", "--log-target=null", "--show-status=no"]
    os.execve("/lib/systemd/systemd", ["systemd", *arguments], {"container": "penstock-test", "PATH": os.environ["PATH"]})


@contextlib.contextmanager
def control_groups():
    """Creates control groups of the test, which systemd regards as all groups. The caller is in them until the end."""
    tops = [path for path in ["/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"] if os.path.exists(f"{path}/cgroup.procs")]
    lines = [line.split(":", 2) for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()]
    places = {("systemd" if "name=systemd" in names else "unified"): path for _, names, path in lines if names in ("", "name=systemd")}
    made = []
    for top in tops:
        before = pathlib.Path(top + places.get("systemd" if top.endswith("/systemd") else "unified", "/"))
        made.append((before, before / f"penstock-test-{os.getpid()}"))
    try:
        for _, group in made:
            group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        for before, group in made:
            (before / "cgroup.procs").write_text(str(os.getpid()))
            for path in sorted(group.rglob("*/"), reverse=True):
                path.rmdir()
            group.rmdir()


NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc", "--cgroup"]


def results_of_system(options, files):
    """Returns the results of installed_test.py, by check. Prints a notice and returns None if no such system can be made here."""
    if os.geteuid() != 0 or not os.path.exists("/lib/systemd/systemd"):
        return print("packages: not root, or no systemd here: the package is unpacked and started by hand")
    shutil.copy(options.deb, files / "penstock.deb")
    shutil.copy(HERE / "installed_test.py", files)
    command = [*NAMESPACES, sys.executable, str(pathlib.Path(__file__).resolve()), "--boot", str(files)]
    with control_groups():
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS_MAX)
    output = files / "output"
    if not output.exists():
        return print(f"packages: no systemd can run in namespaces here, so the package is unpacked and started by hand:\n{done.stdout}")
    print(output.read_text(), end="")
    return json.loads((files / "results").read_text())


def check_it_serves_from_where_it_is_unpacked(options, directory):
    """Checks the package without installing it."""
    tree, port, notified = directory / "tree", free_port(), directory / "notified"
    unit = (tree / "usr/lib/systemd/system/penstock.service").read_text()
    program, *arguments = shlex.split(re.search(r"^ExecStart=(.*)", unit, re.MULTILINE)[1])
    program = str(tree) + program
    arguments = [str(tree) + word if word.startswith("/") else word for word in arguments]
    configuration = tree / "etc/penstock/penstock.conf"
    configuration.write_text(configuration.read_text().replace(" /var/", f" {tree}/var/"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(notified))
        supervisor.settimeout(SECONDS_MAX)
        server = subprocess.Popen([program, *arguments, "--port", str(port)], env=os.environ | {"NOTIFY_SOCKET": str(notified)})
        try:
            while supervisor.recv(1000) != b"READY=1\n":
                pass
            assert run(program, "cli", "-p", port, "PING") == "PONG"
            assert run(program, "cli", "-p", port, "SAVE") == "OK"
        finally:
            server.terminate()
            assert server.wait(SECONDS_MAX) == 0
        assert supervisor.recv(1000) == b"STOPPING=1\n"
    assert (tree / "var/lib/penstock/dump.rdb").exists() and (tree / "var/log/penstock/penstock.log").exists()


# --- the image -------------------------------------------------------------------------------------------------------------


def steps(text):
    """Returns the instructions of a container file, as (name, rest)."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


def assemble(context, root):
    """Follows the container file, and returns its settings of the process. Supports only the instructions in this file."""
    says = {}
    for name, rest in steps((context / "Containerfile").read_text()):
        match name, rest.split():
            case "FROM", ["scratch"]:
                root.mkdir()
            case "COPY", [*flags, source, target]:
                place = root / target.lstrip("/")
                shutil.copytree(context / source, place, dirs_exist_ok=True)
                for flag in flags:
                    user, group = re.fullmatch(r"--chown=(\d+):(\d+)", flag).groups()
                    os.chown(place, int(user), int(group))
            case ("USER" | "WORKDIR" | "VOLUME" | "EXPOSE" | "ENTRYPOINT" | "HEALTHCHECK"), _:
                says[name] = json.loads(rest[rest.index("[") :]) if "[" in rest else rest
            case _:
                raise AssertionError(f"{name} {rest}: the test has to learn this")
    return says


def enter_container(root, user, directory, command):
    """Runs a command like in a container: only the kernel of the system is left."""
    os.chroot(root)
    os.chdir(directory)
    os.setgroups([])
    os.setgid(int(user.split(":")[1]))
    os.setuid(int(user.split(":")[0]))
    os.execve(command[0], command, {})


def loopback_up():
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 1 | 64))  # SIOCSIFFLAGS: IFF_UP, IFF_RUNNING


def serve_container(context, scratch):
    """Starts the image's process, runs its health check, and ends it. Runs in namespaces of its own."""
    loopback_up()
    root = scratch / "root"
    says = assemble(context, root)
    # Every engine adds this file. It shows whether a static program finds names.
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    print(f"image: {size / 1e6:.1f} MB")
    assert size < SIZE_OF_IMAGE_MAX, size
    assert (says["VOLUME"], says["EXPOSE"], says["WORKDIR"]) == ("/data", "6379", "/data"), says

    def within(*command, **options):
        enter = lambda: enter_container(root, says["USER"], says["WORKDIR"], command)  # pylint: disable=C3001
        return subprocess.Popen(command, preexec_fn=enter, stdout=subprocess.PIPE, text=True, **options)

    def answer(*command):
        return within(*command).communicate(timeout=SECONDS_MAX)[0].strip()

    server = within(*says["ENTRYPOINT"])
    until(lambda: answer(*says["HEALTHCHECK"]) == "PONG", "the health check's success")
    assert answer("/usr/bin/penstock", "cli", "SET", "key", "value") == "OK"
    assert answer("/usr/bin/penstock", "cli", "-h", "localhost", "EVAL", "return 1", "0") == "1"
    server.terminate()
    assert server.wait(SECONDS_MAX) == 0
    assert within(*says["HEALTHCHECK"], stderr=subprocess.DEVNULL).wait(SECONDS_MAX) != 0
    saved = (root / "data/dump.rdb").stat()
    assert f"{saved.st_uid}:{saved.st_gid}" == says["USER"]


def check_the_image_serves(options, directory):
    if options.image is None:
        raise Skipped("no --image is given")
    if os.geteuid() != 0:
        raise Skipped("only root can enter the image")
    scratch = pathlib.Path(tempfile.mkdtemp(dir=directory))
    scratch.chmod(0o755)
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net"]
    script = [sys.executable, pathlib.Path(__file__).resolve(), "--container", options.image, scratch]
    print(run(*command, *script))


def engine():
    """Returns a working program that builds and runs images, if there is one."""
    for name in ("podman", "docker"):
        if shutil.which(name) and subprocess.run([name, "info"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
            return name
    return None


def check_a_container_is_built_and_healthy(options, directory):
    program = engine()
    if program is None:
        raise Skipped("neither podman nor docker runs here")
    tag = f"penstock-test-{os.getpid()}"
    # podman's own format has no health checks.
    form = ["--format", "docker"] if program == "podman" else []
    run(program, "build", *form, "-t", tag, "-f", options.image / "Containerfile", options.image)
    try:
        run(program, "run", "-d", "--rm", "--name", tag, "--network", "none", tag)
        inside = [program, "exec", tag, "/usr/bin/penstock", "cli"]
        until(lambda: subprocess.run([*inside, "PING"], stdout=subprocess.PIPE).stdout.strip() == b"PONG", "an answer")
        assert run(*inside, "SAVE") == "OK"
        run(program, "stop", tag)
    finally:
        subprocess.run([program, "rmi", "-f", tag], stdout=subprocess.DEVNULL)


# --- the release ---------------------------------------------------------------------------------------------------------


def make_release(binary, output, umask, zone):
    """Makes a release of a program with a umask and a time zone; returns its files by name."""
    environment = {**os.environ, "TZ": zone}
    run(HERE / "release.py", "--binary", binary, "--output", output, env=environment, preexec_fn=lambda: os.umask(umask))
    return {path.name: path.read_bytes() for path in output.iterdir()}


def released(options, directory):
    """Returns the directory of a release of the image's program; makes it at the first call."""
    if options.image is None:
        raise Skipped("no --image is given")
    output = directory / "release"
    if not output.exists():
        make_release(options.image / "root/usr/bin/penstock", output, 0o022, "UTC")
    return output


def check_releases_of_one_program_are_identical(options, directory):
    first = {path.name: path.read_bytes() for path in released(options, directory).iterdir()}
    # A copy elsewhere has another time, and may be read by others or not.
    copy = directory / "elsewhere" / "program"
    copy.parent.mkdir()
    shutil.copyfile(options.image / "root/usr/bin/penstock", copy)
    copy.chmod(0o700)
    second = make_release(copy, directory / "release-again", 0o077, "Asia/Tokyo")
    assert sorted(first) == sorted(second), (sorted(first), sorted(second))
    assert [name for name in first if first[name] != second[name]] == []


def check_a_release_is_complete_and_its_sums_fit(options, directory):
    output = released(options, directory)
    run("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS", cwd=output)
    [archive] = output.glob("*.tar.gz")
    [parts] = output.glob("*.cdx.json")
    assert {archive.name, parts.name} == {line.split()[1] for line in (output / "SHA256SUMS").read_text().splitlines()}
    with tarfile.open(archive) as tar:
        entries = tar.getmembers()
        tar.extractall(directory / "unpacked-release")
    names = [entry.name for entry in entries]
    assert names == sorted(names, key=lambda name: name.split("/")), names
    root = archive.name.removesuffix(".tar.gz")
    assert all(name == root or name.startswith(f"{root}/") for name in names), names
    assert {(entry.uid, entry.gid, entry.uname, entry.gname) for entry in entries} == {(0, 0, "", "")}
    assert len({entry.mtime for entry in entries}) == 1 and entries[0].mtime > 0
    modes = {entry.name.removeprefix(f"{root}/"): entry.mode for entry in entries if entry.isfile()}
    assert modes.pop("penstock") == 0o755 and set(modes.values()) == {0o644}, modes
    for name in ["LICENSE", "CHANGELOG.md", "third-party-licences.txt", "man/penstock.1", "completions/_penstock"]:
        assert name in modes, name
    text = (directory / "unpacked-release" / root / "third-party-licences.txt").read_text()
    for word in ["the GNU C library: LGPL-2.1", "GNU LESSER GENERAL PUBLIC LICENSE", "lua 5.1.5: MIT", "\nring "]:
        assert word in text, word
    shown = run(directory / "unpacked-release" / root / "penstock", "--version")
    assert root.split("-")[1] in shown, shown


def check_the_list_of_parts_fits_the_lock_file(options, directory):
    output = released(options, directory)
    [path] = output.glob("*.cdx.json")
    document = json.loads(path.read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    [digest] = document["metadata"]["component"]["hashes"]
    program = (options.image / "root/usr/bin/penstock").read_bytes()
    assert digest == {"alg": "SHA-256", "content": hashlib.sha256(program).hexdigest()}
    lock = tomllib.loads((HERE.parent / "Cargo.lock").read_text())["package"]
    known = {(package["name"], package["version"]): package.get("checksum") for package in lock}
    others = {"lua", "rust-std", "glibc"}
    listed = {part["name"] for part in document["components"]}
    assert {"ring", "rustls", "libmimalloc-sys", "penstock-store", *others} <= listed, listed
    assert not {"proptest", "cc", "penstock"} & listed, "a tool of tests or builds, or the program itself"
    for part in document["components"]:
        assert part["licenses"][0]["expression"] and "/" not in part["licenses"][0]["expression"], part
        if part["name"] not in others:
            checksum = known[part["name"], part["version"]]
            assert [one["content"] for one in part.get("hashes", [])] == ([checksum] if checksum else []), part
    references = [part["bom-ref"] for part in [document["metadata"]["component"], *document["components"]]]
    assert len(set(references)) == len(references)
    needed = {other for entry in document["dependencies"] for other in [entry["ref"], *entry["dependsOn"]]}
    assert needed <= set(references), needed - set(references)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deb", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--image", type=pathlib.Path, metavar="DIRECTORY")
    parser.add_argument("--boot", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--container", type=pathlib.Path, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.boot:
        return boot(options.boot)
    if options.container:
        return serve_container(*options.container)
    results = {}
    with tempfile.TemporaryDirectory(prefix="penstock-packages-") as directory:
        directory = pathlib.Path(directory)
        directory.chmod(0o755)
        found = results_of_system(options, directory)
        results.update(found or {})
        for name, check in [(name, check) for name, check in globals().items() if name.startswith("check_")]:
            if found and "unpacked" in name:
                continue
            try:
                check(options, directory)
                results[name] = None
            except Skipped as reason:
                print(f"{name}: skipped: {reason}")
            except Exception:  # pylint: disable=broad-except
                results[name] = traceback.format_exc()
    for name, wrong in results.items():
        print(f"{name}: {'ok' if wrong is None else f'FAILED{chr(10)}{wrong}'}")
    failed = sum(wrong is not None for wrong in results.values())
    print(f"packages: {len(results) - failed} passed; {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
