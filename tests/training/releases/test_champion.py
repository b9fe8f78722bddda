"""A candidate is promoted through every gate; its pointer outlasts kills, races and full disks."""

import errno
import json
import multiprocessing
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.support.cases import cases
from tests.training.promotions import (
    BETTER,
    UNSURE,
    consider_model,
    fail_write,
    make_summary,
    passed_by_gate,
    save_empty_model,
)
from training.releases import champion, in_service, promotion
from training.role import check_gates, get_untrained_model
from training.runtime.model_store import get_model_folder

FILE = "champions/retriever.json"


def kinds(home: Path) -> list[tuple[str, str]]:
    return [
        (line["kind"], line["model"])
        for line in champion.read_current_history(home, champion.CHAMPIONS)
    ]


def test_every_role_starts_with_an_untrained_model_and_considering_again_writes_nothing(tmp_path):
    assert champion.read_champion(tmp_path, "retriever").model == "base"
    assert champion.read_champion(tmp_path, "caller").model == get_untrained_model("caller")
    assert not champion.read_champion(tmp_path, "caller").trained
    assert in_service.find_model_in_service(tmp_path, "retriever").notice is None
    assert champion.read_last_trained_set(tmp_path, "retriever") is None
    for gain, name in ((BETTER, "m1"), (UNSURE, "m2")):
        consider_model(tmp_path, name, gain)
        files = {path: path.stat().st_mtime_ns for path in (tmp_path / "champions").iterdir()}
        assert not consider_model(tmp_path, name, gain).promoted
        assert {p: p.stat().st_mtime_ns for p in (tmp_path / "champions").iterdir()} == files


def test_a_better_candidate_becomes_champion_with_evidence_and_a_worse_one_stays_out(tmp_path):
    assert consider_model(tmp_path, "m1").promoted
    read = champion.read_champion(tmp_path, "retriever")
    assert (read.model, read.training_set, read.trained) == ("m1", "set1", True)
    assert read.evidence["gain_at_1"] == BETTER
    assert [gate["name"] for gate in read.gates] == [
        *("enough_tools", "gain_at_1", "recall_at_5"),
        *("against_champion", "model_on_disk", "not_rolled_back"),
    ]
    assert kinds(tmp_path) == [("promoted", "m1")]
    assert not consider_model(tmp_path, "m2", UNSURE, "set2").promoted
    known = champion.read_champion(tmp_path, "retriever")
    assert (known.model, known.last_candidate["model"]) == ("m1", "m2")
    assert "gain_at_1: +0.100 [-0.010, +0.200], n=90, needed" in known.last_candidate["why"]
    assert champion.read_last_trained_set(tmp_path, "retriever") == "set2"
    assert kinds(tmp_path) == [("promoted", "m1"), ("kept", "m2")]


@cases(
    "against, failed",
    ({"incumbent": "m0"}, "m2 against m0 was measured, needed m2 against m1"),
    ({"candidate": "m3"}, "m3 against m1 was measured"),
    ({"incumbent": None, "candidate": None}, "None against None"),
)
def test_figures_against_somebody_else_crown_nobody(tmp_path, against, failed):
    consider_model(tmp_path, "m1")
    held = {**make_summary(tmp_path, save_empty_model(tmp_path, "m2")), **against}
    gates = check_gates("retriever", held)
    made = promotion.consider_candidate(tmp_path, "retriever", "m2", "set1", gates, held)
    assert (made.promoted, failed in made.why) == (False, True)
    assert champion.read_champion(tmp_path, "retriever").model == "m1"


def race(home: str, name: str, gate: "multiprocessing.Barrier") -> None:  # type: ignore[valid-type]
    held = make_summary(Path(home), name)
    gates = check_gates("retriever", held)
    gate.wait()
    for _ in range(20):
        promotion.consider_candidate(Path(home), "retriever", name, "set1", gates, held)


def test_of_two_candidates_at_once_one_is_promoted_and_the_other_knows_it(tmp_path):
    names = [save_empty_model(tmp_path, "m1"), save_empty_model(tmp_path, "m2")]
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(2)
    both = [context.Process(target=race, args=(str(tmp_path), n, barrier)) for n in names]
    for one in both:
        one.start()
    for one in both:
        one.join(60)
    assert [one.exitcode for one in both] == [0, 0]
    known = champion.read_champion(tmp_path, "retriever")
    [late] = set(names) - {known.model}
    assert sorted(kinds(tmp_path)) == [("kept", late), ("promoted", known.model)]
    assert f"{late} against base was measured" in known.last_candidate["why"]


@cases("step", 1, 2, 3)
def test_a_kill_at_any_step_of_a_promotion_leaves_it_done_or_not_done(tmp_path, monkeypatch, step):
    consider_model(tmp_path, "m1")
    fail_write(monkeypatch, step, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        consider_model(tmp_path, "m2")
    monkeypatch.undo()
    assert champion.read_champion(tmp_path, "retriever").model == ("m1" if step == 1 else "m2")
    consider_model(tmp_path, "m2")  # the next run finishes it, or does it again
    assert champion.read_champion(tmp_path, "retriever").model == "m2"
    assert json.loads((tmp_path / FILE).read_bytes())["model"] == "m2"
    assert kinds(tmp_path) == [("promoted", "m1"), ("promoted", "m2")]
    assert not (tmp_path / champion.MOVING).exists()


def test_a_full_disk_leaves_the_champion_and_says_where(tmp_path, monkeypatch):
    consider_model(tmp_path, "m1")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    save_empty_model(tmp_path, "m2")
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr("warehouse.storage.files.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        consider_model(tmp_path, "m2")
    monkeypatch.undo()
    assert {path: path.read_bytes() for path in before} == before
    assert not [path for path in tmp_path.rglob(".*") if path.name != ".lock"]
    assert champion.read_champion(tmp_path, "retriever").model == "m1"
    assert consider_model(tmp_path, "m2").promoted


def test_a_champion_whose_folder_is_gone_is_told_and_the_one_before_it_serves(tmp_path):
    consider_model(tmp_path, "m1")
    consider_model(tmp_path, "m2")
    shutil.rmtree(get_model_folder(tmp_path, "m2"))
    now = in_service.find_model_in_service(tmp_path, "retriever")
    assert now.model == "m1"
    notice = "champion m2 cannot serve (models/m2 is missing); the champion before it, m1"
    assert notice in str(now.notice)
    shutil.rmtree(get_model_folder(tmp_path, "m1"))
    now = in_service.find_model_in_service(tmp_path, "retriever")
    assert (now.model, "the untrained model, base, serves" in str(now.notice)) == ("base", True)
    # What comes next is measured against what serves, and promoted.
    assert consider_model(tmp_path, "m3").promoted


def wait_for_person(home: Path, name: str) -> promotion.PromotionOutcome:
    held = make_summary(home, save_empty_model(home, name))
    gates = check_gates("retriever", held)
    return promotion.consider_candidate(home, "retriever", name, "set1", gates, held, by_hand=True)


def test_a_candidate_waits_once_and_serves_when_it_is_approved(tmp_path):
    made = wait_for_person(tmp_path, "m1")
    assert (made.promoted, made.waiting) == (False, True)
    assert "toolmill champion retriever --approve" in made.why
    assert wait_for_person(tmp_path, "m1").waiting
    assert kinds(tmp_path) == [("waiting", "m1")]
    assert champion.read_champion(tmp_path, "retriever").model == "base"
    now = promotion.approve_candidate(tmp_path, "retriever", by="ann", why="read 20 answers")
    assert now == champion.read_champion(tmp_path, "retriever")
    assert (now.model, now.evidence["candidate"]) == ("m1", "m1")
    assert all(gate["passed"] for gate in now.gates)
    line = champion.read_current_history(tmp_path, champion.CHAMPIONS)[-1]
    assert (line["kind"], line["by"], line["reason"]) == ("promoted", "ann", "read 20 answers")
    assert not wait_for_person(tmp_path, "m1").waiting  # it is the champion already
    with pytest.raises(promotion.PromotionError, match="no candidate of retriever waits"):
        promotion.approve_candidate(tmp_path, "retriever", by="ann", why="again")


@cases("by_hand", True, False)
def test_a_refused_candidate_is_promoted_by_no_later_run_but_may_be_approved(tmp_path, by_hand):
    wait_for_person(tmp_path, "m1")
    promotion.refuse_candidate(tmp_path, "retriever", by="ann", why="too slow")
    with pytest.raises(promotion.PromotionError, match="refused already"):
        promotion.refuse_candidate(tmp_path, "retriever", by="ann", why="too slow")
    held = make_summary(tmp_path, "m1")
    gates = check_gates("retriever", held)
    for _ in range(2):
        made = promotion.consider_candidate(
            tmp_path, "retriever", "m1", "set1", gates, held, by_hand=by_hand
        )
        assert (made.promoted, made.waiting) == (False, False)
        assert re.search("refused by ann.*too slow", made.why)
    assert [kind for kind, _ in kinds(tmp_path)] == ["waiting", "refused"]
    promotion.approve_candidate(tmp_path, "retriever", by="bob", why="measured again")
    assert champion.read_champion(tmp_path, "retriever").model == "m1"
    assert champion.map_refused_models(tmp_path, "retriever") == {}
    assert consider_model(tmp_path, "m2").promoted  # another one is considered as ever


def test_a_candidate_without_its_weights_is_neither_promoted_nor_approved(tmp_path):
    save_empty_model(tmp_path, "m2")
    (get_model_folder(tmp_path, "m2") / "adapter_model.safetensors").write_bytes(b"half")
    assert not passed_by_gate(consider_model(tmp_path, "m2").gates)["model_on_disk"]
    wait_for_person(tmp_path, "m1")
    (get_model_folder(tmp_path, "m1") / "adapter_model.safetensors").unlink()
    for why, told in (("fine", r"cannot be approved.*model_on_disk"), (" ", "the reason is empty")):
        with pytest.raises(promotion.PromotionError, match=told):
            promotion.approve_candidate(tmp_path, "retriever", by="ann", why=why)
    assert champion.read_champion(tmp_path, "retriever").model == "base"
    assert kinds(tmp_path) == [("kept", "m2"), ("waiting", "m1")]
