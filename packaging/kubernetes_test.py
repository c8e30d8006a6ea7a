#!/usr/bin/env python3
"""Tests examples/kubernetes without Kubernetes.

    packaging/kubernetes_test.py --binary FILE

- Every object must fit the schema of Kubernetes, in an old and in the newest version, without unknown fields, and the objects must fit
  each other.
- The pods run as processes with the arguments and the configuration of the manifest. Only directories, ports and addresses are replaced:
  a pod is an address of the loopback network, and gets another one at each start, as in Kubernetes.
- Clients write all the time, while the pods are replaced as by a rolling update, a primary is killed, and all pods restart at once. No
  acknowledged write may be lost, except with the killed primary.

The test needs the Python packages of interop/python/requirements.txt.
"""

import argparse
import collections
import contextlib
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.error
import urllib.request

import kubernetes_validate
import redis
import yaml
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "interop"))
from cluster import free_port  # noqa: E402 pylint: disable=wrong-import-position

MANIFEST = ROOT / "examples/kubernetes/penstock.yaml"
# `nodeTaintsPolicy` is a field since 1.25.
VERSIONS = ["1.25.0", kubernetes_validate.latest_version()]
PASSWORD = "kubernetes-test"
# Stands for minReadySeconds. An old primary on loopback learns within a fraction of a second that it is a replica.
READY_SECONDS = 2
# A machine may be busy.
WAIT_SECONDS_MAX = 120
# Twice the node timeout: until then, a node may still believe in an old address of another one.
ROUND_SECONDS = 10
# Commands of a writer's pipeline, and the writes of a check at least.
DEPTH = 16
WRITES_MIN = 100
# RedisClusterException is no RedisError.
ERRORS = (redis.RedisError, redis.exceptions.RedisClusterException, OSError)


# --- the manifest ----------------------------------------------------------------------------------------------------------


def load_objects():
    return [found for found in yaml.safe_load_all(MANIFEST.read_text()) if found]


def object_of(kind, name="penstock"):
    return next(found for found in load_objects() if (found["kind"], found["metadata"]["name"]) == (kind, name))


def pod_of():
    return object_of("StatefulSet")["spec"]["template"]["spec"]


def container_of():
    return pod_of()["containers"][0]


def configuration():
    return object_of("ConfigMap")["data"]["penstock.conf"]


def directives():
    """Returns the directives of the configuration, by name."""
    lines = (line.split(None, 1) for line in configuration().splitlines())
    return {line[0]: line[1] for line in lines if line and not line[0].startswith("#")}


def check_every_object_fits_the_schema():
    for version in VERSIONS:
        for found in load_objects():
            kubernetes_validate.validate(found, version, strict=True)


def check_a_wrong_field_is_noticed():
    wrong = object_of("StatefulSet")
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    try:
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)
    except kubernetes_validate.ValidationError:
        return
    raise AssertionError("the schema admits every field")


def check_the_objects_fit_each_other():
    labels = object_of("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    budget, policy = object_of("PodDisruptionBudget")["spec"], object_of("NetworkPolicy")["spec"]
    services = [object_of("Service"), object_of("Service", "penstock-nodes")]
    selectors = [service["spec"]["selector"] for service in services]
    selectors += [budget["selector"]["matchLabels"], policy["podSelector"]["matchLabels"], object_of("StatefulSet")["spec"]["selector"]["matchLabels"]]
    assert all(selector == labels for selector in selectors), selectors
    assert object_of("StatefulSet")["spec"]["serviceName"] == "penstock-nodes"
    # The budget admits what the cluster survives: one pod, and every shard has two.
    assert budget["maxUnavailable"] == 1 and object_of("StatefulSet")["spec"]["replicas"] == 6


def check_the_ports_are_those_of_the_configuration():
    ports = {port["name"]: port["containerPort"] for port in container_of()["ports"]}
    redis_port = int(directives()["port"])
    assert ports == {"redis": redis_port, "bus": redis_port + 10_000, "http": int(directives()["http-port"])}, ports
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container_of()[probe]["httpGet"]["port"] == "http"
    for service in ("penstock", "penstock-nodes"):
        for port in object_of("Service", service)["spec"]["ports"]:
            assert port["port"] == ports[port["name"]], port


def check_a_pod_may_do_no_more_than_it_must():
    assert pod_of()["securityContext"]["runAsNonRoot"] and not pod_of()["automountServiceAccountToken"]
    may = container_of()["securityContext"]
    assert may["readOnlyRootFilesystem"] and not may["allowPrivilegeEscalation"] and may["capabilities"]["drop"] == ["ALL"]
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container_of()["volumeMounts"]}
    assert mounts == {"/data": False, "/etc/penstock": True}, mounts
    # The server writes into its directory only.
    assert directives()["dir"] == "/data" and "logfile" not in directives()


def check_the_data_fit_the_memory():
    mib = int(directives()["maxmemory"].removesuffix("mb"))
    limit = container_of()["resources"]["limits"]["memory"]
    assert mib <= 0.75 * 1024 * int(limit.removesuffix("Gi")), (mib, limit)


# --- the pods as processes -------------------------------------------------------------------------------------------------


def until(holds, what):
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.05)


class Pod:
    """A pod of the StatefulSet: a process with a directory that outlives it, and a new address at each start."""

    def __init__(self, pods, number):
        self.pods, self.number = pods, number
        self.directory = pods.directory / f"penstock-{number}"
        (self.directory / "data").mkdir(parents=True)
        (self.directory / "auth.conf").write_text(f"requirepass {PASSWORD}\nmasterauth {PASSWORD}\n")
        self.log = self.directory / "log"
        self.starts = 0
        self.process = None

    @property
    def address(self):
        return f"127.{100 + self.starts}.0.{10 + self.number}"

    def start(self):
        self.starts += 1
        lines = []
        for line in configuration().splitlines():
            match line.split():
                case ["port", _]:
                    line = f"port {self.pods.port}"
                case ["http-port", _]:
                    line = f"http-port {self.pods.http_port}"
                case [("bind" | "http-bind") as name, *_]:
                    line = f"{name} {self.address}"
            lines.append(line.replace("/data", str(self.directory / "data")).replace("/etc/penstock", str(self.directory)))
        (self.directory / "penstock.conf").write_text("\n".join(lines) + "\n")
        places = {"/etc/penstock": str(self.directory), "$(POD_IP)": self.address}
        command = [str(self.pods.binary)]
        for argument in container_of()["args"]:
            for before, after in places.items():
                argument = argument.replace(before, after)
            command.append(argument)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def end(self):
        """Ends the pod as Kubernetes does."""
        self.process.terminate()
        assert self.process.wait(pod_of()["terminationGracePeriodSeconds"]) == 0, self.text()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def text(self):
        return self.log.read_text(errors="replace")

    def answers(self, probe):
        path = container_of()[probe]["httpGet"]["path"]
        try:
            with urllib.request.urlopen(f"http://{self.address}:{self.pods.http_port}{path}", timeout=5) as reply:
                return reply.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def wait_until_available(self):
        """Waits until the pod has been ready for some time without a break."""
        since = None

        def is_available():
            nonlocal since
            if not self.answers("readinessProbe"):
                since = None
            elif since is None:
                since = time.monotonic()
            assert self.process.poll() is None, self.text()
            return since is not None and time.monotonic() - since >= READY_SECONDS

        until(is_available, f"pod {self.number} is available")

    def cli(self, *words):
        command = [str(self.pods.binary), "cli", "-h", self.address, "-p", str(self.pods.port), *map(str, words)]
        environment = {"REDISCLI_AUTH": PASSWORD}
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WAIT_SECONDS_MAX).stdout

    def is_primary(self):
        return "role:master" in self.cli("INFO", "replication")

    def is_well(self):
        return "cluster_state:ok" in self.cli("CLUSTER", "INFO")


class Pods(list):
    """The pods of the StatefulSet."""

    def __init__(self, binary, directory):
        super().__init__()
        self.binary, self.directory = binary, directory
        self.port, self.http_port = free_port(), free_port()
        self.extend(Pod(self, number) for number in range(object_of("StatefulSet")["spec"]["replicas"]))
        for pod in self:
            pod.start()

    def create_cluster(self):
        """Makes a cluster of the pods by the command of the README."""
        for pod in self:
            until(lambda pod=pod: pod.answers("readinessProbe"), f"pod {pod.number} is ready")
        addresses = [f"{pod.address}:{self.port}" for pod in self]
        said = self[0].cli("--cluster", "create", *addresses, "--cluster-replicas", 1, "--cluster-yes")
        assert "All 16384 slots covered" in said, said
        self.wait_until_well()
        assert [pod.number for pod in self.primaries()] == [0, 1, 2]

    def wait_until_well(self):
        for pod in self:
            until(lambda pod=pod: pod.is_well() and pod.answers("readinessProbe"), f"pod {pod.number} is well")

    def primaries(self):
        return [pod for pod in self if pod.is_primary()]

    def client(self):
        """A client that knows the addresses of the pods of now, as a name of a Service has them."""
        nodes = [ClusterNode(pod.address, self.port) for pod in self]
        return RedisCluster(startup_nodes=nodes, password=PASSWORD, socket_timeout=3, retry=Retry(NoBackoff(), 3))

    def close(self):
        for pod in self:
            if pod.process and pod.process.poll() is None:
                pod.kill()


class Writer(threading.Thread):
    """A client that sets one new key after another, in pipelines or one by one, and repeats commands that failed."""

    def __init__(self, pods, about, depth):
        super().__init__(daemon=True)
        self.pods, self.about, self.depth = pods, about, depth
        self.acknowledged = []
        self.is_over = threading.Event()
        self.errors = collections.Counter()
        # The longest time without an acknowledged write.
        self.gap_seconds = 0.0

    def run(self):
        client, number, last = None, 0, time.monotonic()
        while not self.is_over.is_set():
            names = [f"{self.about}:{self.depth}:{number + at}" for at in range(self.depth)]
            try:
                client = client or self.pods.client()
                self.write(client, names)
            except ERRORS as error:
                self.errors[type(error).__name__] += 1
                client = None
                time.sleep(0.1)
                continue
            now = time.monotonic()
            self.gap_seconds, last = max(self.gap_seconds, now - last), now
            self.acknowledged += names
            number += self.depth

    @staticmethod
    def write(client, names):
        if len(names) == 1:
            client.set(names[0], names[0])
            return
        pipeline = client.pipeline()
        for name in names:
            pipeline.set(name, name)
        pipeline.execute()


@contextlib.contextmanager
def writing(pods, about):
    """Writes meanwhile, and afterwards all acknowledged writes must be there."""
    writers = [Writer(pods, about, depth) for depth in (1, DEPTH)]
    for writer in writers:
        writer.start()
    try:
        for writer in writers:
            until(lambda writer=writer: len(writer.acknowledged) > WRITES_MIN, f"there are {WRITES_MIN} writes")
        yield writers
    finally:
        for writer in writers:
            writer.is_over.set()
    for writer in writers:
        writer.join(WAIT_SECONDS_MAX)
        assert not writer.is_alive(), "a writer hangs"
        gap = f"longest gap {writer.gap_seconds:.2f} s"
        print(f"{about}: {len(writer.acknowledged)} writes at depth {writer.depth}, {gap}, errors {dict(writer.errors)}")


def lost(pods, writers):
    """Returns the names of acknowledged writes that are not there."""
    client, missing = pods.client(), []
    for writer in writers:
        for at in range(0, len(writer.acknowledged), 1000):
            names = writer.acknowledged[at : at + 1000]
            pipeline = client.pipeline()
            for name in names:
                pipeline.get(name)
            missing += [name for name, value in zip(names, pipeline.execute()) if value != name.encode()]
    return missing


def check_a_rolling_upgrade_loses_no_write(pods):
    """Replaces the pods from the last to the first, and each one when the one before it is available, as a StatefulSet does."""
    before = [pod.number for pod in pods.primaries()]
    with writing(pods, "rolling upgrade") as writers:
        for pod in reversed(pods):
            was_primary = pod.is_primary()
            pod.end()
            assert ("Perform auto failover to replica" in pod.text()) == was_primary, pod.text()
            pod.start()
            pod.wait_until_available()
            assert not pod.is_primary(), f"pod {pod.number} came back as a primary"
    pods.wait_until_well()
    missing = lost(pods, writers)
    assert not missing, f"{len(missing)} acknowledged writes are lost: {missing[:5]}"
    assert not set(before) & {pod.number for pod in pods.primaries()}, "the roles did not change"


def check_a_dead_primary_is_replaced(pods):
    """Kills a primary. Another pod takes its place without help, and the dead one comes back as its replica."""
    with writing(pods, "death of a primary"):
        dead = pods.primaries()[0]
        dead.kill()
        alive = [pod for pod in pods if pod is not dead]
        until(lambda: sum(pod.is_primary() for pod in alive) == 3, "a replica takes over")
        dead.start()
        dead.wait_until_available()
        assert not dead.is_primary()
    pods.wait_until_well()


def introduce(pods):
    """Repeats the command of the README, until the cluster is well, and returns the number of rounds."""
    for rounds in range(1, WAIT_SECONDS_MAX // ROUND_SECONDS):
        for pod in pods[1:]:
            # A replica refuses that while it loads its primary's data.
            said = pods[0].cli("CLUSTER", "MEET", pod.address, pods.port).strip()
            assert said == "OK" or said.startswith("LOADING"), said
        deadline = time.monotonic() + ROUND_SECONDS
        while time.monotonic() < deadline:
            if all(pod.is_well() and pod.answers("readinessProbe") for pod in pods):
                return rounds
            time.sleep(0.2)
    raise AssertionError("the nodes don't find each other")


def check_all_pods_at_once_come_back(pods):
    """Restarts all pods with new addresses, so that no node finds another one, and introduces them by the command of the README."""
    with writing(pods, "before the restart of all") as writers:
        pass
    for pod in pods:
        pod.process.terminate()
    for pod in pods:
        pod.end()
    for pod in pods:
        pod.start()
    for pod in pods:
        until(lambda pod=pod: pod.answers("livenessProbe"), f"pod {pod.number} lives")
    rounds = introduce(pods)
    print(f"restart of all: introduced {rounds} times")
    missing = lost(pods, writers)
    assert not missing, f"{len(missing)} acknowledged writes are lost: {missing[:5]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, type=pathlib.Path, metavar="FILE", help="the server")
    options = parser.parse_args()
    results = {}

    def run(check, *arguments):
        try:
            check(*arguments)
            results[check.__name__] = None
        except Exception:  # pylint: disable=broad-except
            results[check.__name__] = traceback.format_exc()

    for check in [check_every_object_fits_the_schema, check_a_wrong_field_is_noticed, check_the_objects_fit_each_other,
                  check_the_ports_are_those_of_the_configuration, check_a_pod_may_do_no_more_than_it_must, check_the_data_fit_the_memory]:  # fmt: skip
        run(check)
    with tempfile.TemporaryDirectory(prefix="penstock-kubernetes-") as directory:
        pods = Pods(options.binary.resolve(), pathlib.Path(directory))
        try:
            pods.create_cluster()
            for check in [check_a_rolling_upgrade_loses_no_write, check_a_dead_primary_is_replaced, check_all_pods_at_once_come_back]:
                run(check, pods)
                # A check that fails may leave pods that the next ones can't use.
                if results[check.__name__]:
                    break
            if any(results.values()):
                for pod in pods:
                    print(f"--- pod {pod.number}\n" + "\n".join(pod.text().splitlines()[-20:]))
        finally:
            pods.close()
    for name, wrong in results.items():
        print(f"{name}: {'ok' if wrong is None else f'FAILED{chr(10)}{wrong}'}")
    failed = sum(wrong is not None for wrong in results.values())
    print(f"kubernetes: {len(results) - failed} passed; {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
