"""The backend docker: its words, a scripted client, and a real engine where one is named.

The real one: TOOLMILL_TEST_ENGINE=podman (or docker), an engine that runs containers here.
"""

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.servers.probe.probe import probe
from assets.servers.sandbox import certificate, docker
from assets.servers.sandbox.docker import EMPTY, DockerBackend, build_empty_root
from assets.servers.sandbox.process import choose_backend, start
from assets.servers.sandbox.spec import (
    HOME,
    LaunchRefused,
    SandboxLaunch,
    SandboxMount,
    SandboxPolicy,
)
from assets.servers.sandbox.toolchain import find_toolchain
from tests.hostile.escape_suite import (
    ATTEMPTS,
    SURFACE,
    make_suite_launch,
    place_canaries,
    run_suite,
)
from tests.support import untrusted_server
from warehouse.process_identity import describe_owner

IMAGE = "ghcr.io/some/server@sha256:" + "a" * 64


def words(policy=SandboxPolicy(), *mounts):
    return DockerBackend().arguments(SandboxLaunch(("true",), uid=7), policy, list(mounts))


def pairs(shown):
    return set(pairwise(shown))


def test_every_limit_and_every_lock_is_named():
    shown = words(SandboxPolicy(memory_mb=1000, processes=60, open_files=50, file_mb=2, cpu_s=9))
    limits = ("nofile=50:50", f"fsize={2 << 20}:{2 << 20}", "cpu=9:11", "nproc=60:60", "core=0:0")
    assert pairs(shown) >= {
        *(("--network", "none"), ("--cap-drop", "ALL"), ("--security-opt", "no-new-privileges")),
        *(("--pids-limit", "64"), ("--memory", "1314m"), ("--memory-swap", "1314m")),
        *(("--pull", "never"), ("--user", "7:7")),
        *(("--ulimit", limit) for limit in limits),
        ("--label", f"toolmill.owner={describe_owner()}"),
    }
    assert {"--rm", "--init", "--read-only", "--interactive"} <= set(shown)
    assert not {"--privileged", "--cap-add", "--volume", "--device"} & set(shown)


def test_home_and_tmp_are_private_sized_and_executable():
    shown = [b for a, b in pairs(words(SandboxPolicy(tmp_mb=3))) if a == "--tmpfs"]
    assert len(shown) == 2
    assert all(f"size={3 << 20}" in word and ",exec," in word for word in shown)
    assert {word.split(":")[0] for word in shown} == {"/tmp", HOME}


def test_the_network_is_the_bridge_and_never_the_hosts():
    assert ("--network", "bridge") in pairs(words(SandboxPolicy(network="full")))


def test_mounts_are_read_only_unless_said():
    mounts = (SandboxMount(Path("/a"), "/srv/server"), SandboxMount(Path("/b"), "/w", True))
    shown = pairs(words(SandboxPolicy(), *mounts))
    assert ("--mount", "type=bind,src=/a,dst=/srv/server,readonly") in shown
    assert ("--mount", "type=bind,src=/b,dst=/w") in shown


def test_values_show_in_no_command_line():
    launch = SandboxLaunch(("true",), {"KEY": "hunter2", "PATH": "/a:/b"})
    command = DockerBackend().command(launch, SandboxPolicy())
    try:
        assert "hunter2" not in " ".join(command.argv)
        lines = os.read(command.files[0], 1 << 16).decode().splitlines()
        assert {"KEY=hunter2", "PATH=/a:/b", f"HOME={HOME}"} <= set(lines)
        profile = json.loads(os.read(command.files[1], 1 << 20))
        assert profile["syscalls"]
    finally:
        for descriptor in command.files:
            os.close(descriptor)


NAMES = st.one_of(
    st.sampled_from(
        ["LD_PRELOAD", "GCONV_PATH", "PATH", "DOCKER_HOST", "HOME", "A\nLD_PRELOAD", "#"]
    ),
    st.text(min_size=1, max_size=8),
)
VALUES = st.one_of(st.text(max_size=20), st.sampled_from(["/srv/server/x.so\n", "a\r", "a\nB=c"]))


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_no_environment_of_a_listing_reaches_the_client_on_the_host(env):
    """It is in the env file, name by name and value by value, or the launch is refused."""
    bad = any(not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.\-]*", name) for name in env)
    if bad or any(re.search(r"[\n\r\0]", value) for value in env.values()):
        with pytest.raises(LaunchRefused, match="variable"):
            DockerBackend().image_command(IMAGE, [], env, SandboxPolicy())
        return
    command = DockerBackend().image_command(IMAGE, [], env, SandboxPolicy())
    text = os.read(command.files[0], 1 << 20).decode()
    for descriptor in command.files:
        os.close(descriptor)
    expected = {"HOME": HOME, "TMPDIR": "/tmp", **env}
    assert dict(line.split("=", 1) for line in text.split("\n")[:-1]) == expected
    assert command.env == docker._read_client_settings()
    assert "--env" not in command.argv


@pytest.mark.parametrize("name", ["LD_PRELOAD", "GCONV_PATH", "PATH"])
def test_a_value_of_two_lines_is_refused_with_its_name_and_the_fix(name):
    with pytest.raises(LaunchRefused, match=f"variable {name}: .*line break.*one line"):
        DockerBackend().image_command(IMAGE, [], {name: "/srv/server/x.so\n"}, SandboxPolicy())


def test_a_refused_launch_is_a_result_and_not_an_exception(client):
    policy, log = client
    result = probe(SandboxLaunch(("true",), {"CONFIG": "a\nb"}), policy)
    assert (result.status, result.error_kind) == ("failed", "policy_denied")
    assert "CONFIG" in str(result.hint)
    assert not any("CONFIG" in " ".join(line) for line in read_commands(log))


def test_a_folder_cannot_add_options_to_its_mount():
    with pytest.raises(LaunchRefused, match="comma"):
        words(SandboxPolicy(), SandboxMount(Path("/a,bind-propagation=shared"), "/srv/server"))


def test_the_default_image_is_an_empty_root():
    with tarfile.open(fileobj=io.BytesIO(build_empty_root())) as archive:
        names = archive.getnames()
        passwd = archive.extractfile("etc/passwd")
        assert passwd
        assert b"root" not in passwd.read()
    assert {"usr", "tmp", "proc", HOME.lstrip("/")} <= set(names)
    assert not any(name.startswith("usr/") for name in names)


def test_an_image_is_launched_pinned_and_under_the_same_limits():
    engine = DockerBackend()
    command = engine.image_command(IMAGE, ["--stdio"], {"TOKEN": "x"}, SandboxPolicy())
    text = os.read(command.files[0], 1 << 16).decode()
    for descriptor in command.files:
        os.close(descriptor)
    assert list(command.argv[-2:]) == [IMAGE, "--stdio"]
    assert "--workdir" not in command.argv  # the image's own
    assert not any("/usr" in word for word in command.argv)  # no host folder
    assert {"--read-only", "--cap-drop"} <= set(command.argv)
    assert "TOKEN=x" in text.splitlines()
    assert "\nPATH=" not in text  # the image's own


def test_an_image_is_shown_what_it_is_granted_and_runs_as_its_owner():
    user, folder = os.getuid() or 4242, SandboxMount(Path("/srv/notes"), f"{HOME}/data")
    seen = SandboxLaunch((), mounts=(folder,), uid=user)
    command = DockerBackend().image_command(IMAGE, [], {}, SandboxPolicy(), granted=seen)
    for descriptor in command.files:
        os.close(descriptor)
    mounts = [word for word in command.argv if word.startswith("type=bind")]
    assert mounts == [f"type=bind,src=/srv/notes,dst={HOME}/data,readonly"]
    assert f"{user}:{user}" in command.argv


@pytest.mark.parametrize("image", ["server:latest", "server", "--privileged", "x@sha256:abc"])
def test_an_image_that_is_not_pinned_is_refused(image):
    with pytest.raises(ValueError, match="pinned"):
        DockerBackend().image_command(image, [], {}, SandboxPolicy())


SCRIPTED = """#!{python}
import json, os, subprocess, sys
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(words) + "\\n")
if words[0] == "version":
    print(json.dumps({{"Client": {{"Version": "9.9"}}}}))
elif words[:2] == ["image", "inspect"]:
    sys.exit(1)
elif words[0] == "import":
    sys.stdin.buffer.read()
elif words[0] == "ps":
    print({owned!r})
elif words[0] == "run":
    place = max(i for i, w in enumerate(words) if w == {empty!r} or "@sha256:" in w)
    sys.exit(subprocess.run(words[place + 1:]).returncode)
"""


@pytest.fixture
def client(tmp_path, monkeypatch):
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
    words = {"python": sys.executable, "log": str(log), "empty": EMPTY, "owned": owned}
    program.write_text(SCRIPTED.format(**words))
    program.chmod(0o755)
    docker._try_once.cache_clear()
    yield SandboxPolicy(backend="docker", engine=str(program)), log
    docker._try_once.cache_clear()


def read_commands(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_a_launch_goes_through_the_client_and_its_container_is_removed(client):
    policy, log = client
    with start(SandboxLaunch(("sh", "-c", "echo up; exit 3")), policy) as jailed:
        out, _ = jailed.process.communicate(timeout=60)
        assert (out, jailed.exit_status()) == (b"up\n", (3, None))
    run = [line for line in read_commands(log) if line[0] == "run"][-1]
    name = run[run.index("--name") + 1]
    assert read_commands(log)[-1] == ["rm", "--force", "--volumes", name]


def test_leaving_ends_the_container_besides_the_client(client):
    policy, log = client
    with start(SandboxLaunch(("sleep", "60")), policy) as jailed:
        jailed.kill()
        jailed.kill()
    assert [line[0] for line in read_commands(log)].count("rm") == 2  # one swept, one of ours, once
    assert jailed.process.returncode is not None


def test_the_first_use_makes_the_image_and_sweeps_what_dead_owners_left(client):
    policy, log = client
    chosen = choose_backend(policy)
    lines = read_commands(log)
    assert ["import", "-", EMPTY] in lines
    assert ["rm", "--force", "--volumes", "deadbeef"] in lines
    assert [line[3] for line in lines if line[0] == "rm" and "toolmill" not in line[3]] == [
        "deadbeef"
    ]
    assert chosen.version() == "docker 9.9"
    assert lines == read_commands(log)[: len(lines)]
    choose_backend(policy)
    assert [line[0] for line in read_commands(log)].count("import") == 1


def test_an_engine_that_does_not_answer_is_a_refusal(tmp_path):
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\necho 'Cannot connect to the daemon' >&2; exit 1\n")
    program.chmod(0o755)
    with pytest.raises(docker.SandboxUnavailable, match="Cannot connect") as refused:
        choose_backend(SandboxPolicy(backend="docker", engine=str(program)))
    assert "start the engine" in str(refused.value)


# From here on with a real engine.

ENGINE = os.environ.get("TOOLMILL_TEST_ENGINE", "")


@pytest.fixture
def engine():
    if not ENGINE:
        pytest.skip("no engine is named (TOOLMILL_TEST_ENGINE)")
    policy = SandboxPolicy(backend="docker", engine=ENGINE)
    choose_backend(policy)
    return policy


def test_a_real_engine_gets_the_certificate(engine, monkeypatch):
    monkeypatch.setattr(certificate, "_cached", {})
    made = certificate.certify(engine, find_toolchain())
    assert made["passed"], made["escaped"]
    with place_canaries() as prepared:
        found = run_suite(make_suite_launch(prepared, find_toolchain()), engine)
    assert {found[attempt.name] for attempt in ATTEMPTS if attempt.name not in SURFACE} == {
        "refused"
    }


def test_a_real_engine_runs_and_ends_servers(engine, tmp_path):
    def meet(source, **limits):
        policy = replace(engine, **{"memory_mb": 192, "processes": 48, "wall_s": 20.0, **limits})
        return probe(
            untrusted_server.write_launch(tmp_path, source), policy, untrusted_server.CONVERSATION
        )

    assert untrusted_server.tool_names(meet("serve([tool('a')])")) == ["a"]
    assert meet("while True: os.fork()", memory_mb=1024).error_kind == "too_many_processes"
    assert meet("x = []\nwhile True: x.append(bytearray(8 << 20))").error_kind == "out_of_memory"
    assert meet("time.sleep(600)").error_kind == "timeout_start"
    escaper = "import os\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\n"
    assert untrusted_server.tool_names(meet(escaper + "serve([tool('a')])")) == ["a"]
    left = subprocess.run(
        [ENGINE, "ps", "-aq", "--filter", "label=toolmill.owner"], capture_output=True, text=True
    )
    assert left.stdout.split() == []


def test_a_real_engine_runs_an_image_by_digest(engine):
    chosen = DockerBackend(ENGINE)
    listed = chosen._ask_client("image", "inspect", "--format", "{{json .RepoDigests}}", EMPTY)
    image = next(name for name in json.loads(listed.stdout) if "@" in name)
    assert chosen.pull(image) is None
    with start(chosen.image_command(image, ["/no/such"], {}, engine), engine) as jailed:
        _, err = jailed.process.communicate(timeout=60)
    assert b"no such" in err.lower() or b"not found" in err.lower()
