#!/usr/bin/env python3
"""Tests examples/helm without Kubernetes.

    packaging/helm_test.py

- With its default values, the chart gives the objects of examples/kubernetes, which kubernetes_test.py runs.
- With other values, every object fits the schemas of Kubernetes, and each value arrives.
- The schema of the values refuses wrong and misspelt ones.

The test needs the Python packages of interop/python/requirements.txt, and renders the chart with `helm` from PATH. Without it, only the
files are checked.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib
import traceback

import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHART, MANIFEST = ROOT / "examples/helm", ROOT / "examples/kubernetes/penstock.yaml"
VERSIONS = ["1.25.0", kubernetes_validate.latest_version()]
# Changes with the configuration, so that Kubernetes replaces the pods. The manifest lacks it.
CHECKSUM = "checksum/configuration"
OTHER_VALUES = {
    "image": "registry.example.org/other:9",
    "imagePullSecrets": ["registry"],
    "pods": 8,
    "secret": "passwords",
    "threads": 4,
    "cpu": "2500m",
    "memory": "8Gi",
    "maxmemory": "5700mb",
    "storage": "100Gi",
    "storageClass": "fast",
    "configuration": "maxmemory-policy allkeys-lru\ndurability-replicas 1\n",
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "data", "operator": "Exists"}],
}


def helm(*words):
    return subprocess.run(["helm", *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True)


def render(values, release="penstock", chart=CHART):
    """Returns the objects of the chart with these values, and helm's message if it refuses them."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values, file)
        file.flush()
        # A helm that was compiled from its sources assumes an old Kubernetes.
        done = helm("template", release, chart, "--values", file.name, "--kube-version", VERSIONS[0], "--namespace", "cinema")
    return [found for found in yaml.safe_load_all(done.stdout) if found], done.stderr


def object_of(objects, kind, name="penstock"):
    return next(found for found in objects if (found["kind"], found["metadata"]["name"]) == (kind, name))


def without_comments(objects):
    """Returns objects by kind and name. The configuration loses its comments, and the StatefulSet its checksum."""
    for found in objects:
        if found["kind"] == "ConfigMap":
            lines = (line.strip() for line in found["data"]["penstock.conf"].splitlines())
            found["data"]["penstock.conf"] = [line for line in lines if line and not line.startswith("#")]
        if found["kind"] == "StatefulSet":
            found["spec"]["template"]["metadata"].pop("annotations", None)
    return {(found["kind"], found["metadata"]["name"]): found for found in objects}


# --- checks of the files ---------------------------------------------------------------------------------------------------


def check_the_version_is_that_of_the_program():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert chart["appVersion"] == chart["version"] == version, chart
    assert yaml.safe_load((CHART / "values.yaml").read_text())["image"].endswith(f":{version}")


def check_every_value_has_a_schema():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    # `global` is Helm's own.
    assert set(values) == set(schema["properties"]) - {"global"} == set(OTHER_VALUES), values
    assert not schema["additionalProperties"]


# --- checks of the rendered chart ------------------------------------------------------------------------------------------


def check_default_values_give_the_manifest():
    objects, message = render({})
    assert not message, message
    manifest = [found for found in yaml.safe_load_all(MANIFEST.read_text()) if found]
    rendered, expected = without_comments(objects), without_comments(manifest)
    assert rendered.keys() == expected.keys(), rendered.keys()
    for name, found in expected.items():
        assert rendered[name] == found, f"{name}:\n{json.dumps(rendered[name], indent=1)}\n{json.dumps(found, indent=1)}"


def check_every_object_fits_the_schema():
    for values in ({}, OTHER_VALUES):
        objects, message = render(values, "other")
        assert len(objects) == 6, message
        for version in VERSIONS:
            for found in objects:
                kubernetes_validate.validate(found, version, strict=True)


def check_every_value_arrives():
    objects, message = render(OTHER_VALUES, "films")
    assert not message, message
    stateful = object_of(objects, "StatefulSet", "films")["spec"]
    pod, claim = stateful["template"]["spec"], stateful["volumeClaimTemplates"][0]["spec"]
    container = pod["containers"][0]
    lines = object_of(objects, "ConfigMap", "films")["data"]["penstock.conf"].splitlines()
    # The last line of a directive counts.
    assert lines[-2:] == ["maxmemory-policy allkeys-lru", "durability-replicas 1"], lines
    assert {"threads 4", "maxmemory 5700mb"} <= set(lines)
    assert (stateful["replicas"], stateful["serviceName"]) == (8, "films-nodes")
    assert (container["image"], pod["imagePullSecrets"]) == ("registry.example.org/other:9", [{"name": "registry"}])
    assert container["resources"] == {"requests": {"cpu": "2500m", "memory": "8Gi"}, "limits": {"memory": "8Gi"}}
    assert container["env"][1]["valueFrom"]["secretKeyRef"]["name"] == "passwords"
    sources = pod["volumes"][0]["projected"]["sources"]
    assert (sources[0]["configMap"]["name"], sources[1]["secret"]["name"]) == ("films", "passwords")
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("fast", "100Gi")
    assert (pod["nodeSelector"], pod["tolerations"]) == (OTHER_VALUES["nodeSelector"], OTHER_VALUES["tolerations"])


def check_another_configuration_replaces_the_pods():
    marks = []
    for values in ({}, {"pods": 8}, {"maxmemory": "1gb"}, {"configuration": "maxclients 5000"}):
        template = object_of(render(values)[0], "StatefulSet")["spec"]["template"]
        marks.append(template["metadata"]["annotations"][CHECKSUM])
    assert marks[0] == marks[1] and len(set(marks)) == 3, marks


def check_wrong_values_are_refused():
    for wrong, said in [
        ({"pods": 7}, "pods"),
        ({"pods": 4}, "pods"),
        ({"maxmemroy": "1gb"}, "maxmemroy"),
        ({"maxmemory": "1 gb"}, "maxmemory"),
        ({"image": ""}, "image"),
        ({"memory": 2}, "memory"),
    ]:
        objects, message = render(wrong)
        assert not objects and said in message, (wrong, message)


def check_helm_has_no_complaints():
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout + done.stderr


def check_the_notes_name_the_release():
    # Helm prints them only when it reaches Kubernetes, so they are rendered as an object.
    with tempfile.TemporaryDirectory() as directory:
        chart = shutil.copytree(CHART, pathlib.Path(directory) / "chart")
        notes = chart / "templates/NOTES.txt"
        (chart / "templates/notes.yaml").write_text("kind: Notes\ntext: |\n" + textwrap.indent(notes.read_text(), "  "))
        notes.unlink()
        objects, message = render({}, "films", chart)
    assert not message, message
    text = next(found["text"] for found in objects if found["kind"] == "Notes")
    assert "--namespace cinema exec films-0" in text and "films.cinema:6379" in text, text


# --- the run ---------------------------------------------------------------------------------------------------------------


FILES = [check_the_version_is_that_of_the_program, check_every_value_has_a_schema]
RENDERED = [check_default_values_give_the_manifest, check_every_object_fits_the_schema, check_every_value_arrives,
            check_another_configuration_replaces_the_pods, check_wrong_values_are_refused, check_helm_has_no_complaints,
            check_the_notes_name_the_release]  # fmt: skip


def main():
    checks = FILES + RENDERED
    if not shutil.which("helm"):
        print("helm is missing: the chart is not rendered")
        checks = FILES
    failed = 0
    for check in checks:
        try:
            check()
            print(f"{check.__name__}: ok")
        except Exception:  # pylint: disable=broad-except
            failed += 1
            print(f"{check.__name__}: FAILED\n{traceback.format_exc()}")
    print(f"helm: {len(checks) - failed} passed; {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
