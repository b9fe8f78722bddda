"""A push to a stand-in of the hub by its own client; cards whose snippets run on the files."""

import base64
import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import yaml
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from extensions.publishing.hub_push import (
    MANIFEST,
    CannotPush,
    PushFailed,
    RepositoryUpload,
    read_manifest,
    send_uploads,
    write_uploads,
)
from tests.extensions.proxy.upstream_script import run_server
from tests.extensions.publishing.adapters import NAME, save_adapter, save_base
from tests.support.cases import cases
from training.caller.bases import load_caller
from warehouse.errors import UnusableInput

BASE = "small/base"
COMMIT = "c" * 40
TOKEN = "hf_secretsecretsecret"


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run with the hub switched off; this one is on loopback, and speaks LFS, not Xet."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A caller over a base that a hub is said to have; here it lies in a folder."""
    home = tmp_path_factory.mktemp("home")
    save_adapter(home, f"{BASE}@{COMMIT}", str(save_base(home / "base")))
    return home


def write_pairs(folder: Path, *names: str, data: bytes = b"PAR1") -> Path:
    (folder / "data").mkdir(parents=True)
    for name in names or ("train.parquet",):
        (folder / "data" / name).write_bytes(data)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Pairs\n")
    return folder


@pytest.fixture(scope="module")
def staged(home: Path, tmp_path_factory: pytest.TempPathFactory) -> list[RepositoryUpload]:
    pairs = write_pairs(tmp_path_factory.mktemp("pairs"))
    models = {"caller": NAME, "retriever": "base"}
    return write_uploads(home, "org/mine", models, tmp_path_factory.mktemp("staged"), pairs)


def test_each_part_is_a_repository_with_a_real_card_whose_snippet_runs_on_its_files(home, staged):
    assert [(one.repo.removeprefix("org/mine-"), one.kind) for one in staged] == [
        *(("pairs", "dataset"), ("caller", "model"), ("caller-merged", "model"))
    ]
    names = {name for name, _ in staged[2].list_files()}
    assert {"model.safetensors", "tokenizer.json", "config.json"} <= names
    for upload in staged:
        for name, _ in upload.list_files():
            assert str(home).encode() not in (upload.folder / name).read_bytes(), name
    adapted, _, _ = load_caller(home, NAME)
    ids = torch.arange(5, 25).unsqueeze(0)
    with torch.inference_mode():
        wanted = adapted(ids).logits
    for upload in staged[1:]:
        card = (upload.folder / "README.md").read_text()
        front = yaml.safe_load(card.split("---\n")[1])
        snippet = card.split("```python\n")[1].split("\n```")[0]
        assert (front["base_model"], front["datasets"]) == (BASE, ["org/mine-pairs"])
        where = snippet.replace(upload.repo, str(upload.folder)).replace(BASE, str(home / "base"))
        found: dict[str, Any] = {}
        exec(compile(where, upload.repo, "exec"), found)
        with torch.inference_mode():
            made = found["model"].eval()(ids).logits
        torch.testing.assert_close(made, wanted, atol=1e-5, rtol=0)
        assert found["tokenizer"].chat_template
        assert "training" not in snippet


def test_a_second_push_sends_nothing_and_one_that_broke_off_goes_on(staged):
    hub = Hub()
    with run_server(hub) as port:
        first = send_uploads(staged, TOKEN, f"http://127.0.0.1:{port}")
        sent = hub.puts
        again = send_uploads(staged, TOKEN, f"http://127.0.0.1:{port}")
    assert [one["changed"] for one in first] == [True] * 3
    assert [one["changed"] for one in again] == [False] * 3
    assert (sent, hub.puts) == (3, 3)  # pairs, adapter, merged
    assert hub.repos["model/org/mine-caller"] == {
        name: (staged[1].folder / name).read_bytes() for name, _ in staged[1].list_files()
    }
    assert hub.tokens == {f"Bearer {TOKEN}"}
    hub = Hub(fail_at=3)
    with run_server(hub) as port:
        address = f"http://127.0.0.1:{port}"
        with pytest.raises(PushFailed, match=r"org/mine-caller-merged: .*Run the same") as failed:
            send_uploads(staged, TOKEN, address)
        sent = hub.puts
        changed = [upload["changed"] for upload in send_uploads(staged, TOKEN, address)]
    assert changed == [False, False, True]
    assert TOKEN not in str(failed.value)
    assert hub.puts == sent == 3


def test_only_what_an_earlier_push_wrote_is_deleted(tmp_path):
    def stage(folder: str, *names: str) -> RepositoryUpload:
        pairs = write_pairs(tmp_path / f"{folder}-pairs", *names, data=b"PAR1" + folder.encode())
        [made] = write_uploads(tmp_path, "org/mine", {}, tmp_path / folder, pairs)
        return made

    repo, notes = "dataset/org/mine-pairs", {"notes.txt": b"mine", "data/own.parquet": b"mine"}
    hub = Hub(repos={repo: dict(notes)})
    with run_server(hub) as port:
        address = f"http://127.0.0.1:{port}"
        [first] = send_uploads([stage("a", "old[1].parquet", "both.parquet")], TOKEN, address)
        assert first["kept"] == sorted(notes)
        hub.repos[repo]["data/old1.parquet"] = b"mine"  # what an unescaped pattern would take
        [second] = send_uploads([stage("b", "both.parquet", "new.parquet")], TOKEN, address)
        held = hub.repos[repo]
        assert second["kept"] == sorted([*notes, "data/old1.parquet"])
        written = {"README.md", MANIFEST, "data/both.parquet", "data/new.parquet"}
        assert set(held) == {*notes, "data/old1.parquet", *written}
        hub.repos[repo][MANIFEST] = b"[1, 2"
        [third] = send_uploads([stage("c", "new.parquet")], TOKEN, address)
    assert "data/both.parquet" in third["kept"]
    assert read_manifest(held[MANIFEST]) == {"README.md", MANIFEST, "data/new.parquet"}


@cases("place", "README.md", "data", "data/train.parquet", "data/more")
def test_a_link_in_an_export_is_refused(tmp_path, place):
    secret, pairs = tmp_path / "secret", write_pairs(tmp_path / "pairs")
    at = pairs / place
    if at.exists():
        at.rename(secret)
    at.symlink_to(secret)
    with pytest.raises(CannotPush, match=r"a link, which could lead"):
        write_uploads(tmp_path, "org/mine", {}, tmp_path / "out", pairs)


def test_nothing_to_push_is_told_and_no_part_of_the_token(tmp_path, monkeypatch):
    models = {"caller": "baseline:bm25+slots", "retriever": "base"}
    with pytest.raises(CannotPush, match="nothing to push"):
        write_uploads(tmp_path, "org/mine", models, tmp_path / "out")
    with pytest.raises(UnusableInput, match="expected the folder"):
        write_uploads(tmp_path, "org/mine", models, tmp_path / "out", tmp_path)
    refuse = Mock(side_effect=ValueError(f"{'x' * 290}{TOKEN} is no token"))
    monkeypatch.setattr("huggingface_hub.HfApi.create_repo", refuse)
    with pytest.raises(PushFailed) as failed:
        send_uploads([RepositoryUpload("org/x", "model", tmp_path)], TOKEN, "http://127.0.0.1:9")
    assert "hf" not in str(failed.value)


@pytest.mark.slow
def test_the_command_says_what_it_would_send_and_hides_the_token(tmp_path):
    write_pairs(tmp_path)
    code = "from orchestration.cli.app import main; main()"
    hub = Hub()
    with run_server(hub) as port:

        def run(*more: str, **env: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-c", code, "push", "org/mine", "--pairs", str(tmp_path)]
            given = {"PATH": "/usr/bin:/bin", "TOOLMILL_HOME": str(tmp_path / "home"), **env}
            given |= {"HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1"}
            given["HF_ENDPOINT"] = f"http://127.0.0.1:{port}"
            return subprocess.run([*command, *more], capture_output=True, text=True, env=given)

        planned = run()
        assert '"dry_run": true' in planned.stdout, planned.stderr
        assert not hub.repos
        assert "HF_TOKEN is not set" in run("--yes").stderr
        sent = run("--yes", HF_TOKEN=TOKEN)
        assert "dataset/org/mine-pairs" in hub.repos, sent.stderr
        assert TOKEN not in sent.stdout + sent.stderr


@dataclass
class Hub:
    """repos: "kind/ORG/NAME" -> path -> bytes. puts: objects that were sent. fail_at: the commit
    that ends in a 500, counted from 1."""

    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    commits: dict[str, int] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    puts: int = 0
    fail_at: int = 0
    tokens: set[str] = field(default_factory=set)
    _begun: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        if "authorization" in request.headers:
            self.tokens.add(request.headers["authorization"])
        answer = self._answer(request.method, request.url.path, await request.body(), request)
        await answer(scope, receive, send)

    def _answer(self, method: str, path: str, body: bytes, request: Request) -> Response:
        parts = path.strip("/").split("/")
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            name = asked["name"] if "/" in asked["name"] else name
            self.repos.setdefault(f"{asked.get('type') or 'model'}/{name}", {})
            return JSONResponse({"url": f"{request.base_url}{name}", "id": name, "name": name})
        if path == "/api/validate-yaml":
            return JSONResponse({"errors": [], "warnings": []})
        if parts[0] == "put":
            assert hashlib.sha256(body).hexdigest() == parts[1]
            self.objects[parts[1]] = body
            self.puts += 1
            return JSONResponse({})
        if path.endswith("/info/lfs/objects/batch"):
            return self._answer_batch(json.loads(body), request)
        if "resolve" in parts:
            return self._answer_file(parts)
        kind = parts[1].removesuffix("s")
        repo = f"{kind}/{'/'.join(parts[2:4])}"
        if len(parts) == 4 or parts[4] == "revision":
            return JSONResponse({"id": "/".join(parts[2:4]), "sha": self._find_sha(repo),
                                 "siblings": [], "private": True})  # fmt: skip
        if parts[4] == "preupload":
            return JSONResponse({"files": [self._choose_mode(repo, one)
                                           for one in json.loads(body)["files"]]})  # fmt: skip
        if parts[4] == "tree":
            return JSONResponse([{"type": "file", "path": name, "size": len(data), "oid": "0"}
                                 for name, data in self.repos[repo].items()])  # fmt: skip
        assert parts[4] == "commit"
        return self._take_commit(repo, body, str(request.base_url))

    def _answer_file(self, parts: list[str]) -> Response:
        at = parts.index("resolve")
        kind = "dataset" if parts[0] == "datasets" else "model"
        data = self.repos[f"{kind}/{'/'.join(parts[at - 2 : at])}"]["/".join(parts[at + 2 :])]
        headers = {"etag": f'"{hashlib.sha1(data).hexdigest()}"', "x-repo-commit": "c" * 40}
        return Response(data, 200, headers)

    def _find_sha(self, repo: str) -> str:
        return f"{self.commits.get(repo, 0):040x}"

    def _choose_mode(self, repo: str, one: dict[str, Any]) -> dict[str, Any]:
        large = one["path"].endswith((".safetensors", ".gguf", ".parquet"))
        held, oid = self.repos[repo].get(one["path"]), None
        if held is not None and large:
            oid = hashlib.sha256(held).hexdigest()
        elif held is not None:
            oid = hashlib.sha1(b"blob %d\0" % len(held) + held).hexdigest()
        mode = "lfs" if large else "regular"
        return {"path": one["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid}

    def _answer_batch(self, asked: dict[str, Any], request: Request) -> JSONResponse:
        found = []
        for one in asked["objects"]:
            made = {"oid": one["oid"], "size": one["size"]}
            if one["oid"] not in self.objects:
                made["actions"] = {"upload": {"href": f"{request.base_url}put/{one['oid']}"}}
            found.append(made)
        return JSONResponse({"transfer": "basic", "objects": found})

    def _take_commit(self, repo: str, body: bytes, address: str) -> JSONResponse:
        self._begun += 1
        if self._begun == self.fail_at:
            return JSONResponse({"error": "out of order"}, 403)
        for line in filter(None, body.splitlines()):
            one = json.loads(line)
            value = one["value"]
            if one["key"] == "file":
                self.repos[repo][value["path"]] = base64.b64decode(value["content"])
            elif one["key"] == "lfsFile":
                self.repos[repo][value["path"]] = self.objects[value["oid"]]
            elif one["key"] == "deletedFile":
                del self.repos[repo][value["path"]]
        self.commits[repo] = self.commits.get(repo, 0) + 1
        shown = repo.replace("dataset/", "datasets/").removeprefix("model/")
        sha = self._find_sha(repo)
        made = {"commitOid": sha, "commitUrl": f"{address}{shown}/commit/{sha}"}
        return JSONResponse({"success": True, "hookOutput": "", **made})
