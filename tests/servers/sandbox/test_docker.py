"""The container engine: its words, and a scripted client."""

import json
import os
import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.servers.sandbox import docker, process, spec
from assets.servers.sandbox.docker import ContainerEngine
from assets.servers.sandbox.spec import HOME, SandboxLaunch, SandboxMount, SandboxPolicy
from tests.support.cases import cases
from warehouse.process_identity import describe_owner

IMAGE = "ghcr.io/some/server@sha256:" + "a" * 64


def words(policy=SandboxPolicy(), *mounts):
    return ContainerEngine().arguments(SandboxLaunch(("true",), mounts=mounts, uid=7), policy)


def test_every_limit_and_every_lock_is_named():
    shown = words(SandboxPolicy(memory_mb=1000, processes=60, open_files=50, file_mb=2, cpu_s=9))
    limits = ("nofile=50:50", f"fsize={2 << 20}:{2 << 20}", "cpu=9:11", "nproc=60:60", "core=0:0")
    assert {*pairwise(shown)} >= {
        *(("--network", "none"), ("--cap-drop", "ALL"), ("--security-opt", "no-new-privileges")),
        *(("--pids-limit", "64"), ("--memory", "1314m"), ("--memory-swap", "1314m")),
        *(("--pull", "never"), ("--user", "7:7")),
        *(("--ulimit", limit) for limit in limits),
        ("--label", f"toolmill.owner={describe_owner()}"),
    }
    assert {"--rm", "--init", "--read-only", "--interactive"} <= set(shown)
    assert not {"--privileged", "--cap-add", "--volume", "--device"} & set(shown)


def test_home_and_tmp_are_private_and_mounts_read_only_unless_said_and_of_one_folder():
    shown = [b for a, b in pairwise(words(SandboxPolicy(tmp_mb=3))) if a == "--tmpfs"]
    assert len(shown) == 2
    assert all(f"size={3 << 20}" in word and ",exec," in word for word in shown)
    assert {word.split(":")[0] for word in shown} == {"/tmp", HOME}
    mounts = (SandboxMount(Path("/a"), "/srv/server"), SandboxMount(Path("/b"), "/w", True))
    shown = [*pairwise(words(SandboxPolicy(), *mounts))]
    assert ("--mount", "type=bind,src=/a,dst=/srv/server,readonly") in shown
    assert ("--mount", "type=bind,src=/b,dst=/w") in shown
    assert ("--network", "bridge") in pairwise(words(SandboxPolicy(network="full")))
    with pytest.raises(spec.LaunchRefused, match="comma"):
        words(SandboxPolicy(), SandboxMount(Path("/a,bind-propagation=shared"), "/srv/server"))


def read_image_command(words=(), env=None, policy=SandboxPolicy(), **more):
    """(the command for an image, the text of its env file)."""
    command = ContainerEngine().image_command(IMAGE, words, env or {}, policy, **more)
    text = os.read(command.files[0], 1 << 20).decode()
    for descriptor in command.files:
        os.close(descriptor)
    return command, text


HOSTILE = ["LD_PRELOAD", "GCONV_PATH", "PATH", "DOCKER_HOST", "HOME", "A\nLD_PRELOAD", "#"]
NAMES = st.sampled_from(HOSTILE) | st.text(min_size=1, max_size=8)
VALUES = st.text(max_size=20) | st.sampled_from(["/srv/server/x.so\n", "a\r", "a\nB=c"])


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_no_environment_of_a_listing_reaches_the_client_on_the_host(env):
    """It is in the env file, name by name and value by value, or the launch is refused."""
    bad = any(not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.\-]*", name) for name in env)
    if bad or any(re.search(r"[\n\r\0]", value) for value in env.values()):
        with pytest.raises(spec.LaunchRefused, match="variable"):
            ContainerEngine().image_command(IMAGE, [], env, SandboxPolicy())
        return
    command, text = read_image_command(env=env)
    expected = {"HOME": HOME, "TMPDIR": "/tmp", **env}
    assert dict(line.split("=", 1) for line in text.split("\n")[:-1]) == expected
    assert command.env == docker._read_client_settings()
    assert "--env" not in command.argv


def test_an_image_is_launched_pinned_with_what_it_is_granted_and_shows_no_value():
    command, text = read_image_command(["--stdio"], {"TOKEN": "x"})
    assert list(command.argv[-2:]) == [IMAGE, "--stdio"]
    assert "--workdir" not in command.argv  # the image's own
    assert not any("/usr" in word for word in command.argv)  # no host folder
    assert {"--read-only", "--cap-drop"} <= set(command.argv)
    assert "TOKEN=x" in text.splitlines()
    assert "\nPATH=" not in text  # the image's own
    command, text = read_image_command(env={"KEY": "hunter2", "PATH": "/a:/b"})
    assert "hunter2" not in " ".join(command.argv)
    assert {"KEY=hunter2", "PATH=/a:/b", f"HOME={HOME}"} <= set(text.splitlines())
    user, folder = os.getuid() or 4242, SandboxMount(Path("/srv/notes"), f"{HOME}/data")
    seen = SandboxLaunch((), mounts=(folder,), uid=user)
    command, _ = read_image_command(granted=seen)
    mounts = [word for word in command.argv if word.startswith("type=bind")]
    assert mounts == [f"type=bind,src=/srv/notes,dst={HOME}/data,readonly"]
    assert f"{user}:{user}" in command.argv


@cases("image", "server:latest", "server", "--privileged", "x@sha256:abc")
def test_an_image_that_is_not_pinned_is_refused(image):
    with pytest.raises(ValueError, match="pinned"):
        ContainerEngine().image_command(image, [], {}, SandboxPolicy())


SCRIPTED = """#!{python}
import json, os, subprocess, sys
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(words) + "\\n")
if words[0] == "version":
    print(json.dumps({{"Client": {{"Version": "9.9"}}}}))
elif words[0] == "ps":
    print({owned!r})
elif words[0] == "run":
    place = max(i for i, w in enumerate(words) if "@sha256:" in w)
    sys.exit(subprocess.run(words[place + 1:]).returncode)
"""


@pytest.fixture
def client(tmp_path):
    """A program that takes docker's words, notes them, and runs the command as it is."""
    log = tmp_path / "log"
    program = tmp_path / "docker"
    pid, identity, place = describe_owner().split("@")
    owners = {
        "deadbeef": f"{pid}@{identity}0@{place}",  # a process before this one, of the same pid
        "cafe": describe_owner(),
        "feed": f"999999999@{identity}@another-boot:4026531836",  # of another machine
        "babe": "999999999",
    }
    owned = "\n".join(f"{name} {owner}" for name, owner in owners.items())
    words = {"python": sys.executable, "log": str(log), "owned": owned}
    program.write_text(SCRIPTED.format(**words))
    program.chmod(0o755)
    docker._try_once.cache_clear()
    yield ContainerEngine(str(program)), log
    docker._try_once.cache_clear()


def read_commands(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


def launch(engine, *words):
    return process.start(engine.image_command(IMAGE, words, {}, SandboxPolicy()), SandboxPolicy())


def test_a_launch_goes_through_the_client_and_leaving_it_removes_its_container(client):
    engine, log = client
    with launch(engine, "sleep", "60") as jailed:
        jailed.kill()
        jailed.kill()
    assert [line[0] for line in read_commands(log)].count("rm") == 1
    assert jailed.process.returncode is not None
    engine, log = client
    with launch(engine, "sh", "-c", "echo up; exit 3") as jailed:
        out, _ = jailed.process.communicate(timeout=60)
        assert (out, jailed.exit_status()) == (b"up\n", (3, None))
    run = [line for line in read_commands(log) if line[0] == "run"][-1]
    name = run[run.index("--name") + 1]
    assert read_commands(log)[-1] == ["rm", "--force", "--volumes", name]


def test_the_first_use_sweeps_what_dead_owners_left(client):
    engine, log = client
    engine.preflight()
    engine.preflight()
    removed = [line for line in read_commands(log) if line[0] == "rm"]
    assert removed == [["rm", "--force", "--volumes", "deadbeef"]]


def test_an_engine_that_does_not_answer_is_a_refusal(tmp_path):
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\necho 'Cannot connect to the daemon' >&2; exit 1\n")
    program.chmod(0o755)
    with pytest.raises(docker.SandboxUnavailable, match="Cannot connect") as refused:
        ContainerEngine(str(program)).preflight()
    assert "start the engine" in str(refused.value)
