"""The sensor asks once per training set and attempt, and never for what was trained on already."""

from dataclasses import asdict, replace
from pathlib import Path

import dagster as dg

from assets.contracts.quarantined_tools import CLEAR
from orchestration.definitions import build_defs
from orchestration.factories import make_trainer
from orchestration.sensors import ROLES, decide_on_drift, retrain_on_drift
from orchestration.settings.load import load_settings
from training.adapter_table import make_adapter_table
from training.drift.decide import NOTHING_TRAINED, RetrainDecision, SkipDecision
from training.drift.evidence import measure_new_tools
from training.releases.promotion import consider_candidate
from training.role import find_role, list_trained_roles
from training.runtime.model_store import save_model
from training.sets.set_audit import save_manifest
from training.sets.training_set import TRAINING_SET
from warehouse.storage.digest import digest
from warehouse.store import Warehouse


def publish(home: Path, tools: dict[str, str], held: int = 8) -> str:
    """Snapshots and a training set of tools (name -> contract version), each with `held` tests."""
    tables = Warehouse(home=home, state=home / "state").tables
    digests = {tool: f"c1:{digest([tool, version])}" for tool, version in tools.items()}
    rows = [
        {"server_id": "npm:s", "tool": tool, "marketplace": "registry", "contract_digest": name}
        for tool, name in digests.items()
    ]
    tables.promote(tables.stage(CLEAR, CLEAR.frame(rows), "registry"), "run", [])
    pairs = [
        {"pair_id": f"{name}-{split}{n}", "server_id": "npm:s", "tool": f"{n}", "split": split}
        | {"contract_digest": name}
        for name in digests.values()
        for split, count in (("train", 10), ("seen_tool", held))
        for n in range(count)
    ]
    head = tables.promote(tables.stage(TRAINING_SET, TRAINING_SET.frame(pairs)), "run", [])
    contracts = {f"npm:s::{tool}": name for tool, name in digests.items()}
    save_manifest(home, {"training_set": head.digest, "contracts": contracts})
    return head.digest


def recipe() -> str:
    return digest(make_trainer(load_settings()).list_recipes())[:8]


ALL = "+".join(list_trained_roles())


def trained(home: Path, training_set: str, *roles: str, gain: dict | None = None) -> None:
    """A candidate of each role (default: all) of the settings in force."""
    for role in roles or list_trained_roles():
        base, settings = make_trainer(load_settings()).get_role_settings(role)
        model, named = f"{role}-{training_set[:8]}", find_role(role).name_base(base)
        card = {"role": role, "name": model, "settings": asdict(settings), "base": named}
        save_model(home, model, card, lambda _: None)
        consider_candidate(home, role, model, training_set, [], {"new_tools": gain})


def tick(instance: dg.DagsterInstance) -> list[dg.RunRequest] | str:
    context = dg.build_sensor_context(instance=instance, definitions=build_defs())
    result = retrain_on_drift(context)
    if isinstance(result, dg.SkipReason):
        return result.skip_message or ""
    assert isinstance(result, dg.SensorResult)
    return list(result.run_requests or [])


def decide_all(home: Path) -> dict:
    warehouse = Warehouse(home=home, state=home / "state")
    return decide_on_drift(warehouse, make_trainer(load_settings()))


def test_a_role_whose_candidate_lost_waits_and_the_others_train(home, instance):
    first = publish(home, dict.fromkeys("abcdefgh", "1"))
    trained(home, first, "caller", "sidecar")
    trained(home, first, "retriever", gain={"value": -0.3, "low": -0.4, "high": -0.2, "n": 80})
    publish(home, dict.fromkeys("bcdefgh", "1") | {"a": "2"})
    [request] = tick(instance)
    assert request.tags[ROLES] == "caller,sidecar"
    why = "; ".join(decide_all(home)["retriever"].why)
    assert "1 changed, 0 new, 0 gone of 8 contracts" in why
    assert "the last of 1 measured gained -0.300" in why
    assert "asks again on 20" in why


def test_a_shipped_model_without_lessons_waits_for_new_contracts(home, instance):
    first = publish(home, {"a": "1", "b": "1", "c": "1"})
    trained(home, first, "retriever", "sidecar")
    assert decide_all(home)["caller"] == RetrainDecision([NOTHING_TRAINED])
    spec = make_adapter_table("caller")  # asked, and the shipped caller had nothing to learn
    tables = Warehouse(home=home, state=home / "state").tables
    tables.promote(tables.stage(spec, spec.frame([])), "run", [])
    assert isinstance(decide_all(home)["caller"], SkipDecision)
    publish(home, {"a": "1", "b": "1", "c": "2"}, held=7)
    assert "ask for 7 tools that are new" in decide_all(home)["caller"].why[-1]
    publish(home, {"a": "1", "b": "1", "c": "2"})
    assert isinstance(decide_all(home)["caller"], RetrainDecision)


def test_a_gain_is_of_requests_of_new_and_changed_contracts(home):
    first = publish(home, {"a": "1", "b": "1"})
    second = publish(home, {"a": "2", "b": "1", "c": "1"})
    rows = [
        {"model": model, "pair_id": tool, "server_id": "npm:s", "tool": tool, "rank": rank}
        for model, ranks in (("now", (1, 9, 1)), ("base", (9, 1, 9)))
        for tool, rank in zip("abc", ranks, strict=True)
    ]
    about = (home, "retriever", rows, "now", "base")
    assert measure_new_tools(*about, second) is None, "a first candidate"
    trained(home, first, "retriever")
    gain = measure_new_tools(*about, second)
    assert (gain["n"], gain["value"]) == (2, 1.0), "b is as it was"
    assert measure_new_tools(*about, first)["n"] == 0
    assert measure_new_tools(home, "reranker", rows, "now", "base", second) is None


def test_a_changed_contract_asks_for_retraining(home, instance):
    trained(home, publish(home, {"a": "1", "b": "1", "c": "1"}))
    name = publish(home, {"a": "2", "b": "1", "c": "1"})
    [request] = tick(instance)
    assert request.run_key == f"{name}/{recipe()}/0/{ALL}"


def test_a_changed_setting_of_training_asks_for_retraining(home, instance, monkeypatch):
    name = publish(home, {"a": "1", "b": "1", "c": "1"})
    trained(home, name)
    assert "trained on already" in str(tick(instance))
    monkeypatch.setenv("TOOLMILL_TRAINING__DEVICE", "cpu")  # how, not what
    assert "trained on already" in str(tick(instance))
    before = recipe()
    monkeypatch.setenv("TOOLMILL_TRAINING__RETRIEVER__LEARNING_RATE", "0.002")
    monkeypatch.setenv("TOOLMILL_TRAINING__CALLER__EPOCHS", "8")
    [request] = tick(instance)
    assert request.run_key == f"{name}/{recipe()}/0/retriever+caller" != f"{name}/{before}/0"
    assert {key.to_user_string() for key in request.asset_selection} == {
        f"{role}_{step}"
        for role in ("retriever", "caller")
        for step in ("adapter", "evaluation", "champion")
    }
    decisions = decide_all(home)
    for role, setting in (("caller", "epochs"), ("retriever", "learning_rate")):
        why = f"settings changed since the last training: {role}.{setting}"
        assert decisions[role] == RetrainDecision([why])
    assert isinstance(decisions["sidecar"], SkipDecision)


def test_another_base_alone_asks_for_retraining(home, instance, monkeypatch):
    name = publish(home, {"a": "1", "b": "1", "c": "1"})
    trained(home, name)
    before, pinned = recipe(), f"some/base@{'a' * 40}"
    trainer = make_trainer(load_settings())
    warehouse = Warehouse(home=home, state=home / "state")
    for changed, reason in (
        ({"caller_base": pinned}, "caller.base"),
        ({"retriever_base": pinned}, "retriever.base"),
        ({"retriever_base": "minilm-l6-v2"}, None),  # the same by its other name
    ):
        decisions = decide_on_drift(warehouse, replace(trainer, **changed))
        why = [made.why for made in decisions.values() if isinstance(made, RetrainDecision)]
        assert bool(why) == (reason is not None)
        assert not reason or why[0][0].endswith(f"last training: {reason}")
    monkeypatch.setenv("TOOLMILL_TRAINING__CALLER__BASE", pinned)
    monkeypatch.setenv("TOOLMILL_TRAINING__CALLER__PROFILE", "smollm2")
    [request] = tick(instance)
    assert request.run_key == f"{name}/{recipe()}/0/caller" != f"{name}/{before}/0"


def test_little_drift_is_not_worth_a_training(home, instance, monkeypatch):
    monkeypatch.setenv("TOOLMILL_TRAINING__DRIFT__MIN_SHARE", "0.5")
    trained(home, publish(home, {"a": "1", "b": "1", "c": "1"}))
    publish(home, {"a": "2", "b": "1", "c": "1"})
    assert "below 50.0%" in str(tick(instance))


def test_a_cool_down_holds_back_drift_and_no_changed_setting(home, instance, monkeypatch):
    monkeypatch.setenv("TOOLMILL_TRAINING__DRIFT__COOL_DOWN_H", "6")
    trained(home, publish(home, {"a": "1", "b": "1", "c": "1"}))
    publish(home, {"a": "2", "b": "1", "c": "1"})
    assert "6 hours between trainings: none before" in str(tick(instance))
    monkeypatch.setenv("TOOLMILL_TRAINING__RETRIEVER__LEARNING_RATE", "0.002")
    assert tick(instance)[0].tags[ROLES] == "retriever"


def test_live_marketplaces_have_a_cool_down_of_their_own(home, monkeypatch):
    assert make_trainer(load_settings()).drift.cool_down_h == 0
    monkeypatch.setenv("TOOLMILL_SOURCE", "live")
    assert make_trainer(load_settings()).drift.cool_down_h == 20


def test_a_failed_training_is_asked_for_again_but_not_for_ever(home, instance):
    name = publish(home, {"a": "1", "b": "1", "c": "1"})
    job = build_defs().resolve_job_def("train")
    for attempt in range(3):
        [request] = tick(instance)
        assert request.run_key == f"{name}/{recipe()}/{attempt}/{ALL}"
        run = instance.create_run_for_job(job, tags=request.tags)
        instance.report_run_failed(run)
    assert "failed 3 times" in str(tick(instance))
