"""An index from elsewhere: what is checked before it is served, and whose it is."""

import base64
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization as pem
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from assets.servers.calls.log import CallLog
from serving import export
from serving.export import BadExport, export_release, open_served, sign_export, verify_export
from tests.serving.test_adhoc import CLOCK, MAIL, run, written
from tests.support.cases import cases
from tests.training.small_base import small_bert, stand_in_for_minilm
from warehouse.errors import UnusableInput


def write_keys(folder: Path, name: str, private: Any = None) -> tuple[Path, Path]:
    """(private, public) as PEM files."""
    key = private or Ed25519PrivateKey.generate()
    form = pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption()
    public = key.public_key().public_bytes(form[0], pem.PublicFormat.SubjectPublicKeyInfo)
    (folder / f"{name}.pem").write_bytes(key.private_bytes(*form))
    (folder / f"{name}.pub").write_bytes(public)
    return folder / f"{name}.pem", folder / f"{name}.pub"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index by a small encoder: an export by MiniLM is 87 MB to copy and to digest."""
    folder = tmp_path_factory.mktemp("signing")
    servers = written(folder / "s.jsonl", CLOCK, MAIL)
    with pytest.MonkeyPatch.context() as patch:
        stand_in_for_minilm(patch, small_bert(folder / "small"))
        code, _, err = run("index", servers, "--out", folder / "index", "--embedder", "minilm")
    assert code == 0, err
    return folder / "index"


@pytest.fixture
def release(index: Path, tmp_path: Path) -> Path:
    if not (exported := index.with_name("release")).exists():
        export_release(index, exported)
    return shutil.copytree(exported, tmp_path / "release")


def redirect(folder: Path) -> None:
    """What who copies a release on would change: how a server is launched."""
    [recipes] = folder.rglob("recipes.jsonl")
    recipes.write_text(recipes.read_text() + " ")


def forge(folder: Path) -> None:
    """The same, with a manifest that fits."""
    redirect(folder)
    manifest = json.loads((folder / "RELEASE.json").read_bytes())
    manifest["files"] = export._digest_files(folder)
    (folder / "RELEASE.json").write_text(json.dumps(manifest))


def replace_manifest(folder: Path, trap: Callable[[Path, Path], object]) -> None:
    """Puts something else in its place; trap: (the manifest's place, where it is now)."""
    trap(folder / "RELEASE.json", (folder / "RELEASE.json").rename(folder.with_name("elsewhere")))


def redirect_outcomes(folder: Path) -> None:
    """What serving notes down would be appended to a file of the user."""
    (folder / "outcomes").mkdir()
    (folder / "outcomes" / "2026-11-23.jsonl").symlink_to(folder.with_name("bashrc"))


CHANGES: dict[str, Callable[[Path], object]] = {
    "redirected recipe": redirect,
    "a file more": lambda at: (next(at.glob("router/*")) / "reranker.json").write_text("{}"),
    "a link": lambda at: (at / "router" / "link").symlink_to("/etc/hostname"),
    "a pipe": lambda at: os.mkfifo(at / "router" / "pipe"),
    "a file less": lambda at: next(at.rglob("twins.npy")).unlink(),
    "no manifest": lambda at: (at / "RELEASE.json").write_text("[]"),
    "manifest elsewhere": lambda at: replace_manifest(at, lambda new, old: new.symlink_to(old)),
    "manifest is a pipe": lambda at: replace_manifest(at, lambda new, _: os.mkfifo(new)),
    "outcomes elsewhere": redirect_outcomes,
}


def test_what_is_added_to_an_export_is_signed_with_it(index, tmp_path):
    held, public = write_keys(tmp_path, "maker")

    def add_weights(home: Path, folder: Path, models: Mapping[str, str]) -> dict[str, object]:
        (folder / "weights").mkdir()
        (folder / "weights" / "model.bin").write_text(f"{home.name} {sorted(models)}")
        return {"weights": {"caller": {"context": 64}}}

    manifest = export_release(index, tmp_path / "out", add_weights)
    assert manifest["weights"] == {"caller": {"context": 64}}
    sign_export(tmp_path / "out", held)
    assert "weights/model.bin" in verify_export(tmp_path / "out", [public])["files"]
    (tmp_path / "out" / "weights" / "model.bin").write_text("another")
    with pytest.raises(BadExport, match=r"first weights/model\.bin"):
        verify_export(tmp_path / "out", [public])


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_release_that_is_not_as_exported_is_not_served(release, change):
    change(release)
    with pytest.raises(BadExport, match=str(release)):
        open_served(release).current()
    code, _, err = run("serve", "--place", str(release), "--http", "--port", "0")
    assert (code, str(release) in err) == (1, True), err
    code, out, err = run("search", "--index", str(release), "list files")
    assert (code, out, str(release) in err) == (1, "", True), err


def test_a_signed_release_is_known_by_its_makers_key(release, tmp_path):
    held, public = write_keys(tmp_path, "maker")
    _, other = write_keys(tmp_path, "other")
    code, out, err = run("release", "verify", str(release), "--sign", str(held))
    assert (code, json.loads(out)["folder"]) == (0, str(release)), err
    both = ["--trust", str(other), "--trust", str(public)]
    assert run("release", "verify", str(release), *both)[0] == 0
    assert open_served(release, [public]).current().index.tools
    assert export.check_export(release)
    with pytest.raises(BadExport, match=r"none of the keys other\.pub"):
        verify_export(release, [other])


@cases("change", forge, *CHANGES.values(), ids=["forged manifest", *CHANGES])
def test_a_change_after_signing_is_refused(release, tmp_path, change):
    held, public = write_keys(tmp_path, "maker")
    sign_export(release, held)
    change(release)
    with pytest.raises(BadExport):
        verify_export(release, [public])
    code, _, err = run("serve", "--place", str(release), "--trust", str(public))
    assert (code, err.count("\n") < 4) == (1, True), err


def test_nothing_unsigned_is_served_with_keys_and_each_version_is_checked(index, release, tmp_path):
    _, public = write_keys(tmp_path, "maker")
    for place, match in ((release, "nobody signed it"), (index, "release export")):
        with pytest.raises(BadExport, match=match):
            open_served(place, [public]).current()
    served = open_served(release)
    old = served.current()
    [version] = [path.parent for path in release.glob("router/*/index.json")]
    shutil.copytree(version, version.with_name("0" * 64))
    (release / "router/HEAD.json").write_text(json.dumps({"version": "0" * 64}))
    assert served.settle(30) is old


@cases("keys", True, False)
def test_a_blocked_tool_stays_blocked_whatever_happens_to_its_file(index, tmp_path, keys):
    home, out = shutil.copytree(index, tmp_path / "home"), tmp_path / "out"
    blocked = home / "router" / "BLOCKED.json"
    blocked.write_text(json.dumps({"tools": ["pypi:clock::get_time"]}))
    export_release(home, out)
    held, public = write_keys(tmp_path, "maker")
    sign_export(out, held)
    served = open_served(out, [public] if keys else None)
    assert served.current().blocked.tools == {"pypi:clock::get_time"}
    moved = out / "router" / "BLOCKED.json"
    moved.rename(tmp_path / "away")
    assert served.settle(30).blocked.tools == {"pypi:clock::get_time"}
    moved.write_text("{}")
    assert served.settle(30).blocked.tools == {"pypi:clock::get_time"}


def test_the_log_of_a_release_is_none_of_its_files(index, release, tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path / "home"))
    (release / "outcomes").mkdir()
    line = {"at": 1e9, "id": "x", "token": "planted", "status": "ok", "tool_id": "a::b"}
    (release / "outcomes" / "2001-09-09.jsonl").write_text(json.dumps(line) + "\n")
    log = CallLog(export.find_log_place(release, tmp_path / "home" / "state"))
    assert [*log.read()] == []
    assert open_served(release).current().index.tools, "what lies beside a release breaks it not"
    log.record({"token": "ours", "status": "ok", "tool_id": "a::b"})
    code, out, err = run("log", "--place", str(release), "--json")
    assert (code, [row["token"] for row in json.loads(out)]) == (0, ["ours"]), err
    assert export.find_log_place(index, tmp_path) == index


@cases(
    "put, match",
    (os.mkfifo, ": it is"),
    (lambda path: path.symlink_to("/etc/hostname"), ": it is"),
    *(
        (lambda path, text=text: path.write_text(text), "")
        for text in (
            *("{", "[]", '{"algorithm": "none", "signature": ""}', '{"algorithm": "ed25519"}'),
            *(f'{{"algorithm": "ed25519", "signature": {of}}}' for of in ('"§"', 1)),
            json.dumps({"algorithm": "ed25519", "signature": base64.b64encode(bytes(64)).decode()}),
        )
    ),
)
def test_a_signature_that_is_none_or_lies_elsewhere_is_one_error(release, tmp_path, put, match):
    put(release / "RELEASE.sig")
    with pytest.raises(BadExport, match=rf"RELEASE\.sig{match}"):
        verify_export(release, [write_keys(tmp_path, "maker")[1]])


def test_a_key_that_cannot_be_used_is_told_without_its_text(release, tmp_path):
    private, public = write_keys(tmp_path, "maker")
    rsa, rsa_public = write_keys(tmp_path, "rsa", generate_private_key(65537, 2048))
    for wrong in (public, rsa, tmp_path / "absent"):
        with pytest.raises(UnusableInput, match="Ed25519 private key") as caught:
            sign_export(release, wrong)
        assert "BEGIN" not in str(caught.value)
    for wrong in (private, rsa_public, tmp_path / "absent"):
        with pytest.raises(UnusableInput, match="Ed25519 public key"):
            verify_export(release, [wrong])
