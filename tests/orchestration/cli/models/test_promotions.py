"""`toolmill champion approve | refuse` and `toolmill release watch`, as a person meets them."""

import json
from pathlib import Path

import pytest

import training.releases.rollback
from tests.support.command import invoke_toolmill
from tests.training.promotions import consider_model, make_summary, save_empty_model, serve_release
from tests.training.releases.live.test_rollback import write_calls
from training.releases.promotion import consider_candidate
from training.releases.release import read_served
from training.role import check_gates
from warehouse.home import claim_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    claim_home(tmp_path)
    return tmp_path


def test_a_waiting_candidate_is_shown_refused_and_approved(home: Path) -> None:
    held = make_summary(home, save_empty_model(home, "m1"))
    gates = check_gates("retriever", held)
    consider_candidate(home, "retriever", "m1", "set1", gates, held, by_hand=True)
    shown = invoke_toolmill("champion", "list", home=home)
    assert "waits for `toolmill champion approve retriever`" in shown.stdout
    said = ("--by", "ann", "--why", "read 20 answers")
    refused = invoke_toolmill("champion", "refuse", "retriever", *said, home=home)
    assert refused.returncode == 0, refused.stderr
    assert json.loads(refused.stdout)["model"] == "base"
    again = invoke_toolmill("champion", "refuse", "retriever", *said, home=home)
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert "was refused already" in again.stderr
    approved = invoke_toolmill("champion", "approve", "retriever", *said, home=home)
    assert json.loads(approved.stdout)["model"] == "m1"
    assert invoke_toolmill("champion", "approve", "nobody", *said, home=home).returncode == 2
    nothing = invoke_toolmill("champion", "approve", "caller", *said, home=home)
    assert nothing.returncode == 1
    assert "no candidate of caller waits" in nothing.stderr


def test_watching_tells_first_and_goes_back_with_yes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.releases.rollback, "find_index_flaw", lambda home, version: None)
    releases = [serve_release(home, "c0")]
    alone = invoke_toolmill("release", "watch", home=home)
    assert alone.returncode == 0
    assert "no release was served before" in json.loads(alone.stdout)["why"]
    consider_model(home, "m1")
    releases.append(serve_release(home, "c1"))
    for (_, version), share in zip(releases, (0.9, 0.5), strict=True):
        write_calls(home, version, 120, share)
    looked = invoke_toolmill("release", "watch", home=home)
    assert looked.returncode == 1
    assert json.loads(looked.stdout)["comparison"]["worse"] is True
    assert read_served(home)["release"] == releases[1][0]
    done = invoke_toolmill("release", "watch", "--yes", home=home)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["moved"]["release"] == releases[0][0]
    assert read_served(home)["release"] == releases[0][0]
