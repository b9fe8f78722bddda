"""`toolmill champion` as a person meets it."""

import json
from pathlib import Path

import pytest

from tests.support.command import invoke_toolmill
from tests.training.promotions import make_summary, save_empty_model
from training.gates import PromotionGate
from training.releases.promotion import consider_candidate
from training.role import check_gates
from warehouse.home import claim_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    claim_home(tmp_path)
    return tmp_path


def test_a_waiting_candidate_is_shown_refused_and_approved(home):
    assert "no candidate yet" in invoke_toolmill("champion", "retriever", home=home).stdout
    summary = make_summary(home, save_empty_model(home, "m1"))
    gates = check_gates("retriever", summary)
    consider_candidate(home, "retriever", "m1", "set1", gates, summary, by_hand=True)
    output = invoke_toolmill("champion", home=home)
    assert "waits for `toolmill champion retriever --approve`" in output.stdout
    said = ("--by", "ann", "--why", "read 20 answers")
    refused = invoke_toolmill("champion", "retriever", "--refuse", *said, home=home)
    assert json.loads(refused.stdout)["model"] == "base", refused.stderr
    again = invoke_toolmill("champion", "retriever", "--refuse", *said, home=home)
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert "was refused already" in again.stderr
    approved = invoke_toolmill("champion", "retriever", "--approve", *said, home=home)
    assert json.loads(approved.stdout)["model"] == "m1"
    assert invoke_toolmill("champion", "nobody", "--approve", *said, home=home).returncode == 2
    nothing = invoke_toolmill("champion", "caller", "--approve", *said, home=home)
    assert (nothing.returncode, "no candidate of caller waits" in nothing.stderr) == (1, True)


def test_a_candidate_that_failed_a_gate_is_not_for_a_person_to_approve(home):
    summary = make_summary(home, save_empty_model(home, "m1"))
    failed = [PromotionGate("gain", False, "+0.000", "above zero")]
    consider_candidate(home, "retriever", "m1", "set1", failed, summary)
    assert "FAILED  gain: +0" in invoke_toolmill("champion", home=home).stdout
    said = ("--by", "ann", "--why", "I like it")
    answer = invoke_toolmill("champion", "retriever", "--approve", *said, home=home)
    assert (answer.returncode, answer.stderr.count("\n")) == (1, 1)
    assert "the last one: m1 did not pass every gate (" in answer.stderr
    help_text = " ".join(invoke_toolmill("champion", "--help", home=home).stdout.split())
    assert "Only a candidate that passed every gate can be approved" in help_text
