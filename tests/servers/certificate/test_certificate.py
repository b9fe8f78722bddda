"""The certificate: it passes where everything is refused, and a hole or an empty run fails it."""

from dataclasses import replace

import pytest

from assets.servers.certificate import certificate, escapes
from assets.servers.certificate.certificate import (
    certify,
    judge_outcomes,
    make_suite_launch,
    place_canaries,
    run_suite,
)
from assets.servers.certificate.escapes import ATTEMPTS, CONTROLS
from assets.servers.certificate.memory import MEMORY_ATTEMPTS, try_holding_memory
from assets.servers.sandbox import bubblewrap, kernel_limits, spec, watchdog
from assets.servers.sandbox.spec import Mount, SandboxPolicy
from assets.servers.sandbox.toolchain import find_toolchain
from tests.support.untrusted_server import require_sandbox

NAMES = [*(attempt.name for attempt in ATTEMPTS), *MEMORY_ATTEMPTS]
REFUSED = dict.fromkeys(NAMES, "refused") | dict.fromkeys(CONTROLS, "worked")
ABOUT = {"backend": "test", "suite": "s"}


@pytest.fixture
def real(monkeypatch):
    require_sandbox()
    monkeypatch.setattr(certificate, "_cached", {})


@pytest.mark.usefixtures("real")
def test_the_sandbox_of_this_host_passes():
    given = certify(SandboxPolicy(), find_toolchain())
    assert given.passed, given.escaped
    assert (given.escaped, given.n) == ((), len(NAMES))
    assert set(given.facts["attempts"].values()) == {"refused"}
    assert given.facts["host_loopback"] == "unreachable"
    assert given.facts["fetch_network"] == "registries"


@pytest.mark.usefixtures("real")
def test_it_is_the_same_on_another_run_and_another_with_the_network():
    first = certify(SandboxPolicy(), find_toolchain())
    certificate._cached.clear()
    again = certify(SandboxPolicy(memory_mb=512), find_toolchain())
    other = certify(SandboxPolicy(network="full"), find_toolchain())
    wider = certify(SandboxPolicy(fetch_hosts=("files.example",)), find_toolchain())
    assert wider.facts["fetch_hosts"] == ["files.example"]
    assert wider.digest != first.digest
    assert (first.digest, first.facts) == (again.digest, again.facts)
    assert other.digest != first.digest
    assert other.passed, other.escaped
    assert other.facts["attempts"]["reaches_loopback"] == "granted"
    assert other.facts["host_loopback"] == "reachable"


@pytest.mark.usefixtures("real")
def test_it_is_made_once_for_a_process(monkeypatch):
    given = certify(SandboxPolicy(), find_toolchain())
    monkeypatch.setattr(certificate, "run_suite", lambda *_: {})
    assert certify(SandboxPolicy(wall_s=5), find_toolchain()) is given


@pytest.mark.usefixtures("real")
def test_a_hole_in_the_wall_is_found():
    """The host's folder of canaries is shown inside: what looks for it must find it."""
    with place_canaries() as prepared:
        launch = make_suite_launch(prepared, find_toolchain())
        hole = replace(launch, mounts=(*launch.mounts, Mount.same(prepared.folder, writable=True)))
        outcomes = run_suite(hole, SandboxPolicy())
    given = judge_outcomes(ABOUT, outcomes, "none")
    assert {
        "reads_a_file_of_the_host",
        "lists_a_folder_of_the_host",
        "writes_a_file_of_the_host",
        "follows_a_symlink",
        "reaches_a_socket_file",
    } <= set(given.escaped)
    assert not given.passed


@pytest.mark.usefixtures("real")
def test_a_toolchain_that_shows_its_neighbours_is_found(monkeypatch, tmp_path):
    """`~/.local` as a whole, because Node lies there."""
    local = tmp_path / ".local"
    (local / "bin").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = find_toolchain()
    assert certify(SandboxPolicy(), replace(found, binds=(*found.binds, local / "bin"))).passed
    monkeypatch.setattr(spec, "is_private_folder", lambda path: False)
    given = certify(SandboxPolicy(), replace(found, binds=(*found.binds, local)))
    assert given.escaped == ("finds_a_file_beside_the_toolchain",)
    assert [path.name for path in tmp_path.rglob("*")] == [".local", "bin"]


@pytest.mark.usefixtures("real")
def test_memory_that_no_process_shows_is_within_the_limit():
    with place_canaries() as prepared:
        launch = make_suite_launch(prepared, find_toolchain())
        found = try_holding_memory(launch, SandboxPolicy())
    assert found == dict.fromkeys(MEMORY_ATTEMPTS, "refused")


@pytest.mark.usefixtures("real")
def test_memory_that_is_held_beyond_the_limit_is_found(monkeypatch):
    """Without the filter, the sizes and the count of the folders: as it was."""
    large = {"/tmp": 256 << 20, spec.HOME: 256 << 20, "/dev/shm": 64 << 20}
    monkeypatch.setattr(kernel_limits, "build_filter", lambda **_: None)
    monkeypatch.setattr(spec, "limit_private_disks", lambda policy: large)
    monkeypatch.setattr(watchdog, "_read_private_disks", lambda pids: [])
    monkeypatch.setattr(bubblewrap, "make_control_group", lambda policy: None)
    with place_canaries() as prepared:
        found = try_holding_memory(make_suite_launch(prepared, find_toolchain()), SandboxPolicy())
    assert found == dict.fromkeys(MEMORY_ATTEMPTS, "worked")
    escaped = judge_outcomes(ABOUT, {**REFUSED, **found}, "none").escaped
    assert set(escaped) == set(MEMORY_ATTEMPTS)


@pytest.mark.usefixtures("real")
def test_an_open_network_that_was_not_granted_is_found():
    with place_canaries() as prepared:
        launch = make_suite_launch(prepared, find_toolchain())
        outcomes = run_suite(launch, SandboxPolicy(network="full"))
        assert prepared.reached()
    escaped = judge_outcomes(ABOUT, {**outcomes, "listener": "reached"}, "none").escaped
    assert {"reaches_loopback", "reaches_an_abstract_socket", "listener_of_the_host"} <= set(
        escaped
    )


@pytest.mark.usefixtures("real")
def test_a_suite_that_ran_nothing_does_not_pass(monkeypatch):
    for source in ("raise SystemExit", "print('{}')", "print('[1]')", "import os; os.abort()"):
        monkeypatch.setattr(certificate, "write_program", lambda source=source: source)
        with place_canaries() as prepared:
            outcomes = run_suite(make_suite_launch(prepared, find_toolchain()), SandboxPolicy())
        assert judge_outcomes(ABOUT, outcomes, "none").escaped == ("nothing_ran",)


def test_no_isolation_has_a_certificate_that_fails(monkeypatch):
    monkeypatch.setattr(certificate, "_cached", {})
    given = certify(SandboxPolicy(backend="none"), find_toolchain())
    assert (given.backend, given.passed, given.n) == ("none", False, 0)
    assert set(given.facts["attempts"].values()) == {"not run"}
    assert given.facts["fetch_network"] == "host"


def test_each_control_must_work_and_each_attempt_be_refused():
    assert judge_outcomes(ABOUT, REFUSED, "none").passed
    for name in CONTROLS:
        assert judge_outcomes(ABOUT, {**REFUSED, name: "refused"}, "none").escaped == (
            "nothing_ran",
        )
    assert judge_outcomes(ABOUT, {**REFUSED, "holds_memory_in_flight": "worked"}, "none").escaped
    for attempt in ATTEMPTS:
        given = judge_outcomes(ABOUT, {**REFUSED, attempt.name: "worked"}, "none")
        assert given.escaped == (() if attempt.surface else (attempt.name,))
        assert given.digest != judge_outcomes(ABOUT, REFUSED, "none").digest
        missing = {name: how for name, how in REFUSED.items() if name != attempt.name}
        assert judge_outcomes(ABOUT, missing, "none").escaped == ("nothing_ran",)


def test_another_attempt_is_another_suite(monkeypatch):
    before = escapes.suite_digest()
    monkeypatch.setitem(escapes.CONTROLS, "one_more", "1")
    assert escapes.suite_digest() != before
