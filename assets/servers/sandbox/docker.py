"""The container engine (docker; podman takes the same words): a container per launch of an image,
in its own root, under the limits of the sandbox."""

import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial

from assets.servers.sandbox import spec
from assets.servers.sandbox.spec import (
    HOME,
    BackendCommand,
    LaunchRefused,
    SandboxLaunch,
    SandboxPolicy,
    SandboxUnavailable,
    make_memory_file,
)
from warehouse.process_identity import describe_owner, is_abandoned

LABEL = "toolmill.owner"
PINNED = re.compile(r"([a-z0-9][\w.\-/:]{0,250}@)?sha256:[0-9a-f]{64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_LINE_END = re.compile(r"[\n\r\0]")
_UID_BASE, _UID_SPAN = 20_000, 40_000  # within the 65,536 users that a rootless engine may have
_PIDS = 4  # `--init` and the shells of an image count too
_CLIENT = ("DOCKER_", "CONTAINER", "XDG_RUNTIME_DIR")  # settings that the client itself reads


class ContainerEngine:
    """Containers of a local engine. program: `docker`, or another that takes its words."""

    def __init__(self, program: str = "docker") -> None:
        self.program = program

    def preflight(self) -> None:
        """Ends the containers of owners that died. Raises SandboxUnavailable where no engine
        answers."""
        if refusal := _try_once(self.program):
            raise SandboxUnavailable(*refusal)

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
        launch = granted or SandboxLaunch(())
        words = [*self.arguments(launch, policy), image, *args]
        return self._build_command(words, {"HOME": HOME, "TMPDIR": "/tmp", **env})

    def pull(self, image: str, timeout_s: float = 300.0) -> str | None:
        """Fetches a pinned image unless it is here; what went wrong, or None."""
        if self._ask_client("image", "inspect", image).returncode == 0:
            return None
        answer = self._ask_client("pull", "--quiet", image, timeout_s=timeout_s)
        return " ".join(answer.stderr.split())[-300:] or "no message" if answer.returncode else None

    def arguments(self, launch: SandboxLaunch, policy: SandboxPolicy) -> list[str]:
        """`run` and its options, up to the image; pure but for the user's number."""
        uid = launch.uid or spec.choose_user(_UID_BASE, _UID_SPAN)
        if os.geteuid() != 0 and any(mount.writable for mount in launch.mounts):
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
        for mount in launch.mounts:
            for path in (str(mount.host), mount.inside):
                if re.search(r'[,"\n\r\0]', path):
                    raise LaunchRefused(
                        f"folder {path!r}: a container engine takes no comma or quote in it"
                    )
            kind = "" if mount.writable else ",readonly"
            words += ["--mount", f"type=bind,src={mount.host},dst={mount.inside}{kind}"]
        return words

    def _build_command(self, words: Sequence[str], env: Mapping[str, str]) -> BackendCommand:
        """Values go through a descriptor and show in no process list. The client on the host has an
        environment of ours alone: LD_PRELOAD of a listing would be its own."""
        name = f"toolmill-{uuid.uuid4().hex}"
        files = [make_memory_file(write_env_file(env))]
        options = ["--name", name, "--env-file", f"/proc/self/fd/{files[0]}"]
        argv = [self.program, words[0], *options, *words[1:]]
        # The client's death ends no container: the engine is its parent.
        end = partial(self._ask_client, "rm", "--force", "--volumes", name)
        root = _ContainerRoot(self, name)
        return BackendCommand(argv, files, _read_client_settings(), root=root, end=end)

    def _ask_client(
        self, *words: str, timeout_s: float = 30.0
    ) -> "subprocess.CompletedProcess[str]":
        """One command of the client; a missing or hanging one is an exit like any other."""
        argv, how = [self.program, *words], {"capture_output": True, "timeout": timeout_s}
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, env=_read_client_settings(), **how
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess(argv, 125, "", str(error))
        texts = (output.decode("utf-8", "replace") for output in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(argv, done.returncode, *texts)


class _ContainerRoot:
    """Asks for the host's number of a container's first process until the engine tells. Behind a
    virtual machine it never is one of ours: then the engine's own limits stand alone."""

    def __init__(self, engine: ContainerEngine, name: str) -> None:
        self._engine, self._name, self._left, self._found = engine, name, 20, None

    def __call__(self) -> int | None:
        if self._found is None and self._left:
            self._left -= 1
            answer = self._engine._ask_client("inspect", "--format", "{{.State.Pid}}", self._name)
            text = answer.stdout.strip()
            if text.isdigit() and int(text) and os.path.exists(f"/proc/{text}"):
                self._found = int(text)
        return self._found


@lru_cache(maxsize=8)
def _try_once(program: str) -> tuple[str, str, str] | None:
    """(what, why, how) where no engine answers, else None. Removes containers whose owner on this
    host is no more; its pid may be another's now."""
    engine = ContainerEngine(program)
    if shutil.which(program, path=spec.SEARCH) is None:
        return program, "not installed", "install it (`sandbox.engine` names another) and run again"
    answer = engine._ask_client("version")
    if answer.returncode:
        how = "start the engine, and let this user talk to it (group `docker`)"
        return f"{program} does not answer", _find_last_line(answer.stderr), how
    template = f'{{{{.ID}}}} {{{{.Label "{LABEL}"}}}}'
    listed = engine._ask_client("ps", "--all", "--filter", f"label={LABEL}", "--format", template)
    for line in listed.stdout.splitlines():
        container, _, owner = line.partition(" ")
        if is_abandoned(owner):
            engine._ask_client("rm", "--force", "--volumes", container)
    return None


def write_env_file(env: Mapping[str, str]) -> bytes:
    """The variables as an engine's env file. Raises LaunchRefused for what a line cannot hold: a
    second line would be another variable, and a bare name one of the host's."""
    for name, value in env.items():
        if not _VARIABLE.fullmatch(name):
            raise LaunchRefused(f"variable {name[:80]!r}: no name that an env file can hold")
        if _LINE_END.search(value):
            raise LaunchRefused(
                f"variable {name}: its value has a line break, which the env file of a container"
                " engine cannot hold; give it on one line"
            )
    return "".join(f"{key}={value}\n" for key, value in env.items()).encode("utf-8", "replace")


def _read_client_settings() -> dict[str, str]:
    """What the client needs of our environment to find its engine; nothing else is handed on."""
    client = {key: value for key, value in os.environ.items() if key.startswith(_CLIENT)}
    return {"PATH": spec.SEARCH, "HOME": os.environ.get("HOME", "/"), **client}


def _find_last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1][:200]
