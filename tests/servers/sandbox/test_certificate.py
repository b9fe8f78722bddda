"""The certificate: it passes where everything is refused, and a hole or an empty run fails it."""

from dataclasses import replace
from pathlib import Path

import pytest

from assets.servers.sandbox import certificate, spec
from assets.servers.sandbox.certificate import certify, judge_outcomes, run_preflight
from assets.servers.sandbox.spec import SandboxPolicy
from assets.servers.sandbox.toolchain import find_toolchain
from tests.support.cases import cases
from tests.support.untrusted_server import require_sandbox

REFUSED = dict.fromkeys(certificate._ATTEMPTS, "refused")
GOOD = REFUSED | dict.fromkeys(certificate._CONTROLS, "worked")
ABOUT = {"backend": "test", "suite": "s", "network": "none"}


@pytest.fixture(autouse=True)
def uncached(monkeypatch):
    monkeypatch.setattr(certificate, "_cached", {})


@pytest.fixture
def toolchain():
    require_sandbox()
    return find_toolchain()


def test_the_sandbox_of_this_host_passes(toolchain):
    given = certify(SandboxPolicy(), toolchain)
    assert given["passed"], given["escaped"]
    assert (given["fixes"], given["n"], given["attempts"]) == ([], len(REFUSED), REFUSED)
    assert (given["host_loopback"], given["fetch_network"]) == ("unreachable", "registries")


def test_it_is_the_same_on_another_run_and_another_with_the_network(toolchain):
    first = certify(SandboxPolicy(), toolchain)
    assert certify(SandboxPolicy(wall_s=5), toolchain) is first  # once for a process
    certificate._cached.clear()
    assert certify(SandboxPolicy(memory_mb=512), toolchain) == first
    networked = certify(SandboxPolicy(network="full"), toolchain)
    assert networked["passed"], networked["escaped"]
    assert networked["attempts"]["has_a_route"] == "granted"
    assert networked["host_loopback"] == "reachable"
    wider = certify(SandboxPolicy(fetch_hosts=("files.example",)), toolchain)
    assert wider["fetch_hosts"] == ["files.example"]
    assert len({one["digest"] for one in (first, networked, wider)}) == 3


def test_a_folder_of_the_host_that_is_shown_is_found(toolchain, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tmp_path.chmod(0o755)
    given = certify(SandboxPolicy(), replace(toolchain, binds=(*toolchain.binds, tmp_path)))
    assert given["escaped"] == ["reads_a_file_of_the_host"]
    assert given["fixes"] == ["upgrade bubblewrap (0.8 or later)"]


def test_a_toolchain_that_shows_its_neighbours_is_found(monkeypatch, tmp_path):
    """`~/.local` as a whole, because Node lies there."""
    require_sandbox()
    local = tmp_path / ".local"
    (local / "bin").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = find_toolchain()
    assert certify(SandboxPolicy(), replace(found, binds=(*found.binds, local / "bin")))["passed"]
    monkeypatch.setattr(spec, "is_private_folder", lambda path: False)
    given = certify(SandboxPolicy(), replace(found, binds=(*found.binds, local)))
    assert given["escaped"] == ["finds_a_file_beside_the_toolchain"]
    assert [path.name for path in tmp_path.rglob("*")] == [".local", "bin"]


def test_the_attempts_work_where_nothing_contains_them(toolchain):
    found = run_preflight(SandboxPolicy(backend="none"), toolchain)
    assert {name for name, outcome in found.items() if outcome == "worked"} >= {
        "reads_a_file_of_the_host", "shares_the_mounts_of_the_host",
        "shares_the_processes_of_the_host", "shares_the_network_of_the_host", "inherits_a_variable",
        "gains_by_a_setuid_program", *certificate._CONTROLS,
    }  # fmt: skip
    assert not Path("/usr/lib/canary").exists()


@cases("source", "raise SystemExit", "print('[1]')", "import os; os.abort()")
def test_a_preflight_that_ran_nothing_does_not_pass(toolchain, monkeypatch, source):
    monkeypatch.setattr(certificate, "_PROGRAM", source)
    given = certify(SandboxPolicy(), toolchain)
    assert (given["passed"], given["escaped"]) == (False, ["nothing_ran"])


def test_no_isolation_has_a_certificate_that_fails():
    given = certify(SandboxPolicy(backend="none"), find_toolchain())
    assert (given["backend"], given["passed"], given["n"]) == ("none", False, 0)
    assert (set(given["attempts"].values()), given["fetch_network"]) == ({"not run"}, "host")


def test_each_control_must_work_and_each_attempt_be_refused():
    good = judge_outcomes(ABOUT, GOOD)
    assert good["passed"]
    for name in certificate._CONTROLS:
        assert judge_outcomes(ABOUT, {**GOOD, name: "refused"})["escaped"] == ["nothing_ran"]
    for name in REFUSED:
        given = judge_outcomes(ABOUT, {**GOOD, name: "worked"})
        assert given["escaped"] == [name]
        assert given["fixes"]
        assert given["digest"] != good["digest"]
        missing = {case: outcome for case, outcome in GOOD.items() if case != name}
        assert judge_outcomes(ABOUT, missing)["escaped"] == ["nothing_ran"]
