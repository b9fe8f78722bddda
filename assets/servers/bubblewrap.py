"""The command line of bubblewrap: namespaces, mounts, environment and kernel limits.

Belongs here: turning a launch into arguments, and why each is there.
Does not belong here: starting and ending it (`sandbox.py`).

As root the mounts are made by an outer bubblewrap; `setpriv` then drops to a uid of this sandbox
alone and an inner bubblewrap closes user namespaces: with `--uid` alone, root would ignore the
process limit and still read root's files. Anybody else needs a single bubblewrap.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from assets.servers.launch import HOME, Launch, Mount, SandboxPolicy

_MIB = 1024 * 1024
# What programs need of /etc to start; nothing here is a secret.
_ETC = (
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/alternatives", "/etc/ld.so.cache"),
    *("/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types", "/etc/fonts"),
    "/etc/pki",
)
_HOSTS = "127.0.0.1 localhost\n::1 localhost\n"


def command_line(launch: Launch, policy: SandboxPolicy, uid: int) -> tuple[list[str], list[int]]:
    """The full command line, and the descriptors it reads (environment and small /etc files)."""
    root = os.geteuid() == 0
    shown = uid if root else os.getuid()
    identity = {
        "/etc/passwd": f"user:x:{shown}:{shown}:user:{HOME}:/bin/sh\n",
        "/etc/group": f"user:x:{shown}:\n",
        "/etc/hosts": _HOSTS,
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
    files: list[int] = []
    args = _world(launch, policy)
    for path, text in identity.items():
        files.append(_memory_file(text.encode()))
        args += ["--perms", "0444", "--ro-bind-data", str(files[-1]), path]
    files.append(_memory_file(b"\0".join(_environment(launch))))
    env = ["--args", str(files[-1])]
    limited = ["prlimit", *_limits(policy), "--", *launch.argv]
    closed = ["--unshare-user", "--disable-userns", "--die-with-parent"]
    if not root:
        return ["bwrap", *args, *closed, "--remount-ro", "/", *env, "--", *limited], files
    drop = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]
    drop += ["--bounding-set=-all", "--inh-caps=-all"]
    inner = ["bwrap", *closed, "--dev-bind", "/", "/", *env, "--", *limited]
    outer = ["bwrap", *args, "--die-with-parent", "--remount-ro", "/", "--"]
    return [*outer, *drop, *inner], files


def _world(launch: Launch, policy: SandboxPolicy) -> list[str]:
    """Bubblewrap's arguments for the namespaces and the file tree."""
    args = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    args += ["--new-session", "--hostname", "sandbox"]
    if policy.network == "none":
        args.append("--unshare-net")
    args += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "lib", "lib64", "sbin"):
        if os.path.islink(f"/{name}"):
            args += ["--symlink", f"usr/{name}", f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            args += ["--ro-bind", f"/{name}", f"/{name}"]
    etc = [*_ETC, *(["/etc/resolv.conf"] if policy.network == "full" else [])]
    for folder in ("/etc", "/etc/ssl"):
        args += ["--perms", "0755", "--dir", folder]
    for path in etc:
        if os.path.exists(path):
            args += ["--ro-bind", os.path.realpath(path), path]
    args += ["--proc", "/proc", "--dev", "/dev"]
    size = str(policy.tmp_mb * _MIB)
    args += ["--perms", "1777", "--size", str(64 * _MIB), "--tmpfs", "/dev/shm"]
    args += ["--remount-ro", "/dev"]
    args += ["--perms", "1777", "--size", size, "--tmpfs", "/tmp"]
    args += ["--perms", "0777", "--size", size, "--tmpfs", HOME]
    for path in launch.dirs:
        args += ["--perms", "0777", "--dir", path]
    for parent in _parents(launch.mounts):
        args += ["--perms", "0755", "--dir", parent]
    for mount in launch.mounts:
        args += ["--bind" if mount.writable else "--ro-bind", str(mount.host), mount.inside]
    return args


def _parents(mounts: Sequence[Mount]) -> list[str]:
    """Folders above the mounts, outermost first: bubblewrap would make them for root's eyes only,
    and a Python under /root would be out of reach."""
    found = {str(parent) for mount in mounts for parent in Path(mount.inside).parents}
    shown = ("/", "/usr", "/home", HOME, "/tmp", "/etc")
    return sorted(path for path in found if path not in shown and not path.startswith("/usr/"))


def _environment(launch: Launch) -> Sequence[bytes]:
    """Bubblewrap arguments that replace the environment; read from memory so that no value shows
    in a process list."""
    base = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "USER": "user",
        "TMPDIR": "/tmp",
        # A list that a server makes from a Python set must not differ from launch to launch:
        # mcp-atlassian's default fields did, and four contracts changed every night.
        "PYTHONHASHSEED": "0",
    }
    env = {**base, **launch.env, "HOME": HOME}
    words = ["--clearenv", "--chdir", launch.cwd]
    for name, value in env.items():
        words += ["--setenv", name, value]
    return [word.replace("\0", "").encode("utf-8", "replace") for word in words]


def _limits(policy: SandboxPolicy) -> list[str]:
    return [
        f"--data={policy.memory_mb * _MIB}",  # not --as: V8 and Chromium reserve far more than use
        f"--nproc={policy.processes}",
        f"--nofile={policy.open_files}",
        f"--fsize={policy.file_mb * _MIB}",
        f"--cpu={policy.cpu_s}",
        "--core=0",
    ]


def _memory_file(data: bytes) -> int:
    descriptor = os.memfd_create("toolmill")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
