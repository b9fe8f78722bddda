"""A training that sees nothing but the bucket, and what goes wrong between it and the home."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import dagster as dg
import pytest
from dagster._core.errors import DagsterPipesExecutionError

from extensions.scale import bucket_folder, bucket_store, bucket_training
from extensions.scale.bucket_training import MODEL_FILES, main, train_over_bucket
from orchestration.resources import TrainingPlace, TrainingScripts
from tests.extensions.scale.test_bucket import make_folder, obstore, open_s3
from tests.support.cases import cases
from tests.training.caller.test_caller_course import job_of
from tests.training.small_base import make_base, make_rows
from training import role_steps
from training.adapter_table import make_adapter_table
from training.caller.bases import load_caller
from training.runtime.model_store import TrainingFailed, read_job, read_model_card, write_job
from warehouse.extensions import load_hook
from warehouse.home import claim_home
from warehouse.storage.digest import sha256
from warehouse.store import Warehouse

URL = "s3://bucket-one/train"
NEVER = Mock(side_effect=AssertionError("trained again"))
FIGURES = dict.fromkeys(make_adapter_table("caller").columns, 1) | {"device": "", "losses": [2, 1]}
# Notes what a training sees, and writes a model of no weights; where told so, dies half-way.
SCRIPT = f"""
import json, os, sys
from pathlib import Path
job = json.loads(Path(sys.argv[1]).read_bytes())
home, trace = Path(job["home"]), Path(job["settings"]["trace"])
seen = sorted(path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file())
keys = [name for name in os.environ if name.startswith("AWS_")]
trace.write_text(json.dumps([str(home), seen, keys, job["base"]]))
if trace.with_name("dies").exists():
    for file in ("step-00000002/sealed.json", ".step-00000004/half"):
        path = home / "checkpoints" / job["name"] / file
        path.parent.mkdir(parents=True)
        path.write_text("written")
    os.kill(os.getpid(), 9)
(folder := home / "models" / job["name"]).mkdir(parents=True)
card = {FIGURES!r} | {{name: job[name] for name in ("role", "name", "training_set", "base")}}
(folder / "model.json").write_text(json.dumps(card | {{"base_name": job["base"]}}))
(folder / "adapter_config.json").write_text(json.dumps({{"base_model_name_or_path": job["base"]}}))
(folder / "adapter_model.safetensors").write_bytes({(2).to_bytes(8, "little") + b"{}"!r})
"""


@pytest.fixture
def buckets(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], bucket_store.Bucket]:
    opened = cache(lambda url: bucket_store.Bucket(obstore.store.MemoryStore(), url))
    monkeypatch.setattr(bucket_training, "open_bucket", opened)
    return opened


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Of a home with a base, a model to go on from, and what is nobody else's business."""
    home = tmp_path / "a home"
    claim_home(home)
    start = [f"models/start/{name}" for name in (*MODEL_FILES, "README.md", "evaluation.json")]
    others = "secrets.toml", "bases/other/config.json", "jobs/other.json", "models/other/model.json"
    make_folder(home, **dict.fromkeys([*start, *others, "bases/small/config.json"], "sk-secret"))
    base, settings = str(home / "bases" / "small"), {"trace": str(tmp_path / "trace.json")}
    return write_job(home, "caller", base, "set", settings, [{"row": 1}], start="start")[1]


def run_there(words: Sequence[str]) -> None:
    """What a Pipes client does with the command."""
    if code := main([*words[2:], sys.executable, "-S", "-c", SCRIPT, "JOB"]):
        raise RuntimeError(f"failed with code {code}")


def test_a_training_sees_what_it_needs_and_its_model_comes(buckets, job, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-for-the-script")
    home, name, base = job.parents[1], job.stem, str(job.parents[1] / "bases" / "small")
    card = train_over_bucket(f"{URL}/", job, run_there)
    there, seen, *rest = json.loads((tmp_path / "trace.json").read_text())
    start = [f"models/start/{each}" for each in sorted(MODEL_FILES)]
    jobs = [f"jobs/{name}.json", f"jobs/{name}/{name}.json"]
    assert [seen, *rest] == [["bases/small/config.json", *jobs, *start], [], f"{there}/bases/small"]
    assert not Path(there).exists()
    config = json.loads((home / "models" / name / "adapter_config.json").read_text())
    assert card == read_model_card(home, name)
    assert card["base"] == card["base_name"] == config["base_model_name_or_path"] == base
    (home / "models" / name / "model.json").unlink()
    assert train_over_bucket(URL, job, NEVER) == card  # from the bucket
    assert load_hook("train_over_bucket")("s3://another/one", job, NEVER) == card  # from the home


def test_a_training_killed_half_way_goes_on_from_its_checkpoint(buckets, job, tmp_path):
    (tmp_path / "dies").touch()
    with pytest.raises(RuntimeError, match="code 137"):
        train_over_bucket(URL, job, run_there)
    (tmp_path / "dies").unlink()
    assert train_over_bucket(URL, job, run_there)["name"] == job.stem
    seen = json.loads((tmp_path / "trace.json").read_text())[1]
    assert [name[-25:] for name in seen if "check" in name] == ["step-00000002/sealed.json"]


@cases(
    "file, new, message",
    ("model.json", {"name": "other"}, "not the model of this training .*'other', expected"),
    ("model.json", {"base": "https://other"}, "base: 'https://other', expected"),
    ("model.json", {"base_name": "other/model"}, "not the model of this training"),
    ("model.json", {"pairs": "many"}, "column pairs: expected Int64"),
    ("model.json", {"losses": "low"}, "remove that prefix from the bucket and train again"),
    ("model.json", "[" * 9_999, "not the model"),
    ("model.json", {"note": "\ud800"}, "not the model .*surrogates"),
    ("model.json", {"loss_first": None}, "loss_first.*: expected numbers.*remove that"),
    *(("model.json", {"losses": each}, "model of this") for each in ({}, [], [10**400])),
    ("model.json", {"steps": -5}, "steps: expected 0 or more"),
    ("adapter_config.json", "[]", "adapter_config.json: expected an object"),
    ("adapter_config.json", "x" * (1 << 20) + "x", "of at most 1,048,576"),
    ("adapter_model.safetensors", "x", "adapter_model.safetensors: .*header"),
    ("adapter_model.safetensors", None, "holds no weights"),
    ("evil.py", "x", "holds 'evil.py' of 1 bytes, expected model.json, .*remove that"),
)
def test_a_model_that_is_altered_is_named_and_not_taken(buckets, job, tmp_path, file, new, message):
    home, name, model = job.parents[1], job.stem, tmp_path / "model"
    train_over_bucket(URL, job, run_there)
    (home / "models" / name).rename(model)
    text = json.dumps(json.loads((model / file).read_text()) | new) if type(new) is dict else new
    (model / file).unlink() if text is None else (model / file).write_text(text)
    bucket_folder.publish_folder(buckets(f"{URL}/models/{name}"), model)
    with pytest.raises(TrainingFailed, match=rf"bucket: {URL}/models/{name}: .*{message}"):
        train_over_bucket(URL, job, NEVER)
    assert sorted(os.listdir(home / "models")) == ["other", "start"]


@cases(
    "sizes, note",
    ({"a" * 300: 1}, "name too long"),
    ({"a": 1, "a/b": 1}, "File exists"),
    ({"\ud800": 1}, "no list of ours"),
    ({"a": float("inf")}, "no list of ours"),
    ({"a": 1 << 50}, "expected at most"),
    ({"a": 1, "b": -1}, "no file below"),
)
def test_a_damaged_checkpoint_is_noted_and_left(buckets, job, capfd, sizes, note):
    files = {name: [sha256(b"x"), size] for name, size in sizes.items()}
    data, bucket = json.dumps({"files": files}).encode(), buckets(f"{URL}/checkpoints/{job.stem}")
    for key, value in (f"files/{sha256(b'x')}", b"x"), (f"versions/{sha256(data)}.json", data):
        bucket.swap(key, value, None)
    bucket_folder.move_current(bucket, None, sha256(data), None)
    assert train_over_bucket(URL, job, run_there)["name"] == job.stem
    assert re.fullmatch(f".*{note}.*; the training starts .*\n", capfd.readouterr().err)


def test_what_others_do_meanwhile_stops_no_training(buckets, job, monkeypatch, capfd):
    move = bucket_folder.move_current
    monkeypatch.setattr(bucket_folder, "move_current", lambda *a: move(*a) and move(*a))
    for part in (f"jobs/{job.stem}", "bases/small", "models/start"):
        buckets(f"{URL}/{part}").swap(bucket_folder.KEY, b"another training's", None)
    assert train_over_bucket(URL, job, run_there)["name"] == job.stem
    monkeypatch.setattr(Path, "glob", Mock(side_effect=FileNotFoundError("pruned")))
    bucket_training._publish_checkpoints(buckets(URL), job)
    assert capfd.readouterr().err.endswith("a checkpoint was not published: pruned\n")
    job.write_text(json.dumps(json.loads(job.read_bytes()) | {"base": 7}))
    with pytest.raises(TrainingFailed, match=f"{job}: base: found 7, expected text; remove"):
        train_over_bucket(URL, job, NEVER)


def test_a_training_is_due_until_its_model_is_here(buckets, job, tmp_path, monkeypatch, capfd):
    warehouse = Warehouse(home=job.parents[1], state=tmp_path / "state")
    monkeypatch.setattr(role_steps, "set_name", lambda _: "set")

    def train(run: Callable[[Sequence[str]], object]) -> dict:
        step: Any = SimpleNamespace(role="caller", warehouse=warehouse)
        step.launch = lambda _, path: train_over_bucket(URL, path, run)
        asked = read_job(job)
        parts = asked.base, asked.settings, asked.rows
        return role_steps.train_by_script(step, "x", *parts, start="start")

    refuse = Mock(side_effect=obstore.exceptions.GenericError("error sending request"))
    with monkeypatch.context() as patch:
        patch.setattr(obstore, "get", refuse)
        with pytest.raises(TrainingFailed, match="AWS does not answer; start that store"):
            train(NEVER)
    with pytest.raises(TrainingFailed, match=f"models/{job.stem}: nothing was published.*the log"):
        train(Mock())
    with monkeypatch.context() as patch:  # what the training needs is published by now
        patch.setattr(obstore, "put", refuse)
        with pytest.raises(RuntimeError, match="code 1"):
            train(run_there)
    assert "AWS does not answer; start that store" in capfd.readouterr().err
    assert ("train:caller", "done") not in warehouse.ledger.counts()
    assert len(os.listdir(job.parents[1] / "models")) == 2
    assert train(run_there)["name"] == job.stem
    assert warehouse.ledger.counts()["train:caller", "done"] == 1


@pytest.mark.slow
def test_a_real_training_goes_on_from_its_checkpoint_and_comes_back(tmp_path, monkeypatch):
    pytest.importorskip("moto.server", reason="uv pip install 'moto[server]'")
    home, place = tmp_path / "home", TrainingPlace(bucket=URL)
    job = job_of(home, base := make_base(home / "bases" / "small"), make_rows(200))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # of the child alone: Python here has read it

    def run(command: list[str], env: dict, cwd: str, **_: Any) -> None:
        with subprocess.Popen(command, env={**os.environ, **env}, cwd=cwd, stderr=-1) as child:
            next(line for line in child.stderr or () if re.search(rb" step=([3-9]|\d\d)", line))
            child.terminate()
        raise RuntimeError(f"failed with code {child.returncode}")

    killed = TrainingScripts(place, SimpleNamespace(run=run))

    @dg.asset
    def trained(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        TrainingScripts(place).launch(context, "training.caller.script", job)
        return dg.MaterializeResult()

    with open_s3("bucket-one") as (_, variables):
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        with pytest.raises(DagsterPipesExecutionError, match="code 143"):
            killed.launch(None, "training.caller.script", job)
        assert dg.materialize([trained]).success
    assert not list(tmp_path.glob("toolmill-*"))
    card = load_caller(home, job.stem)[2]
    assert (card["base"], card["resumed_from"] >= 2) == (str(base), True)
