"""An untrusted server reaches nothing of a network: no metadata, name servers or private host.

A network namespace made for the test holds 169.254.169.254 and 10.9.8.7 on its own loopback, with
listeners that note who calls; no packet can leave it. Without `ip netns` (root) these tests skip.
"""

import json
import os
import shutil
import subprocess
import sys
import uuid

import pytest

from tests.support.paths import ROOT
from tests.support.untrusted_server import require_sandbox

DRIVER = """
import json, socket, sys, threading
sys.path.insert(0, sys.argv[1])
from dataclasses import replace
from pathlib import Path
from tests.support.untrusted_server import CONVERSATION, POLICY, tool_names, write_launch
from assets.servers.probe.probe import probe

called = []
def tcp(address, port):
    server = socket.create_server((address, port))
    def accept():
        while True:
            server.accept()[0].close(); called.append(f"tcp {address}")
    threading.Thread(target=accept, daemon=True).start()

def udp(address):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); server.bind((address, 53))
    def receive():
        while True:
            server.recvfrom(512); called.append(f"udp {address}")
    threading.Thread(target=receive, daemon=True).start()

for address in ("169.254.169.254", "10.9.8.7"):
    tcp(address, 80); udp(address)
source = '''
import socket
def metadata(): socket.create_connection(("169.254.169.254", 80), 1)
def private(): socket.create_connection(("10.9.8.7", 80), 1)
def ask(where):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.sendto(bytes(12), (where, 53))
def name(): socket.getaddrinfo("example.invalid", 80)
found = attempt("metadata", metadata) + attempt("private", private)
found += attempt("dns", lambda: ask("10.9.8.7")) + attempt("dns_link_local",
    lambda: ask("169.254.169.254")) + attempt("name", name)
serve([tool("control")] + found)
'''
policy = replace(POLICY, network=sys.argv[3])
result = probe(write_launch(Path(sys.argv[2]), source), policy, CONVERSATION)
report = {"names": tool_names(result), "kind": result.error_kind, "called": sorted(set(called))}
print(json.dumps(report))
"""


@pytest.fixture
def namespace():
    """The name of a network namespace with link-local and private addresses of its own."""
    require_sandbox()
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("a network namespace needs root and `ip`")
    name = f"toolmill-{uuid.uuid4().hex[:8]}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
    try:
        inside = ["ip", "-n", name]
        subprocess.run([*inside, "link", "set", "lo", "up"], check=True)
        for address in ("169.254.169.254/32", "10.9.8.7/32"):
            subprocess.run([*inside, "address", "add", address, "dev", "lo"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def run_in(namespace, folder, network):
    command = ["ip", "netns", "exec", namespace, sys.executable, "-c", DRIVER]
    command += [str(ROOT), str(folder), network]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_metadata_private_hosts_and_name_servers_are_out_of_reach(namespace, tmp_path):
    found = run_in(namespace, tmp_path, "none")
    assert found == {"names": ["control"], "kind": None, "called": []}


def test_the_listeners_would_have_noticed(namespace, tmp_path):
    """The control: with the network granted, the same server reaches all of them."""
    found = run_in(namespace, tmp_path, "full")
    assert {"escaped_metadata", "escaped_private", "escaped_dns"} <= set(found["names"])
    assert {"tcp 169.254.169.254", "tcp 10.9.8.7"} <= set(found["called"])
