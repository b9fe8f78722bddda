"""Strangers that try to get out: nothing of the host is readable, writable or reachable."""

import os
import socket
import threading

import pytest

from assets.servers.probe import probe
from tests.support.stranger import (
    CONVERSATION,
    POLICY,
    launch,
    meet,
    names,
    require_sandbox,
)


@pytest.fixture(autouse=True)
def sandbox():
    require_sandbox()


ATTEMPTS = {
    "reads_shadow": "lambda: open('/etc/shadow').read()",
    "reads_host_passwd": "lambda: open('/etc/passwd').read().index('daemon')",
    "lists_root_home": "lambda: os.listdir('/root/.config')",
    "reads_ssh": "lambda: os.listdir('/root/.ssh')",
    "reads_proc_environ": "lambda: open('/proc/1/environ').read()",
    "sees_other_processes": "lambda: [p for p in os.listdir('/proc') if p.isdigit()][12]",
    "reads_kernel_memory": "lambda: open('/proc/kcore', 'rb').read(8)",
    "reads_a_disk": "lambda: [open(f'/dev/{d}', 'rb') for d in ('sda', 'vda', 'nvme0n1')]",
    "reads_sysfs": "lambda: os.listdir('/sys/class')",
    "follows_a_symlink": "lambda: (os.symlink('/etc/shadow', '/tmp/s'), open('/tmp/s').read())",
    "follows_proc_root": "lambda: os.listdir('/proc/1/root/root')",
    "hard_links_shadow": "lambda: os.link('/etc/shadow', '/tmp/h')",
    "writes_usr": "lambda: open('/usr/lib/x', 'w')",
    "writes_its_folder": "lambda: open('/srv/server/x', 'w')",
    "writes_etc": "lambda: open('/etc/x', 'w')",
    "writes_dev": "lambda: open('/dev/x', 'w')",
    "writes_root": "lambda: os.mkdir('/x')",
    "writes_sysctl": "lambda: open('/proc/sys/kernel/hostname', 'w').write('x')",
    "becomes_root": "lambda: os.setuid(0)",
    "changes_group": "lambda: os.setgroups([0])",
    "makes_a_device": "lambda: os.mknod('/tmp/d', 0o60600, os.makedev(8, 0))",
    "changes_root": "lambda: os.chroot('/tmp')",
    "kills_init": "lambda: os.kill(1, 9)",
    "raises_a_limit": "lambda: __import__('resource').setrlimit(0, (-1, -1))",
    "lowers_nice": "lambda: os.nice(-5)",
    "mounts": "lambda: libc('mount', b'none', b'/tmp', b'tmpfs', 0, None)",
    "new_user_namespace": "lambda: libc('unshare', 0x10000000)",
    "new_mount_namespace": "lambda: libc('unshare', 0x00020000)",
    "traces_init": "lambda: libc('ptrace', 16, 1, None, None)",
    "joins_a_namespace": "lambda: libc('setns', os.open('/proc/1/ns/mnt', 0), 0)",
    "loads_bpf": "lambda: libc('syscall', 321, 0, None, 0)",
    "raw_socket": "lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "packet_socket": "lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)",
    "an_interface_besides_loopback": "lambda: socket.if_nameindex()[1]",
}

HELPERS = """
import ctypes, socket
C = ctypes.CDLL(None, use_errno=True)
def libc(name, *args):
    if getattr(C, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)
"""


def test_no_attempt_to_escape_works(tmp_path):
    found = " + ".join(f"attempt({name!r}, {action})" for name, action in ATTEMPTS.items())
    result = meet(tmp_path, f"{HELPERS}\nserve([tool('control')] + {found})")
    assert names(result) == ["control"], result.hint


def test_an_attempt_that_works_would_be_seen(tmp_path):
    result = meet(tmp_path, "serve(attempt('reads_null', lambda: open('/dev/null').read()))")
    assert names(result) == ["escaped_reads_null"]


def test_the_hosts_environment_stays_outside(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_HOST", "42")
    result = meet(tmp_path, "serve([tool(name) for name in os.environ])")
    assert "SECRET_OF_THE_HOST" not in names(result)
    assert {"HOME", "PATH", "TMPDIR"} <= set(names(result))


def test_a_value_of_the_environment_is_in_no_command_line(tmp_path):
    source = "serve([tool('x' + str(sum(b'hunter2' in open(f'/proc/{p}/cmdline', 'rb').read()"
    source += " for p in os.listdir('/proc') if p.isdigit()))), tool(os.environ['KEY'])])"
    result = probe(launch(tmp_path, source, KEY="hunter2"), POLICY, CONVERSATION)
    assert names(result) == ["x0", "hunter2"]


@pytest.mark.parametrize("family", ["loopback", "abstract"])
def test_services_of_the_host_are_out_of_reach(tmp_path, family):
    if family == "loopback":
        listener = socket.create_server(("127.0.0.1", 0))
        where = f"socket.create_connection(('127.0.0.1', {listener.getsockname()[1]}), 1)"
    else:
        name = f"toolmill-test-{os.getpid()}"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("\0" + name)
        listener.listen()
        where = f"socket.socket(socket.AF_UNIX).connect('\\0{name}')"
    accepted = []
    thread = threading.Thread(target=lambda: accepted.append(listener.accept()), daemon=True)
    thread.start()
    source = f"import socket\nserve([tool('control')] + attempt('host', lambda: {where}))"
    with listener:
        assert names(meet(tmp_path, source)) == ["control"]
        assert accepted == []


def test_home_and_tmp_are_private_writable_and_executable(tmp_path):
    source = (
        "import subprocess\n"
        "def run(folder):\n"
        "    path = folder + '/x.sh'\n"
        "    open(path, 'w').write('#!/bin/sh\\nexit 0\\n'); os.chmod(path, 0o755)\n"
        "    subprocess.run([path], check=True)\n"
        "serve(sum((attempt(f.strip('/').replace('/', '_'), lambda f=f: run(f))"
        " for f in ('/tmp', os.environ['HOME'])), []) + [tool(str(len(os.listdir('/tmp'))))])"
    )
    expected = ["escaped_tmp", "escaped_home_user", "1"]
    assert names(meet(tmp_path, source)) == expected
    assert names(meet(tmp_path, source)) == expected  # nothing was left from the first
