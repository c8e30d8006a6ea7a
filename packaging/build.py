#!/usr/bin/env python3
"""Makes what Penstock is installed from: a Debian package, or the directory that a container image is built from.

    packaging/build.py deb   [--binary FILE] [--output DIRECTORY]
    packaging/build.py image [--binary FILE] [--output DIRECTORY]

`deb` writes penstock_VERSION_ARCHITECTURE.deb; `image` writes the directory `image`, a complete context for a container
builder. Neither compiles: see docs/install.md for the builds that they take. Both print the path that they have written.

It needs Python 3.9, cargo, and for `deb` dpkg-deb and objdump, which every Debian system that compiles has. cargo-deb would
take minutes to compile for what dpkg-deb does with a directory.
"""

import argparse
import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))

MAINTAINER = "The Penstock authors <penstock@localhost>"
SUMMARY = "in-memory data server that speaks the Redis protocol"
DESCRIPTION = """\
 Penstock serves unmodified Redis clients. Its unit of work is the batch: all
 commands of a connection that have arrived are run together and answered
 with one write, by as many threads as there are cores.
 .
 It reads the configuration, snapshots and append-only files of Redis and
 Valkey. The tools are subcommands of the one program: cli, bench, load,
 check and advise."""
# The licence of the C library, which a static program contains: on Debian and on Fedora.
LGPL = ("/usr/share/common-licenses/LGPL-2.1", "/usr/share/licenses/glibc/COPYING.LIB")
# Names of files with licence texts that must be distributed.
LICENCE_FILES = ("LICENSE*", "LICENCE*", "COPYRIGHT*", "NOTICE*", "UNLICENSE*")


def run(*command):
    """Returns the output of a command. Its failure ends the build with its own message."""
    done = subprocess.run([str(word) for word in command], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]} ended with status {done.returncode}")
    return done.stdout


def put(source, path, mode=0o644):
    """Writes bytes, text, or a file's content to a path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(source, pathlib.Path):
        shutil.copyfile(source, path)
    else:
        path.write_bytes(source if isinstance(source, bytes) else source.encode())
    path.chmod(mode)


def put_compressed(source, path):
    """Writes compressed content to a path, by gzip without a timestamp."""
    data = source.read_bytes() if isinstance(source, pathlib.Path) else source.encode()
    put(gzip.compress(data, mtime=0), path)


# --- shared files -------------------------------------------------------------------------------------------------------


def linked_crates(metadata):
    """Returns the packages compiled into the program, without those of tests and builds."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    [start] = [package["id"] for package in metadata["packages"] if package["name"] == "penstock"]
    found, to_look_at = set(), [start]
    while to_look_at:
        one = to_look_at.pop()
        if one not in found:
            found.add(one)
            to_look_at += [
                dep["pkg"] for dep in nodes[one]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])
            ]
    return sorted((packages[one] for one in found), key=lambda package: (package["name"], package["version"]))


def licence_texts(directory):
    """Returns the licences in a package's sources, including its bundled C libraries."""
    return sorted({path for name in LICENCE_FILES for path in directory.rglob(name) if path.is_file()})


def host():
    """Returns the target triple of this machine's compiler."""
    return re.search(r"host: (\S+)", run("rustc", "-vV"))[1]


def cargo_metadata():
    """Returns Cargo's description of all packages, for this machine's system."""
    return json.loads(run("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", host()))


def c_library_licence():
    """Returns the licence text of the C library."""
    for path in map(pathlib.Path, LGPL):
        if path.exists():
            return path.read_text(errors="replace").strip()
    sys.exit(f"a static program needs the licence of its C library, and no file is at {' or '.join(LGPL)}")


def third_party(is_static):
    """Returns the licences of everything linked into the program: a list, then each text once."""
    crates = [package for package in linked_crates(cargo_metadata()) if package["source"]]
    parts = ["What is linked into Penstock, and under which licences.\n"]
    parts += [f"{package['name']} {package['version']}: {package['license']}" for package in crates]
    parts += ["lua 5.1.5: MIT", "the Rust standard library: MIT OR Apache-2.0"]
    texts = {}
    if is_static:
        parts.append("the GNU C library: LGPL-2.1-or-later; Penstock's sources link with any version of it")
        texts[c_library_licence()] = ["the GNU C library"]
    directories = [(package["name"], pathlib.Path(package["manifest_path"]).parent) for package in crates]
    for name, directory in [*directories, ("lua", ROOT / "third_party/lua")]:
        for path in licence_texts(directory):
            texts.setdefault(path.read_text(errors="replace").strip(), []).append(f"{name}: {path.relative_to(directory)}")
    parts += [f"\n{'=' * 78}\n" + "\n".join(names) + f"\n\n{text}" for text, names in texts.items()]
    return "\n".join(parts) + "\n"


def version():
    return json.loads(run("cargo", "metadata", "--no-deps", "--format-version", "1"))["packages"][0]["version"]


# --- the Debian package -------------------------------------------------------------------------------------------------


def libraries(binary):
    """Returns the Debian packages of the program's dynamic libraries, or none for a static program."""
    needed = set(re.findall(r"NEEDED\s+(\S+)", run("objdump", "-p", binary)))
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", run("objdump", "-T", binary)) if needed else []
    known = {"libc.so.6": None, "libm.so.6": None, "ld-linux-x86-64.so.2": None, "ld-linux-aarch64.so.1": None}
    unknown = needed - set(known) - {"libgcc_s.so.1"}
    if unknown:
        sys.exit(f"{binary} needs {', '.join(sorted(unknown))}: say in {__file__} which package has it")
    found = []
    if versions:
        newest = max((int(major), int(minor)) for major, minor in versions)
        found.append(f"libc6 (>= {newest[0]}.{newest[1]})")
    return found + (["libgcc-s1"] if "libgcc_s.so.1" in needed else [])


def files_of_deb(binary, tree):
    """Writes all files that the package installs."""
    put(binary, tree / "usr/bin/penstock", 0o755)
    put(HERE / "penstock.service", tree / "usr/lib/systemd/system/penstock.service")
    put(HERE / "penstock.conf", tree / "etc/penstock/penstock.conf")
    put(HERE / "debian/logrotate", tree / "etc/logrotate.d/penstock")
    documents = tree / "usr/share/doc/penstock"
    put(HERE / "debian/copyright", documents / "copyright")
    put_compressed(third_party(is_static=not libraries(binary)), documents / "third-party-licences.gz")
    put_compressed(ROOT / "CHANGELOG.md", documents / "changelog.gz")
    put(HERE / "with-redis.conf", documents / "examples/with-redis.conf")
    for directory in ("var/lib/penstock", "var/log/penstock"):
        (tree / directory).mkdir(parents=True)
    with tempfile.TemporaryDirectory() as generated:
        generated = pathlib.Path(generated)
        run(binary, "--generate", "man", generated / "man")
        run(binary, "--generate", "completions", generated / "completions")
        for page in (generated / "man").iterdir():
            put_compressed(page, tree / "usr/share/man/man1" / f"{page.name}.gz")
        for name, place in [
            ("penstock.bash", "bash-completion/completions/penstock"),
            ("_penstock", "zsh/vendor-completions/_penstock"),
            ("penstock.fish", "fish/vendor_completions.d/penstock.fish"),
        ]:
            put(generated / "completions" / name, tree / "usr/share" / place)


def control_of_deb(binary, tree):
    """Writes the files for the package manager."""
    files = sorted(path for path in tree.rglob("*") if path.is_file())
    sums = "".join(f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(tree)}\n" for path in files)
    fields = {
        "Package": "penstock",
        "Version": version(),
        "Architecture": run("dpkg", "--print-architecture").strip(),
        "Maintainer": MAINTAINER,
        "Installed-Size": str(sum(path.stat().st_size for path in files) // 1024),
        "Depends": ", ".join([*libraries(binary), "adduser"]),
        "Suggests": "logrotate",
        "Section": "database",
        "Priority": "optional",
        "Description": f"{SUMMARY}\n{DESCRIPTION}",
    }
    control = tree / "DEBIAN"
    put("".join(f"{name}: {value}\n" for name, value in fields.items()), control / "control")
    put("".join(f"/{path.relative_to(tree)}\n" for path in files if path.is_relative_to(tree / "etc")), control / "conffiles")
    put(sums, control / "md5sums")
    for script in ("postinst", "prerm", "postrm"):
        put(HERE / "debian" / script, control / script, 0o755)
    return f"{fields['Package']}_{fields['Version']}_{fields['Architecture']}.deb"


def build_deb(binary, output):
    with tempfile.TemporaryDirectory() as directory:
        tree = pathlib.Path(directory, "tree")
        tree.mkdir(mode=0o755)
        files_of_deb(binary, tree)
        name = control_of_deb(binary, tree)
        # Directories as every umask should make them.
        for path in tree.rglob("*"):
            if path.is_dir():
                path.chmod(0o755)
        run("dpkg-deb", "--root-owner-group", "--build", tree, output / name)
    return output / name


# --- the image ----------------------------------------------------------------------------------------------------------


def build_image(binary, output):
    """The context: the Containerfile, and beside it the directories that it copies."""
    if "NEEDED" in run("objdump", "-p", binary):
        sys.exit(f"{binary} is linked dynamically, and the image has no libraries: see docs/install.md")
    context = output / "image"
    shutil.rmtree(context, ignore_errors=True)
    put(HERE / "Containerfile", context / "Containerfile")
    put(binary, context / "root/usr/bin/penstock", 0o755)
    put(ROOT / "LICENSE", context / "root/usr/share/doc/penstock/LICENSE")
    put_compressed(third_party(is_static=True), context / "root/usr/share/doc/penstock/third-party-licences.gz")
    (context / "data").mkdir()
    return context


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["deb", "image"])
    parser.add_argument("--binary", type=pathlib.Path, default=TARGET / "release/penstock", metavar="FILE")
    parser.add_argument("--output", type=pathlib.Path, default=TARGET, metavar="DIRECTORY")
    options = parser.parse_args()
    if not options.binary.exists():
        parser.error(f"{options.binary} does not exist: build it first, or name another one by --binary")
    options.output.mkdir(parents=True, exist_ok=True)
    build = {"deb": build_deb, "image": build_image}[options.what]
    print(build(options.binary.resolve(), options.output.resolve()))


if __name__ == "__main__":
    main()
