"""Untrusted servers that try to get out: nothing of the host is readable, writable or reachable."""

import json
import os
import shutil
import subprocess
import sys
import uuid
from dataclasses import replace

import pytest

from assets.servers.probe.probe import probe
from assets.servers.sandbox import kernel_limits, process, spec, watchdog
from assets.servers.sandbox.spec import SandboxLaunch, SandboxMount, SandboxPolicy
from assets.servers.sandbox.toolchain import find_toolchain
from tests.hostile import escape_suite as suite
from tests.support import paths, untrusted_server
from tests.support.cases import cases
from tests.support.untrusted_server import POLICY, probe_source, tool_names, write_launch

PATIENT = replace(untrusted_server.CONVERSATION, start_s=20.0)  # six workers saturate two cores


@pytest.fixture(autouse=True)
def sandbox():
    untrusted_server.require_sandbox()


@pytest.fixture(scope="module")
def outcomes():
    """What the suite came to in one run, and whether a listener of ours was reached."""
    untrusted_server.require_sandbox()
    with suite.place_canaries() as prepared:
        launch = suite.make_suite_launch(prepared, find_toolchain())
        found = suite.run_suite(launch, SandboxPolicy())
        yield {**found, "listener": prepared.reached()}


@pytest.mark.parametrize("name", [*suite.ATTEMPTS, *suite.CONTROLS])
def test_each_attempt_is_refused_and_what_servers_need_works(name, outcomes):
    assert outcomes[name] == ("worked" if name in suite.CONTROLS else "refused")


def test_no_listener_of_the_host_was_reached(outcomes):
    assert outcomes["listener"] is False


def test_a_server_that_tries_everything_is_listed_with_what_worked(tmp_path):
    """The same suite from inside a server: it is contained, and its outcome is `ok`."""
    (tmp_path / "suite.py").write_text(suite.write_program())
    (tmp_path / "own").write_text("own")
    source = (
        "import subprocess\n"
        "done = subprocess.run([sys.executable, '/srv/server/suite.py'], capture_output=True)\n"
        "found = json.loads(done.stdout)\n"
        "serve([tool(name) for name, how in found.items() if how == 'worked'])"
    )
    with suite.place_canaries() as prepared:
        facts = {
            **prepared.facts,
            "names": [*spec.build_environment(SandboxLaunch(())), *suite.ADDED],
        }
        launched = write_launch(tmp_path, source, CANARIES=json.dumps(facts))
        result = probe(launched, POLICY, PATIENT)
    assert (result.status, tool_names(result)) == ("ok", list(suite.CONTROLS)), result.hint


def test_a_hole_in_the_wall_and_a_network_that_was_not_granted_are_found():
    """The host's folder of canaries is shown inside: what looks for it must find it."""
    with suite.place_canaries() as prepared:
        launch = suite.make_suite_launch(prepared, find_toolchain())
        hole = SandboxMount.same(prepared.folder, writable=True)
        found = suite.run_suite(replace(launch, mounts=(*launch.mounts, hole)), SandboxPolicy())
    assert {name for name, outcome in found.items() if outcome == "worked"} >= {
        *("reads_a_file_of_the_host", "lists_a_folder_of_the_host", "writes_a_file_of_the_host"),
        *("follows_a_symlink", "reaches_a_socket_file"),
    }
    with suite.place_canaries() as prepared:
        launch = suite.make_suite_launch(prepared, find_toolchain())
        found = suite.run_suite(launch, SandboxPolicy(network="full"))
        assert prepared.reached()
    names = ("reaches_loopback", "reaches_an_abstract_socket")
    assert [found[name] for name in names] == ["worked"] * 2


def hold_memory():
    with suite.place_canaries() as prepared:
        launch = suite.make_suite_launch(prepared, find_toolchain())
        return suite.try_holding_memory(launch, SandboxPolicy())


def test_memory_that_no_process_shows_is_within_the_limit_or_found(monkeypatch):
    assert hold_memory() == dict.fromkeys(suite.MEMORY_ATTEMPTS, "refused")
    # Without the filter, the sizes and the count of the folders: as it was.
    large = {"/tmp": 256 << 20, spec.HOME: 256 << 20, "/dev/shm": 64 << 20}
    monkeypatch.setattr(kernel_limits, "build_filter", lambda **_: None)
    monkeypatch.setattr(spec, "limit_private_disks", lambda policy: large)
    monkeypatch.setattr(watchdog, "_read_private_disks", lambda pids: [])
    assert hold_memory() == dict.fromkeys(suite.MEMORY_ATTEMPTS, "worked")


def test_an_attempt_that_works_would_be_seen(tmp_path):
    source = "serve(attempt('reads_null', lambda: open('/dev/null').read()))"
    assert tool_names(probe_source(tmp_path, source)) == ["escaped_reads_null"]


def test_a_value_of_the_environment_is_in_no_command_line(tmp_path):
    source = "serve([tool('x' + str(sum(b'hunter2' in open(f'/proc/{p}/cmdline', 'rb').read()"
    source += " for p in os.listdir('/proc') if p.isdigit()))), tool(os.environ['KEY'])])"
    result = probe(write_launch(tmp_path, source, KEY="hunter2"), POLICY, PATIENT)
    assert tool_names(result) == ["x0", "hunter2"]


# Each makes a file with a setuid or setgid bit at `path`; `libc.syscall` by x86-64's numbers.
_SET_ID = """
import ctypes, os, stat
libc = ctypes.CDLL(None, use_errno=True)
def make(path):
    open(path, "w").close()
    return path.encode()
def call(*words):
    if os.uname().machine != "x86_64" or libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno())
attempts = {
    "chmod": lambda path: os.chmod(make(path), 0o4755),
    "chmod_group": lambda path: os.chmod(make(path), 0o2755),
    "fchmod": lambda path: (make(path), os.fchmod(os.open(path, os.O_RDONLY), 0o6755)),
    "fchmodat": lambda path: (make(path), os.chmod(os.path.basename(path), 0o4755,
        dir_fd=os.open(os.path.dirname(path), os.O_RDONLY))),
    "fchmodat2": lambda path: call(452, -100, make(path), 0o4755, 0x1000),
    "open": lambda path: call(2, path.encode(), os.O_CREAT | os.O_WRONLY, 0o4755),
    "openat": lambda path: os.open(path, os.O_CREAT | os.O_WRONLY, 0o4755),
    "openat2": lambda path: call(437, -100, path.encode(),
        b"".join(n.to_bytes(8, "little") for n in (os.O_CREAT | os.O_WRONLY, 0o4755, 0)), 24),
    "creat": lambda path: call(85, path.encode(), 0o4755),
    "mknod": lambda path: os.mknod(path, stat.S_IFREG | 0o4755),
    "unnamed": lambda path: os.link("/proc/self/fd/%d" % os.open(os.path.dirname(path),
        os.O_TMPFILE | os.O_WRONLY, 0o4755), path, follow_symlinks=True),
    "ordinary": lambda path: os.chmod(make(path), 0o1755),
}
for name, attempt in attempts.items():
    try:
        attempt("/srv/granted/" + name)
    except OSError:
        continue
    print(name)
"""


@cases("filtered", True, False)
def test_a_server_leaves_no_setuid_program_in_a_granted_folder(tmp_path, monkeypatch, filtered):
    """On the host it would run as the owner of the folder, for whoever starts it there."""
    if not filtered:
        monkeypatch.setattr(kernel_limits, "build_filter", lambda **_: None)
    tmp_path.chmod(0o777)
    toolchain = find_toolchain()
    mounts = (*map(SandboxMount.same, toolchain.binds),)
    mounts += (SandboxMount(tmp_path, "/srv/granted", writable=True, nofollow=True),)
    argv = (str(toolchain.python), "-I", "-c", _SET_ID)
    with process.start(SandboxLaunch(argv, mounts=mounts), POLICY) as jailed:
        out, err = jailed.process.communicate(timeout=60)
    left = {path.name for path in tmp_path.iterdir() if path.stat().st_mode & 0o6000}
    worked = {*out.decode().split()}
    assert "ordinary" in worked, err
    if filtered:
        assert (left, worked) == (set(), {"ordinary"}), err
    else:  # what is tried would be seen
        assert left == worked - {"ordinary"}
        assert {"chmod", "fchmod", "openat", "mknod"} <= left


@cases("shown_at", "/srv/server", None)
def test_links_in_its_folder_lead_nowhere(tmp_path, shown_at):
    """Of a folder mounted with --dir too: a link is followed inside, where its target is not."""
    outside, folder = tmp_path / "outside", tmp_path / "server"
    for path in (outside, folder):
        path.mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    (outside / "secret").write_text("secret")
    for name, target in {"up": "..", "file": outside / "secret", "shadow": "/etc/shadow"}.items():
        (folder / name).symlink_to(target)
    place = shown_at or str(folder)
    source = (
        f"found = attempt('file', lambda: open('{place}/file').read())\n"
        f"found += attempt('shadow', lambda: open('{place}/shadow').read())\n"
        f"found += attempt('up', lambda: os.listdir('{place}/up/outside'))\n"
        "serve([tool('control')] + found)"
    )
    launched = write_launch(folder, source)
    mounts = tuple(
        SandboxMount(mount.host, place) if mount.inside == "/srv/server" else mount
        for mount in launched.mounts
    )
    argv = (launched.argv[0], f"{place}/untrusted.py")
    by_hand = replace(launched, argv=argv, mounts=mounts, cwd=place)
    assert tool_names(probe(by_hand, POLICY, PATIENT)) == ["control"]


def test_two_servers_at_once_do_not_find_each_other():
    """An abstract socket, a loopback port and shared memory of one are not the other's."""
    first = "import socket, sys, time; a = socket.create_server(('127.0.0.1', 4711));"
    first += "b = socket.socket(socket.AF_UNIX); b.bind('\\0x'); b.listen();"
    first += "open('/dev/shm/x', 'w'); print('up', flush=True); time.sleep(60)"
    second = "import os, socket; print(socket.socket().connect_ex(('127.0.0.1', 4711)) != 0,"
    second += "socket.socket(socket.AF_UNIX).connect_ex('\\0x') != 0, os.listdir('/dev/shm'))"
    found = find_toolchain()
    mounts = tuple(SandboxMount.same(path) for path in found.binds)
    argv = (str(found.python), "-c")
    servers = [SandboxLaunch((*argv, of), mounts=mounts) for of in (first, second)]
    with process.start(servers[0], POLICY) as one:
        assert one.process.stdout.readline() == b"up\n"
        with process.start(servers[1], POLICY) as other:
            out, err = other.process.communicate(timeout=60)
    assert out == b"True True []\n", err


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
    untrusted_server.require_sandbox()
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
    command += [str(paths.ROOT), str(folder), network]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=paths.ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_metadata_and_name_servers_are_in_reach_only_of_a_granted_network(namespace, tmp_path):
    found = run_in(namespace, tmp_path, "none")
    assert found == {"names": ["control"], "kind": None, "called": []}
    # The control: with the network granted, the same server reaches all of them.
    found = run_in(namespace, tmp_path, "full")
    assert {"escaped_metadata", "escaped_private", "escaped_dns"} <= set(found["names"])
    assert {"tcp 169.254.169.254", "tcp 10.9.8.7"} <= set(found["called"])
