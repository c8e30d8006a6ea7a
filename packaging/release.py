#!/usr/bin/env python3
"""Makes a release: an archive with the static program, a list of its parts, and checksums.

    packaging/release.py [--binary FILE] [--output DIRECTORY]

The script compiles the program, unless --binary names one, and writes three files:

    penstock-VERSION-linux-ARCHITECTURE.tar.gz     the program, manual pages, completions, licences, the changelog
    penstock-VERSION-linux-ARCHITECTURE.cdx.json   all linked packages with versions, licences and checksums (CycloneDX 1.5)
    SHA256SUMS                                     for `sha256sum --check`

The same program and commit give the same bytes in every run: entries are sorted, belong to nobody, and have the commit's time, or the
time in SOURCE_DATE_EPOCH. The script compiles with neutral paths, so the program does not depend on the place of the sources.

It needs Python 3.11, cargo, git and objdump.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import sys
import tarfile
import tempfile
import time
import tomllib

import build

# A string in each program that contains glibc.
GLIBC_MARK = b"GLIBC_TUNABLES"


# --- the program --------------------------------------------------------------------------------------------------------


def neutral_paths():
    """Returns pairs of local directories and the names that replace them in the program."""
    cargo_home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo")).resolve()
    sysroot = pathlib.Path(build.run("rustc", "--print", "sysroot").strip())
    return [(build.ROOT, "/penstock"), (cargo_home, "/cargo"), (build.TARGET.resolve(), "/target"), (sysroot, "/rust")]


def build_environment(epoch):
    """Returns the variables of a build that depends neither on the place of the sources nor on the time."""
    paths = neutral_paths()
    configured = tomllib.loads((build.ROOT / ".cargo/config.toml").read_text())["env"]["CFLAGS"]
    return {
        "SOURCE_DATE_EPOCH": str(epoch),
        "CARGO_INCREMENTAL": "0",
        "RUSTFLAGS": " ".join(["-Ctarget-feature=+crt-static", *(f"--remap-path-prefix={old}={new}" for old, new in paths)]),
        # The compiler of C prefers the last option that fits, that of Rust, too.
        "CFLAGS": " ".join([configured, *(f"-ffile-prefix-map={old}={new}" for old, new in paths)]),
    }


def compile_program(epoch):
    """Compiles the static program, and returns its path."""
    os.environ.update(build_environment(epoch))
    # With a target, the flags do not apply to build scripts, which cannot be static.
    build.run("cargo", "build", "--locked", "--release", "--package", "penstock", "--bin", "penstock", "--target", build.host())
    return build.TARGET / build.host() / "release/penstock"


# --- the list of parts --------------------------------------------------------------------------------------------------


def checksums():
    """Returns the SHA-256 of each package in Cargo.lock, by name and version."""
    lock = tomllib.loads((build.ROOT / "Cargo.lock").read_text())
    return {(package["name"], package["version"]): package.get("checksum") for package in lock["package"]}


def reference(package):
    """Returns a package's identity within the list. A package of the registry has a package URL."""
    name = f"{package['name']}@{package['version']}"
    return f"pkg:cargo/{name}" if package["source"] else f"penstock/{name}"


def component(package, sums):
    """Returns the entry of a Cargo package."""
    entry = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        # Older packages separate their licences by a slash.
        "licenses": [{"expression": package["license"].replace("/", " OR ")}],
    }
    if package["source"]:
        entry["purl"] = reference(package)
        entry["hashes"] = [{"alg": "SHA-256", "content": sums[package["name"], package["version"]]}]
    return entry


def other_component(name, version, licence):
    """Returns the entry of a part that Cargo does not know."""
    purl = f"pkg:generic/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "licenses": [{"expression": licence}],
        "purl": purl,
    }


def other_components():
    """Returns the entries of Lua, of Rust's library, and of the C library, in the versions of this machine."""
    rust = re.search(r"release: (\S+)", build.run("rustc", "-vV"))[1]
    glibc = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    return [
        other_component("lua", "5.1.5", "MIT"),
        other_component("rust-std", rust, "MIT OR Apache-2.0"),
        other_component("glibc", glibc, "LGPL-2.1-or-later"),
    ]


def dependencies(metadata, linked, others):
    """Returns the links between the parts, without those of tests and builds. The program itself needs the parts outside of Cargo."""
    by_id = {package["id"]: reference(package) for package in linked}
    found = []
    for node in metadata["resolve"]["nodes"]:
        if node["id"] in by_id:
            needs = {by_id[one["pkg"]] for one in node["deps"] if one["pkg"] in by_id and is_linked(one)}
            if by_id[node["id"]].startswith("penstock/penstock@"):
                needs |= {part["bom-ref"] for part in others}
            found.append({"ref": by_id[node["id"]], "dependsOn": sorted(needs)})
    return sorted(found, key=lambda entry: entry["ref"])


def is_linked(dependency):
    return any(kind["kind"] is None for kind in dependency["dep_kinds"])


def bill_of_materials(program, epoch):
    """Returns the list of the program's parts as text in the form CycloneDX 1.5."""
    metadata = build.cargo_metadata()
    linked = build.linked_crates(metadata)
    [whole] = [package for package in linked if package["name"] == "penstock"]
    sums, others = checksums(), other_components()
    main = component(whole, sums) | {
        "type": "application",
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(program).hexdigest()}],
    }
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)), "component": main},
        "components": [component(package, sums) for package in linked if package is not whole] + others,
        "dependencies": dependencies(metadata, linked, others),
    }
    return json.dumps(document, indent=1) + "\n"


# --- the archive --------------------------------------------------------------------------------------------------------


def files_of_archive(binary, tree):
    """Writes all files of the archive."""
    build.put(binary, tree / "penstock", 0o755)
    build.put(build.ROOT / "LICENSE", tree / "LICENSE")
    build.put(build.ROOT / "CHANGELOG.md", tree / "CHANGELOG.md")
    build.put(build.third_party(is_static=True), tree / "third-party-licences.txt")
    build.run(tree / "penstock", "--generate", "man", tree / "man")
    build.run(tree / "penstock", "--generate", "completions", tree / "completions")


def packed(tree, name, epoch):
    """Returns a compressed archive of a directory: sorted, without owners, and with one time for all entries."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in [tree, *sorted(tree.rglob("*"))]:
            entry = tarfile.TarInfo(str(pathlib.PurePosixPath(name, path.relative_to(tree))))
            entry.mtime = epoch
            if path.is_dir():
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
            else:
                data = path.read_bytes()
                entry.size, entry.mode = len(data), 0o755 if path == tree / "penstock" else 0o644
                archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0)


def time_of_release():
    """Returns the time in SOURCE_DATE_EPOCH, or the commit's, in seconds since 1970."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or build.run("git", "log", "-1", "--format=%ct"))


def release(binary, output, epoch):
    """Writes the files of a release, and returns their paths."""
    if "NEEDED" in build.run("objdump", "-p", binary):
        sys.exit(f"{binary} is linked dynamically, and an archive is for every Linux: see docs/install.md")
    program = binary.read_bytes()
    if GLIBC_MARK not in program:
        sys.exit(f"{binary} has another C library than glibc, and the archive would lack its licence")
    name = f"penstock-{build.version()}-linux-{platform.machine()}"
    with tempfile.TemporaryDirectory() as directory:
        tree = pathlib.Path(directory, name)
        files_of_archive(binary, tree)
        files = {
            f"{name}.cdx.json": bill_of_materials(program, epoch).encode(),
            f"{name}.tar.gz": packed(tree, name, epoch),
        }
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {file}\n" for file, data in files.items())
    files["SHA256SUMS"] = sums.encode()
    for file, data in files.items():
        build.put(data, output / file)
    return [output / file for file in files]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, metavar="FILE", help="a static program, instead of compiling one")
    parser.add_argument("--output", type=pathlib.Path, default=build.TARGET / "dist", metavar="DIRECTORY")
    options = parser.parse_args()
    epoch = time_of_release()
    binary = options.binary or compile_program(epoch)
    if not binary.exists():
        parser.error(f"{binary} does not exist")
    options.output.mkdir(parents=True, exist_ok=True)
    for path in release(binary.resolve(), options.output.resolve(), epoch):
        print(path)


if __name__ == "__main__":
    main()
