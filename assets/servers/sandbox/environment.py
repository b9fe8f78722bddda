"""What every backend shows a server alike: who it is, its environment, its limits."""

import os
import random
import re
from collections.abc import Mapping, Sequence

from assets.servers.sandbox.backend import LaunchRefused, UnusableWords
from assets.servers.sandbox.spec import HOME, Launch, SandboxPolicy

MIB = 1024 * 1024
SEARCH = os.defpath + ":/usr/sbin:/usr/local/bin"  # where our own programs are looked for
# What programs need of /etc to start; nothing here is a secret.
ETC = (
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/alternatives", "/etc/ld.so.cache"),
    *("/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types", "/etc/fonts"),
    "/etc/pki",
)
# Linux: 128 KiB a word with its end, 2 MiB in all with the usual stack; the sandbox has words too.
_LONGEST, _MOST = 131_071, 1_500_000
_LOADER = re.compile(r"LD_.*|GCONV_PATH|GETCONF_DIR|GLIBC_TUNABLES|LOCPATH|MALLOC_.*|NLSPATH")
_BASE = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "USER": "user",
    "TMPDIR": "/tmp",
    # A list that a server makes from a Python set must not differ from launch to launch:
    # mcp-atlassian's default fields did, and four contracts changed in every run.
    "PYTHONHASHSEED": "0",
}


def build_environment(launch: Launch) -> dict[str, str]:
    """The whole environment of the launch. Raises LaunchRefused for what the C library's loader
    obeys in the program that sets the limits, before it has set them."""
    if taken := sorted(name for name in launch.env if _LOADER.fullmatch(name)):
        raise LaunchRefused(
            f"variable {taken[0]}: it would load code ahead of the sandbox's limits"
        )
    return {**_BASE, **launch.env, "HOME": HOME}


def check_words(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Raises UnusableWords naming the argument or variable that no program can be started with."""
    words = [(f"argument {place}", word) for place, word in enumerate(argv)]
    words += [(f"variable {name[:80]!r}", f"{name}={value}") for name, value in env.items()]
    total = 0
    for named, word in words:
        try:
            size = len(os.fsencode(word))
        except UnicodeEncodeError:
            raise UnusableWords(f"{named}: half of a surrogate pair, which is no text") from None
        if "\0" in word:
            raise UnusableWords(f"{named}: a NUL character, which ends every argument")
        total += size + 9  # its end, and a pointer to it
        if size > _LONGEST or total > _MOST:
            raise UnusableWords(
                f"{named}: {size:,} bytes; a program takes {_LONGEST:,} in one argument or"
                f" variable, and {_MOST:,} in all"
            )


def list_identity_files(uid: int) -> dict[str, str]:
    """The small /etc files that name the sandbox's one user."""
    return {
        "/etc/passwd": f"user:x:{uid}:{uid}:user:{HOME}:/bin/sh\n",
        "/etc/group": f"user:x:{uid}:\n",
        "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }


def choose_user(first: int, count: int) -> int:
    """A user of one sandbox alone."""
    return first + random.SystemRandom().randrange(count)


def list_limits(policy: SandboxPolicy) -> dict[str, tuple[int, int]]:
    """The kernel's limits on each process, soft and hard, by the names prlimit and docker share."""
    same = {
        "data": policy.memory_mb * MIB,  # not `as`: V8 and Chromium reserve far more than they use
        "nproc": policy.processes,
        "nofile": policy.open_files,
        "fsize": policy.file_mb * MIB,
        "core": 0,
    }
    # Processor time softly first, with a signal that says so; at the hard limit the kernel kills.
    cpu = (policy.cpu_s, policy.cpu_s + 2)
    return {**{name: (value, value) for name, value in same.items()}, "cpu": cpu}


def build_prlimit(policy: SandboxPolicy, *, without: tuple[str, ...] = ()) -> list[str]:
    """The words that put a command under the limits."""
    kept = {name: pair for name, pair in list_limits(policy).items() if name not in without}
    return ["prlimit", *[f"--{name}={soft}:{hard}" for name, (soft, hard) in kept.items()], "--"]


def limit_private_disks(policy: SandboxPolicy) -> dict[str, int]:
    """Bytes of each private file system. They lie in memory: all of them full are within its
    limit."""
    shared = min(64, policy.memory_mb // 8)
    each = min(policy.tmp_mb, (policy.memory_mb - shared) // 2)
    return {"/tmp": each * MIB, HOME: each * MIB, "/dev/shm": shared * MIB}


def cap_memory(policy: SandboxPolicy) -> int:
    """Bytes at which the kernel ends a sandbox as a whole, where it can: the watchdog on the tree's
    memory is to speak first, because it knows the reason."""
    return (policy.memory_mb * 5 // 4 + 64) * MIB


def make_memory_file(data: bytes) -> int:
    """A descriptor that reads `data`: handed over without a file or a process list showing it."""
    descriptor = os.memfd_create("toolmill")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
