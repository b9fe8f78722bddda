"""The backend docker (podman takes the same words): a container per launch.

The default image is an empty root made here, over which the host's /usr lies read-only: a server
sees the same programs as under bubblewrap, so that one artefact serves both, and nothing is pulled.
"""

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from assets.servers.sandbox import kernel_limits, spec
from assets.servers.sandbox.spec import (
    HOME,
    BackendCommand,
    LaunchRefused,
    SandboxLaunch,
    SandboxMount,
    SandboxPolicy,
    SandboxUnavailable,
    make_memory_file,
)
from warehouse.process_identity import describe_owner, is_abandoned

EMPTY = "localhost/toolmill-sandbox:1"
_FOLDERS = ("usr", "etc/ssl", "proc", "sys", "dev", "tmp", HOME.lstrip("/"), "srv", "run", "var")
MERGED = ("bin", "lib", "lib64", "sbin")  # links into /usr on most hosts


def build_empty_root() -> bytes:
    """The image's files: folders, links into /usr, the small /etc files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder in (*_FOLDERS, *(name for name in MERGED if is_folder(name))):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name in MERGED:
            if os.path.islink(f"/{name}"):
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
                archive.addfile(entry)
        for path, text in spec.list_identity_files(65_534).items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def is_folder(name: str) -> bool:
    """Whether the host has /NAME as a folder of its own, no link into /usr."""
    return os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}")


LABEL = "toolmill.owner"
PINNED = re.compile(r"([a-z0-9][\w.\-/:]{0,250}@)?sha256:[0-9a-f]{64}")
_IMAGE_ID = re.compile(r"(sha256:)?([0-9a-f]{64})")  # podman leaves the algorithm out
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_LINE_END = re.compile(r"[\n\r\0]")
_UID_BASE, _UID_SPAN = 20_000, 40_000  # within the 65,536 users that a rootless engine may have
_PIDS = 4  # `--init` and the shells of an image count too
_CLIENT = ("DOCKER_", "CONTAINER", "XDG_RUNTIME_DIR")  # settings that the client itself reads


class DockerBackend:
    """Containers of a local engine. program: `docker`, or another that takes its words."""

    name = "docker"

    def __init__(self, program: str = "docker") -> None:
        self.program = program

    def version(self) -> str:
        answer = self._ask_client("version", "--format", "{{json .}}")
        try:
            about = json.loads(answer.stdout)
            version = (about.get("Server") or about.get("Client") or {}).get("Version")
        except (ValueError, AttributeError):
            version = None
        return f"{os.path.basename(self.program)} {version or 'unknown'}"

    def preflight(self) -> None:
        """Runs an empty container once, and ends those of owners that died."""
        if refusal := _try_once(self.program):
            raise SandboxUnavailable(*refusal)

    def facts(self, policy: SandboxPolicy) -> dict[str, Any]:
        # The default bridge has an address of the host; what listens on all addresses answers it.
        reach = "reachable on the bridge" if policy.network == "full" else "unreachable"
        return {"system_calls": "filtered", "memory": "engine", "host_loopback": reach}

    def command(self, launch: SandboxLaunch, policy: SandboxPolicy) -> BackendCommand:
        merged = [f"/{name}" for name in MERGED if is_folder(name)]
        host = [Path(path) for path in ("/usr", *merged, *spec.ETC) if os.path.exists(path)]
        mounts = [*map(SandboxMount.same, host), *launch.mounts]
        words = [*self.arguments(launch, policy, mounts), EMPTY, *launch.argv]
        return self._build_command(words, spec.build_environment(launch))

    def image_command(
        self,
        image: str,
        args: Sequence[str],
        env: Mapping[str, str],
        policy: SandboxPolicy,
        *,
        granted: SandboxLaunch | None = None,
    ) -> BackendCommand:
        """The launch of a server that is an image: its own root and entry point, the same limits.
        granted: has its mounts and user.

        Raises LaunchRefused unless the image is pinned by digest or named by its id."""
        if not PINNED.fullmatch(image):
            expected = "expected NAME@sha256:DIGEST or an id, so that it is pinned"
            raise LaunchRefused(f"image {image!r}: {expected}")
        spec.check_words(args, env)
        launch = replace(granted or SandboxLaunch(()), argv=(), env=env, cwd="")
        words = [*self.arguments(launch, policy, launch.mounts), image, *args]
        return self._build_command(words, {"HOME": HOME, "TMPDIR": "/tmp", **env})

    def pull(self, image: str, timeout_s: float = 300.0) -> str | None:
        """Fetches a pinned image unless it is here; what went wrong, or None."""
        if self._ask_client("image", "inspect", image).returncode == 0:
            return None
        answer = self._ask_client("pull", "--quiet", image, timeout_s=timeout_s)
        return " ".join(answer.stderr.split())[-300:] or "no message" if answer.returncode else None

    def find_image(self, name: str) -> str | None:
        """The id of an image of this host (`sha256:…`), which another build of it does not have."""
        output = self._ask_client("image", "inspect", "--format", "{{.Id}}", "--", name)
        match = _IMAGE_ID.fullmatch(output.stdout.strip()) if not output.returncode else None
        return f"sha256:{match[2]}" if match else None

    def arguments(
        self, launch: SandboxLaunch, policy: SandboxPolicy, mounts: Sequence[SandboxMount]
    ) -> list[str]:
        """`run` and its options, up to the image; pure but for the user's number."""
        uid = launch.uid or spec.choose_user(_UID_BASE, _UID_SPAN)
        if os.geteuid() != 0 and any(mount.writable for mount in mounts):
            uid = os.getuid()  # what is writable from inside belongs to us
        sizes = spec.limit_private_disks(policy)
        memory = f"{policy.memory_mb * 5 // 4 + 64}m"  # the watchdog, which knows why, speaks first
        words = ["run", "--rm", "--interactive", "--init", "--pull", "never", "--read-only"]
        words += ["--network", "none" if policy.network == "none" else "bridge"]
        words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        words += ["--pids-limit", str(policy.processes + _PIDS), "--user", f"{uid}:{uid}"]
        words += ["--memory", memory, "--memory-swap", memory, "--hostname", "sandbox"]
        words += ["--shm-size", str(sizes["/dev/shm"]), "--oom-score-adj", "500"]
        words += ["--label", f"{LABEL}={describe_owner()}"]
        for name, (soft, hard) in spec.list_limits(policy).items():
            words += ["--ulimit", f"{name}={soft}:{hard}"]
        for path, mode in (("/tmp", "1777"), (HOME, "0777")):
            words += ["--tmpfs", f"{path}:rw,exec,nosuid,nodev,size={sizes[path]},mode={mode}"]
        for mount in mounts:
            words += ["--mount", _describe_mount(mount)]
        return [*words, "--workdir", launch.cwd] if launch.cwd else words

    def _build_command(self, words: Sequence[str], env: Mapping[str, str]) -> BackendCommand:
        """Values go through a descriptor and show in no process list. The client on the host has an
        environment of ours alone: LD_PRELOAD of a listing would be its own."""
        name = f"toolmill-{uuid.uuid4().hex}"
        files = [make_memory_file(write_env_file(env))]
        files.append(make_memory_file(json.dumps(kernel_limits.build_profile()).encode()))
        env_file, calls = (f"/proc/self/fd/{descriptor}" for descriptor in files)
        options = ["--name", name, "--env-file", env_file, "--security-opt", f"seccomp={calls}"]
        argv = [self.program, words[0], *options, *words[1:]]
        # The client's death ends no container: the engine is its parent.
        end = partial(self._ask_client, "rm", "--force", "--volumes", name)
        root = _ContainerRoot(self, name)
        return BackendCommand(argv, files, _read_client_settings(), root=root, end=end)

    def _ask_client(
        self, *words: str, timeout_s: float = 30.0, data: bytes = b""
    ) -> "subprocess.CompletedProcess[str]":
        """One command of the client; a missing or hanging one is an exit like any other."""
        argv, how = [self.program, *words], {"capture_output": True, "timeout": timeout_s}
        try:
            done = subprocess.run(argv, input=data, env=_read_client_settings(), **how)
        except (OSError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess(argv, 125, "", str(error))
        texts = (output.decode("utf-8", "replace") for output in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(argv, done.returncode, *texts)


class _ContainerRoot:
    """Asks for the host's number of a container's first process until the engine tells. Behind a
    virtual machine it never is one of ours: then the engine's own limits stand alone."""

    def __init__(self, docker: DockerBackend, name: str) -> None:
        self._docker, self._name, self._left, self._found = docker, name, 20, None

    def __call__(self) -> int | None:
        if self._found is None and self._left:
            self._left -= 1
            answer = self._docker._ask_client("inspect", "--format", "{{.State.Pid}}", self._name)
            text = answer.stdout.strip()
            if text.isdigit() and int(text) and os.path.exists(f"/proc/{text}"):
                self._found = int(text)
        return self._found


@lru_cache(maxsize=8)
def _try_once(program: str) -> tuple[str, str, str] | None:
    """(what, why, how) where no engine runs an empty container, else None. Removes containers whose
    owner on this host is no more; its pid may be another's now."""
    engine = DockerBackend(program)
    if shutil.which(program, path=spec.SEARCH) is None:
        return program, "not installed", "install Docker or bubblewrap and run again"
    answer = engine._ask_client("version")
    if answer.returncode:
        how = "start the engine, and let this user talk to it (group `docker`)"
        return f"{program} does not answer", _find_last_line(answer.stderr), how
    if engine._ask_client("image", "inspect", EMPTY).returncode:
        imported = engine._ask_client("import", "-", EMPTY, data=build_empty_root())
        if imported.returncode:
            return f"{program} import", _find_last_line(imported.stderr), "see its log"
    template = f'{{{{.ID}}}} {{{{.Label "{LABEL}"}}}}'
    listed = engine._ask_client("ps", "--all", "--filter", f"label={LABEL}", "--format", template)
    for line in listed.stdout.splitlines():
        container, _, owner = line.partition(" ")
        if is_abandoned(owner):
            engine._ask_client("rm", "--force", "--volumes", container)
    command = engine.command(SandboxLaunch(("true",)), SandboxPolicy())
    how = {"capture_output": True, "text": True, "timeout": 60, "env": dict(command.env)}
    try:
        tried = subprocess.run(command.argv, pass_fds=command.files, **how)
    except subprocess.TimeoutExpired:
        if command.end:
            command.end()
        return f"{program} run", "an empty container hangs", "see the engine's log"
    finally:
        for descriptor in command.files:
            os.close(descriptor)
    if not tried.returncode:
        return None
    return f"{program} runs no container", _find_last_line(tried.stderr), "see docs/sandbox.md"


def write_env_file(env: Mapping[str, str]) -> bytes:
    """The variables as an engine's env file. Raises LaunchRefused for what a line cannot hold: a
    second line would be another variable, and a bare name one of the host's."""
    for name, value in env.items():
        if not _VARIABLE.fullmatch(name):
            raise LaunchRefused(f"variable {name[:80]!r}: no name that an env file can hold")
        if _LINE_END.search(value):
            raise LaunchRefused(
                f"variable {name}: its value has a line break, which the env file of a container"
                ' engine cannot hold; give it on one line, or set `sandbox.backend = "bubblewrap"`'
            )
    return "".join(f"{key}={value}\n" for key, value in env.items()).encode("utf-8", "replace")


def _describe_mount(mount: SandboxMount) -> str:
    """The value of `--mount`, whose parts are parted by commas. Raises LaunchRefused."""
    for path in (str(mount.host), mount.inside):
        if re.search(r'[,"\n\r\0]', path):
            raise LaunchRefused(
                f"folder {path!r}: a container engine takes no comma or quote in it"
            )
    kind = "" if mount.writable else ",readonly"
    return f"type=bind,src={mount.host},dst={mount.inside}{kind}"


def _read_client_settings() -> dict[str, str]:
    """What the client needs of our environment to find its engine; nothing else is handed on."""
    client = {key: value for key, value in os.environ.items() if key.startswith(_CLIENT)}
    return {"PATH": spec.SEARCH, "HOME": os.environ.get("HOME", "/"), **client}


def _find_last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1][:200]
