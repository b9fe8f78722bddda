"""The backend bubblewrap: namespaces, mounts, environment and kernel limits.

As root the mounts are made by an outer bubblewrap; `setpriv` then drops to a uid of this sandbox
alone and an inner bubblewrap closes user namespaces: with `--uid` alone, root would ignore the
process limit and still read root's files. Anybody else needs a single bubblewrap.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from assets.servers.sandbox import kernel_limits, spec
from assets.servers.sandbox.spec import (
    HOME,
    SEARCH,
    BackendCommand,
    SandboxLaunch,
    SandboxMount,
    SandboxPolicy,
    SandboxUnavailable,
    UnusableGrant,
    make_memory_file,
)


class BubblewrapBackend:
    """The default on Linux: no engine, no image, a few milliseconds a start."""

    name = "bubblewrap"

    def version(self) -> str:
        return _ask_client("--version").removeprefix("bubblewrap ") or "unknown"

    def preflight(self) -> None:
        """Starts an empty sandbox once."""
        refusal = _try_once()
        if refusal:
            raise SandboxUnavailable(*refusal)

    def facts(self, policy: SandboxPolicy) -> dict[str, Any]:
        return {
            "system_calls": "filtered" if kernel_limits.build_filter() else "unfiltered",
            "memory": "watched",
            "host_loopback": "reachable" if policy.network == "full" else "unreachable",
        }

    def command(self, launch: SandboxLaunch, policy: SandboxPolicy) -> BackendCommand:
        argv, files = build_command_line(launch, policy, launch.uid or spec.choose_user())
        return BackendCommand(argv, files, {"PATH": spec.SEARCH})


def build_command_line(
    launch: SandboxLaunch, policy: SandboxPolicy, uid: int
) -> tuple[list[str], list[int]]:
    """The full command line, and the descriptors it reads (environment and small /etc files)."""
    root = os.geteuid() == 0
    files: list[int] = []
    args = _build_file_tree(launch, policy)
    for mount in launch.mounts:
        if mount.nofollow:
            files.append(_open_folder(mount, files))
            way = "--bind-fd" if mount.writable else "--ro-bind-fd"
            args += [way, str(files[-1]), mount.inside]
        else:
            args += ["--bind" if mount.writable else "--ro-bind", str(mount.host), mount.inside]
    for path, text in spec.list_identity_files(uid if root else os.getuid()).items():
        files.append(make_memory_file(text.encode()))
        args += ["--perms", "0444", "--ro-bind-data", str(files[-1]), path]
    # The environment is read from memory, so that no value shows in a process list.
    words = ["--clearenv", "--chdir", launch.cwd]
    for name, value in spec.build_environment(launch).items():
        words += ["--setenv", name, value]
    encoded = [word.replace("\0", "").encode("utf-8", "replace") for word in words]
    files.append(make_memory_file(b"\0".join(encoded)))
    env = ["--args", str(files[-1])]
    limited = [*spec.build_prlimit(policy), *launch.argv]
    closed = ["--unshare-user", "--disable-userns", "--die-with-parent"]
    if calls := kernel_limits.build_filter():
        files.append(make_memory_file(calls))
        closed += ["--seccomp", str(files[-1])]
    if not root:
        return ["bwrap", *args, *closed, "--remount-ro", "/", *env, "--", *limited], files
    drop = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]
    drop += ["--bounding-set=-all", "--inh-caps=-all"]
    inner = ["bwrap", *closed, "--dev-bind", "/", "/", *env, "--", *limited]
    # Before the host runs out of memory for others; set with the right to do it, this is also the
    # lowest that a process may choose for itself, should a protected service have started us.
    first_to_go = ["choom", "-n", "500", "--"]
    outer = [*first_to_go, "bwrap", *args, "--die-with-parent", "--remount-ro", "/", "--"]
    return [*outer, *drop, *inner], files


def _build_file_tree(launch: SandboxLaunch, policy: SandboxPolicy) -> list[str]:
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
    etc = [*spec.ETC, *(["/etc/resolv.conf"] if policy.network == "full" else [])]
    for folder in ("/etc", "/etc/ssl"):
        args += ["--perms", "0755", "--dir", folder]
    for path in etc:
        if os.path.exists(path):
            args += ["--ro-bind", os.path.realpath(path), path]
    args += ["--proc", "/proc", "--dev", "/dev"]
    sizes = {path: str(size) for path, size in spec.limit_private_disks(policy).items()}
    args += ["--perms", "1777", "--size", sizes["/dev/shm"], "--tmpfs", "/dev/shm"]
    args += ["--remount-ro", "/dev"]
    args += ["--perms", "1777", "--size", sizes["/tmp"], "--tmpfs", "/tmp"]
    args += ["--perms", "0777", "--size", sizes[HOME], "--tmpfs", HOME]
    for path in launch.dirs:
        args += ["--perms", "0777", "--dir", path]
    # Folders above the mounts, outermost first: bubblewrap would make them for root's eyes only,
    # and a Python under /root would be out of reach.
    present = ("/", "/usr", "/home", HOME, "/tmp", "/etc")
    parents = {str(path) for mount in launch.mounts for path in Path(mount.inside).parents}
    for parent in sorted(parents - {*present}):
        if not parent.startswith("/usr/"):
            args += ["--perms", "0755", "--dir", parent]
    return args


def _open_folder(mount: SandboxMount, opened: list[int]) -> int:
    """Its descriptor; where there is none, those that are open already are closed."""
    try:
        if "--ro-bind-fd" not in _ask_client("--help"):
            fix = "update it (0.10, or its fix of CVE-2024-42472 in your distribution)"
            raise UnusableGrant(f"folder {mount.host}: this bubblewrap has no --bind-fd; {fix}")
        return spec.open_granted_folder(mount.host)
    except UnusableGrant:
        for descriptor in opened:
            os.close(descriptor)
        raise


@lru_cache(maxsize=2)
def _ask_client(option: str) -> str:
    try:
        answer = subprocess.run(["bwrap", option], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip()


@lru_cache(maxsize=1)
def _try_once() -> tuple[str, str, str] | None:
    """(what, why, how) of a host where an empty sandbox does not start, else None."""
    for program in ("bwrap", "setpriv", "prlimit", "choom"):
        if shutil.which(program, path=spec.SEARCH) is None:
            package = "bubblewrap" if program == "bwrap" else "util-linux"
            how = f"install it (Debian: apt-get install {package}) and run again"
            return program, "not installed", how
    argv, files = build_command_line(SandboxLaunch(("true",)), SandboxPolicy(), spec.FIRST_USER)
    try:
        attempt = subprocess.run(argv, capture_output=True, text=True, timeout=20, pass_fds=files)
    except subprocess.TimeoutExpired:
        return "bwrap", "an empty sandbox hangs", "see `bwrap --help`"
    finally:
        for descriptor in files:
            os.close(descriptor)
    if not attempt.returncode:
        return None
    reason = attempt.stderr.strip().splitlines()[-1] if attempt.stderr.strip() else "no message"
    return "bubblewrap does not start", reason, _find_remedy(reason)


def _find_remedy(reason: str) -> str:
    if "disable-userns" in reason:
        return "bubblewrap 0.8 or later is needed: upgrade it"
    if os.geteuid() == 0:
        return (
            "root without the right to mount, as in an unprivileged container: run as an ordinary"
            " user where user namespaces are allowed, or grant the container CAP_SYS_ADMIN"
        )
    return (
        "this kernel refuses user namespaces to ordinary users: on Ubuntu 24.04 install an AppArmor"
        " profile for bwrap or set kernel.apparmor_restrict_unprivileged_userns=0; elsewhere set"
        " kernel.unprivileged_userns_clone=1"
    )


_ROOT = Path(__file__).resolve().parents[3]
_SOURCE = (
    f"import sys; sys.path.insert(0, {str(_ROOT)!r});"
    "from assets.servers.sandbox.bubblewrap import run_launch; run_launch()"
)


def write_launch(launch: SandboxLaunch, policy: SandboxPolicy, folder: Path) -> Path:
    """An executable in `folder` that is the launch once it runs; it leaves its process id in
    `folder/pid`, by which it can be watched."""
    facts = {
        "argv": launch.argv,
        "env": dict(launch.env),
        "mounts": [(str(mount.host), mount.inside, mount.writable) for mount in launch.mounts],
        "uid": launch.uid,
        "policy": asdict(policy),
    }
    (folder / "launch.json").write_text(json.dumps(facts))
    words = [sys.executable, "-I", "-c", _SOURCE, str(folder / "launch.json")]
    script = folder / "launch"
    script.write_text(f'#!/bin/sh\nexec /usr/bin/env -i PATH={SEARCH} {shlex.join(words)} "$@"\n')
    script.chmod(0o700)
    return script


def run_launch() -> None:
    """Becomes the launch that the first argument describes; the process keeps its id."""
    file = Path(sys.argv[1])
    facts = json.loads(file.read_bytes())
    mounts = tuple(SandboxMount(Path(host), *inside) for host, *inside in facts["mounts"])
    launch = SandboxLaunch((*facts["argv"], *sys.argv[2:]), facts["env"], mounts, uid=facts["uid"])
    command = BubblewrapBackend().command(launch, SandboxPolicy(**facts["policy"]))
    file.with_name("pid").write_text(str(os.getpid()))
    for descriptor in command.files:
        os.set_inheritable(descriptor, True)
    os.chdir(command.cwd)
    os.execvpe(command.argv[0], list(command.argv), dict(command.env))
