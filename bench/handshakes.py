#!/usr/bin/env python3
"""The waits of a client while other clients constantly make new TLS connections.

    bench/handshakes.py [--server target/release/penstock] [--seconds 7]

Two `openssl s_time` make full handshakes as fast as they can; meanwhile a client without encryption sends 800 GETs a second, one by one.
The target is a p99 of at most 5 ms beside a thousand handshakes a second. Needs openssl.
"""

import argparse
import json
import pathlib
import re
import subprocess
import tempfile

from servers import start

PORT, TLS_PORT = 17491, 17492


def waits(options):
    """The waits of a client that sends 800 GETs a second for some seconds, in milliseconds."""
    argv = [options.server, "bench", "-p", str(PORT), "-n", "4000", "-c", "1", "-P", "1", "--rate", "800", "-r", "1000", "--json",
            "GET", "key:__rand_int__"]
    output = subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout
    latency = json.loads(output)["tests"][0]["latency_ms"]
    return f"p50 {latency['p50']:.2f} ms, p99 {latency['p99']:.2f}, longest {latency['max']:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="target/release/penstock")
    parser.add_argument("--seconds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        key, certificate = (str(pathlib.Path(directory, name)) for name in ("key.pem", "certificate.pem"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
                        "/CN=localhost", "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL)
        command = (f"{options.server} server --port {{port}} --tls-port {TLS_PORT} --tls-cert-file {certificate} "
                   f"--tls-key-file {key} --tls-auth-clients no --save ''")
        server = start("penstock", command, PORT, "0-1")
        try:
            print("without handshakes:", waits(options), flush=True)
            time = ["openssl", "s_time", "-connect", f"127.0.0.1:{TLS_PORT}", "-new", "-time", str(options.seconds)]
            makers = [subprocess.Popen(time, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(2)]
            print("beside them:       ", waits(options), flush=True)
            made = [re.search(r"(\d+) connections in (\d+) real", maker.communicate()[0]) for maker in makers]
            print(f"{sum(int(one[1]) / int(one[2]) for one in made if one):,.0f} handshakes a second")
        finally:
            server.kill()


if __name__ == "__main__":
    main()
