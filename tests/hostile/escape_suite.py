"""The escape suite: what a hostile server would try, as data, and the program made of it.

Every attempt is harmless where it works, and sends no packet beyond loopback: a UDP `connect` only
asks whether there is a route. `C` holds what the host prepared.
"""

import json
import os
import select
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from assets.servers.recipes.package_files import SERVER
from assets.servers.sandbox import spec
from assets.servers.sandbox.process import start
from assets.servers.sandbox.spec import SandboxLaunch, SandboxMount, SandboxPolicy
from assets.servers.sandbox.toolchain import HostToolchain
from assets.servers.sandbox.watchdog import SandboxWatchdog

_FILES = {
    "reads_a_file_of_the_host": "open(C['file']).read()",
    "lists_a_folder_of_the_host": "os.listdir(C['folder'])",
    "writes_a_file_of_the_host": "open(C['file'], 'a').close()",
    "follows_a_symlink": "(os.symlink(C['file'], fresh('s')), open(fresh('s')).read())",
    "makes_a_hard_link": "os.link(C['file'], fresh('h'))",
    "hard_links_shadow": "os.link('/etc/shadow', fresh('h2'))",
    "goes_up_from_its_folder": "open('/srv/server/../../../../..' + C['file']).read()",
    "goes_through_the_root_of_init": "open('/proc/1/root' + C['file']).read()",
    "goes_through_the_folder_of_init": "open('/proc/1/cwd' + C['file']).read()",
    "reads_shadow": "open('/etc/shadow').read()",
    "reads_the_hosts_passwd": "same('/etc/passwd')",
    "reads_the_hosts_name": "same('/etc/hostname')",
    "reads_the_machines_id": "same('/etc/machine-id')",
    "reads_fstab": "same('/etc/fstab')",
    "finds_a_file_beside_the_toolchain": "exists_one(C['beside'])",
    "reads_ssh_keys": "os.listdir('/root/.ssh')[0]",
    "writes_usr": "made('/usr/lib/')",
    "writes_etc": "made('/etc/')",
    "writes_dev": "made('/dev/')",
    "writes_root": "made('/')",
    "writes_its_folder": "made('/srv/server/')",
    "changes_its_folder": "open('/srv/server/own', 'a').close()",
    "reads_kernel_memory": "open('/proc/kcore', 'rb').read(8)",
    "reads_memory": "[open(f'/dev/{d}', 'rb').read(8) for d in ('mem', 'kmem', 'port')]",
    "reads_a_disk": "next(open(f'/dev/{d}', 'rb') for d in ('sda', 'vda', 'nvme0n1'))",
    "reads_the_kernels_log": "open('/dev/kmsg').readline()",
    "writes_sysctl": "put('/proc/sys/kernel/hostname', os.uname().nodename)",
    "writes_sysrq": "open('/proc/sysrq-trigger', 'w')",
    "writes_core_pattern": "open('/proc/sys/kernel/core_pattern', 'r+')",
}
_PROCESSES = {
    "reads_the_environment_of_the_host": "found('environ')",
    "sees_a_process_of_the_host": "found('cmdline')",
    "reads_the_environment_of_init": "1 / open('/proc/1/environ').read().count('=CANARY')",
    "inherits_a_variable": "1 / len(set(os.environ) - C['names'])",
    "inherits_a_descriptor": "1 / len(DESCRIPTORS - {'0', '1', '2'})",
    "becomes_root": "os.setuid(0)",
    "becomes_roots_group": "os.setgid(0)",
    "changes_its_groups": "os.setgroups([0])",
    "holds_a_capability": "1 / int(status('CapEff'), 16)",
    "could_hold_a_capability": "1 / int(status('CapBnd'), 16)",
    "gains_by_a_setuid_program": "1 / (1 - int(status('NoNewPrivs')))",
    "makes_a_device": "os.mknod(fresh('d'), 0o60600, os.makedev(8, 0))",
    "gives_a_file_away": "(open(fresh('g'), 'w').close(), os.chown(fresh('g'), 0, 0))",
    "changes_root": "os.chroot('/tmp')",
    "mounts": "libc('mount', b'none', b'/tmp', b'tmpfs', 0, None)",
    "unmounts": "libc('umount2', b'/proc', 2)",
    "makes_a_user_namespace": "libc('unshare', 0x10000000)",
    "makes_a_mount_namespace": "libc('unshare', 0x00020000)",
    "makes_a_network_namespace": "libc('unshare', 0x40000000)",
    "joins_a_namespace": "libc('setns', os.open('/proc/1/ns/mnt', 0), 0)",
    "raises_a_limit": "resource.setrlimit(resource.RLIMIT_CPU, (-1, -1))",
    "lowers_nice": "os.nice(-5)",
    "becomes_real_time": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
    "escapes_the_oom_killer": "put('/proc/self/oom_score_adj', '-1000')",
    "sets_the_clock": "time.clock_settime(time.CLOCK_REALTIME, time.time())",
}
_NETWORK = {
    "reaches_loopback": "socket.create_connection(('127.0.0.1', C['port']), 1)",
    "reaches_an_abstract_socket": "unix('\\0' + C['abstract'])",
    "has_another_interface": "socket.if_nameindex()[1]",
    "has_a_route": "udp('192.0.2.1')",
    "has_a_route_to_metadata": "udp('169.254.169.254')",
    "has_a_route_to_a_name_server": "udp('192.0.2.53')",
    "has_a_route_over_ipv6": "udp('2001:db8::1')",
}
_SOCKETS = {
    "reaches_a_socket_file": "unix(C['socket'])",
    "opens_a_raw_socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "opens_a_packet_socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)",
}
# Kernel code that a filter should keep away; no way out by itself.
# System calls by their number on x86-64; on another machine these attempts fail for lack of one.
SURFACE = {
    "reads_sysfs": "os.listdir('/sys/class')",
    "traces_init": "libc('ptrace', 0x4206, 1, None, None)",
    "traces_itself": "libc('ptrace', 0, 0, None, None)",
    "loads_bpf": "call(321, 0, None, 0)",
    "opens_perf_events": "call(298, None, 0, -1, -1, 0)",
    "holds_page_faults": "call(323, 1)",
    "adds_a_key": "call(248, b'user', b'x', b'y', 1, -2)",
    "reads_a_keyring": "call(250, 0, -3, 1)",
    "opens_by_handle": "call(304, -100, b'\\0' * 64, 0)",
    "sets_up_io_uring": "call(425, 1, bytes(120))",
    "loads_a_kernel": "call(246, 0, 0, None, 0)",
    "clones_with_hidden_flags": "call(435, (0x10000000).to_bytes(8, 'little') + bytes(80), 88)",
    "types_into_a_terminal": "fcntl.ioctl(os.openpty()[1], 0x5412, b'x')",
    "opens_a_socket_to_the_hypervisor": "socket.socket(40, socket.SOCK_STREAM)",
    "opens_a_socket_to_kernel_crypto": "socket.socket(38, socket.SOCK_SEQPACKET)",
}
ATTEMPTS = {**_FILES, **_PROCESSES, **_SOCKETS, **_NETWORK, **SURFACE}
CONTROLS = {
    "reads_its_folder": "open('/srv/server/own').read().index('own')",
    "has_its_variable": "os.environ['CANARIES'].index('file')",
    "writes_home": "made(os.environ['HOME'] + '/')",
    "writes_tmp": "made(os.environ['TMPDIR'] + '/')",
    "starts_a_program": "subprocess.run(['true'], check=True)",
    "runs_what_it_wrote": "run_script(fresh('script'))",
    "talks_to_itself": "own_loopback()",
    "opens_devices": "[open(f'/dev/{d}', 'rb').read(1) for d in ('null', 'zero', 'urandom')]",
}

_PROGRAM = """
import os
DESCRIPTORS = set(os.listdir('/proc/self/fd'))
DESCRIPTORS = {fd for fd in DESCRIPTORS if os.path.exists('/proc/self/fd/' + fd)}
import ctypes, fcntl, hashlib, json, resource, signal, socket, subprocess, time
C = json.loads(os.environ['CANARIES'])
C['names'] = set(C['names'])
TOKEN = ''.join(C['token']).encode()  # in halves: our own variables must not be taken for it
LIBC = ctypes.CDLL(None, use_errno=True)

def libc(name, *args):
    if getattr(LIBC, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)

def call(number, *args):
    if os.uname().machine != 'x86_64':
        raise OSError('numbers of another machine')
    libc('syscall', number, *args)

def fresh(name):
    return os.environ['HOME'] + '/' + name + str(os.getpid())

def made(folder):
    path = folder + 'canary' + str(os.getpid())
    open(path, 'w').close()
    os.unlink(path)

def put(path, text):
    os.write(os.open(path, os.O_WRONLY), text.encode())

def same(path):
    if hashlib.sha256(open(path, 'rb').read()).hexdigest() != C['digests'].get(path):
        raise OSError('not that of the host')

def exists_one(paths):
    if not any(map(os.path.lexists, paths)):
        raise OSError('none is here')

def found(file):
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            if TOKEN in open(f'/proc/{pid}/{file}', 'rb').read():
                return
        except OSError:
            continue
    raise OSError('nowhere')

def status(name):
    return open('/proc/self/status').read().split(name + ':')[1].split()[0]

def unix(path):
    socket.socket(socket.AF_UNIX).connect(path)

def udp(address):
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    socket.socket(family, socket.SOCK_DGRAM).connect((address, 53))

def run_script(path):
    with open(path, 'w') as file:
        file.write('#!/bin/sh\\nexit 0\\n')
    os.chmod(path, 0o755)
    subprocess.run([path], check=True)

def own_loopback():
    with socket.create_server(('127.0.0.1', 0)) as server:
        socket.create_connection(server.getsockname(), 1).close()

def tried(action):
    # In a child of its own: what works must not help the next attempt.
    pid = os.fork()
    if not pid:
        signal.alarm(3)
        try:
            action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return 'worked' if os.waitpid(pid, 0)[1] == 0 else 'refused'

CASES = {
%s
}
sys_out = os.fdopen(1, 'w')
sys_out.write(json.dumps({name: tried(action) for name, action in CASES.items()}))
sys_out.flush()
"""


def write_program() -> str:
    """The program that tries everything and prints {name: `worked` or `refused`}."""
    cases = {**CONTROLS, **ATTEMPTS}
    return _PROGRAM % "\n".join(f"  {name!r}: lambda: {code}," for name, code in cases.items())


_HOST_FILES = ("/etc/passwd", "/etc/hostname", "/etc/machine-id", "/etc/fstab")
# Variables that a runtime, a shell or an engine adds by itself.
ADDED = ("CANARIES", "PWD", "SHLVL", "_", "LC_CTYPE", "HOSTNAME", "container", "TERM", "OLDPWD")


@dataclass(frozen=True)
class Canaries:
    """What the host prepared for the suite to find."""

    folder: Path
    facts: dict[str, Any]
    listeners: tuple[socket.socket, ...]

    def reached(self) -> bool:
        """Whether anybody connected to a listener of the host."""
        return bool(select.select(self.listeners, [], [], 0)[0])


def make_suite_launch(prepared: Canaries, toolchain: HostToolchain) -> SandboxLaunch:
    """The launch of the suite's program; its own folder is the one mount of a server."""
    mounts = [SandboxMount.same(path) for path in toolchain.binds]
    own = SandboxMount(prepared.folder / "server", SERVER)
    argv = (str(toolchain.python), "-I", "-c", write_program())
    launch = SandboxLaunch(argv, {"CANARIES": ""}, (*mounts, own))
    facts = {**prepared.facts, "names": [*spec.build_environment(launch), *ADDED]}
    return replace(launch, env={"CANARIES": json.dumps(facts)})


def run_suite(launch: SandboxLaunch, policy: SandboxPolicy) -> dict[str, str]:
    """{case: outcome} as the program printed it; empty where it did not end well."""
    with start(launch, policy) as jailed:
        try:
            out, _ = jailed.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            return {}
    try:
        found = json.loads(out)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def place_canaries(binds: Iterable[Path] = ()) -> Iterator[Canaries]:
    """A file, socket files, a loopback listener, an abstract socket, a process with a variable and
    files at home and beside the toolchain's `binds`, all of this host, while the suite runs."""
    token = f"canary-{uuid.uuid4().hex}"
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="toolmill-canary-")))
        (folder / "server").mkdir()
        (folder / "server" / "own").write_text("own")
        (folder / "secret").write_text(token)
        for path in (folder, folder / "server"):
            path.chmod(0o755)  # not the permissions are tried, but the walls
        (folder / "secret").chmod(0o666)
        tcp = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        unix = [held.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2)]
        for listener, name in zip(unix, (str(folder / "socket"), f"\0{folder}"), strict=True):
            listener.bind(name)
            listener.listen()
        (folder / "socket").chmod(0o777)
        env = {"PATH": os.defpath, "VALUE": f"=CANARY {token}"}
        process = subprocess.Popen(["sh", "-c", "read _", token], stdin=subprocess.PIPE, env=env)
        held.callback(process.communicate)
        held.callback(process.kill)  # the last goes first
        facts = {
            "token": [token[:20], token[20:]],
            "folder": str(folder),
            "file": str(folder / "secret"),
            "socket": str(folder / "socket"),
            "port": tcp.getsockname()[1],
            "abstract": str(folder),
            "beside": [*_place_neighbours(binds, held)],
            "digests": {path: _digest_of(path) for path in _HOST_FILES},
        }
        yield Canaries(folder, facts, (tcp, *unix))


def _place_neighbours(binds: Iterable[Path], held: ExitStack) -> Iterator[str]:
    """A file in each folder that a runtime lies in and in the user's own, where we may write."""
    home = Path.home()
    for folder in {home, home / ".local", *(path.parent for path in binds)}:
        path = folder / f".toolmill-canary-{uuid.uuid4().hex}"
        with suppress(OSError):
            path.open("x").close()
            held.callback(path.unlink, missing_ok=True)
            yield str(path)


def _digest_of(path: str) -> str | None:
    try:
        return sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None


_LIMIT_MB, _HELD_MB = 64, 192
_WAIT_S, _NOTICE_S = 20.0, 1.5
_PIECE = 8 << 20

_SEGMENTS = """
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
def hold():
    number = libc.shmget(0, PIECE, 0o1600)
    if number < 0:
        raise OSError(ctypes.get_errno(), 'shmget')
    address = libc.shmat(number, None, 0)
    ctypes.memset(address, 120, PIECE)
    libc.shmdt(ctypes.c_void_p(address))
"""
_FLIGHT = """
pair = socket.socketpair()
def hold():
    file = os.memfd_create('x')
    os.write(file, b'x' * PIECE)
    socket.send_fds(pair[0], [b'x'], [file])
    os.close(file)
"""
_FOLDERS = """
import itertools
folders, numbers = ['/tmp', os.environ['HOME'], '/dev/shm'], itertools.count()
def hold():
    while folders:
        try:
            with open(f'{folders[0]}/{next(numbers)}', 'wb') as file:
                file.write(b'x' * PIECE)
            return
        except OSError:
            folders.pop(0)
    raise OSError('full')
"""
_MEMORY_PROGRAM = """
import ctypes, os, socket, time
PIECE = %d
%s
try:
    for _ in range(%d):
        hold()
except BaseException:
    print('refused', flush=True)
else:
    print('held', flush=True)
    time.sleep(60)
"""
MEMORY_ATTEMPTS = {
    name: _MEMORY_PROGRAM % (_PIECE, source, (_HELD_MB << 20) // _PIECE)
    for name, source in {
        "holds_memory_in_system_v_segments": _SEGMENTS,
        "holds_memory_in_flight": _FLIGHT,
        "holds_memory_in_its_folders": _FOLDERS,
    }.items()
}


def try_holding_memory(launch: SandboxLaunch, policy: SandboxPolicy) -> dict[str, str]:
    """{attempt: `refused`, `worked` or `not run`}. launch: of a Python and its mounts; each
    attempt holds three times the limit and is refused where it may not or is ended for it."""
    small = replace(policy, memory_mb=_LIMIT_MB, tmp_mb=_HELD_MB, file_mb=_HELD_MB, wall_s=_WAIT_S)

    def attempt(source: str) -> str:
        return _run_attempt(replace(launch, argv=(launch.argv[0], "-I", "-c", source)), small)

    with ThreadPoolExecutor(len(MEMORY_ATTEMPTS)) as pool:
        return dict(zip(MEMORY_ATTEMPTS, pool.map(attempt, MEMORY_ATTEMPTS.values()), strict=True))


def _run_attempt(launch: SandboxLaunch, policy: SandboxPolicy) -> str:
    with start(launch, policy) as jailed, SandboxWatchdog(jailed, policy) as watchdog:
        stream = jailed.process.stdout
        line = stream.readline(100).strip() if stream else b""
        ended = line == b"held" and jailed.ends_within(_NOTICE_S)
        jailed.kill()
    if line == b"held" and not ended:
        return "worked"
    ended = watchdog.breach is not None and watchdog.breach.limit == "memory"
    return "refused" if line == b"refused" or ended else "not run"
