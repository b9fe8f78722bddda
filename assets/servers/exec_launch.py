"""A program that becomes a sandboxed command: for a parent that starts programs itself and speaks
to them through more than the three standard streams. Standard library only.

    python -I -c "…; run_launch()" FILE [ARGUMENT…]

FILE is what `write_launch` wrote; the arguments are added to the command's.
"""

import json
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path

from assets.servers.sandbox.bubblewrap import Bubblewrap
from assets.servers.sandbox.environment import SEARCH
from assets.servers.sandbox.spec import Launch, Mount, SandboxPolicy

_ROOT = Path(__file__).resolve().parents[2]
_SOURCE = (
    f"import sys; sys.path.insert(0, {str(_ROOT)!r});"
    "from assets.servers.exec_launch import run_launch; run_launch()"
)


def write_launch(launch: Launch, policy: SandboxPolicy, folder: Path) -> Path:
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
    mounts = tuple(Mount(Path(host), *shown) for host, *shown in facts["mounts"])
    launch = Launch((*facts["argv"], *sys.argv[2:]), facts["env"], mounts, uid=facts["uid"])
    command = Bubblewrap().command(launch, SandboxPolicy(**facts["policy"]))
    file.with_name("pid").write_text(str(os.getpid()))
    for descriptor in command.files:
        os.set_inheritable(descriptor, True)
    os.chdir(command.cwd)
    os.execvpe(command.argv[0], list(command.argv), dict(command.env))
