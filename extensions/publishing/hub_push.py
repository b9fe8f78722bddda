"""Pushes to the Hugging Face hub: repositories laid out as folders, with the models' own cards,
whose datasets and base are on the hub. Files that somebody else put into a repository stay."""

import glob
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extensions.publishing.card_sections import get_base_and_licence
from extensions.publishing.model_card import write_card
from extensions.publishing.weights import LANGUAGE_ROLES, write_model_weights
from training.role import is_untrained
from training.runtime.model_store import README, get_model_folder, read_model_card
from warehouse.errors import UnusableInput

_FRONT = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
_LOADING = re.compile(r"\n## Loading\n.*?(?=\n## |\Z)", re.DOTALL)

ADAPTER = """from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = AutoModelForCausalLM.from_pretrained("{base}"{revision})
model = PeftModel.from_pretrained(base, "{repo}")
tokenizer = AutoTokenizer.from_pretrained("{base}"{revision})"""
MERGED = """from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{repo}")
tokenizer = AutoTokenizer.from_pretrained("{repo}")"""
ENCODER = """from peft import PeftModel
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{base}")
model[0].auto_model = PeftModel.from_pretrained(model[0].auto_model, "{repo}")
vectors = model.encode(["which hour is it in Paris?"])"""


def rewrite_card(text: str, snippet: str, changes: Mapping[str, Any]) -> str:
    """A card for the hub. changes: keys of its front matter, added if absent; None removes."""
    import yaml

    match = _FRONT.match(text)
    before = yaml.safe_load(match[1]) if match else {}
    front = {**(before if isinstance(before, dict) else {}), **changes}
    filled = {key: value for key, value in front.items() if value is not None}
    body = _LOADING.sub("", text[match.end() :] if match else text).rstrip("\n")
    head = yaml.safe_dump(filled, sort_keys=False, allow_unicode=False)
    return f"---\n{head}---\n{body}\n\n## Loading\n\n```python\n{snippet}\n```\n"


MANIFEST = "toolmill-push.json"  # of a repository: the files that a push wrote
_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")


class CannotPush(ValueError):
    """Nothing that could be pushed: what was found, and the fix."""


class NoPairs(CannotPush, UnusableInput):
    """A folder that is not an export of pairs."""


@dataclass(frozen=True)
class RepositoryUpload:
    """One repository. kind: model or dataset. folder: its files as they are uploaded."""

    repo: str
    kind: str
    folder: Path

    def list_files(self) -> list[tuple[str, int]]:
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return [(str(path.relative_to(self.folder)), path.stat().st_size) for path in paths]


def read_manifest(content: bytes) -> set[str]:
    """The files that a manifest lists; none where it is no manifest of ours."""
    try:
        files = json.loads(content)["files"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return set()
    return {name for name in files if isinstance(name, str)} if isinstance(files, list) else set()


def write_uploads(
    home: Path, name: str, models: Mapping[str, str], to: Path, pairs: Path | None = None
) -> list[RepositoryUpload]:
    """Writes the repositories of a push under `to`. name: ORG/NAME, their names' beginning. models:
    role -> model, an adapter if its base is on the hub, a language model merged too. pairs: an
    export in the format hf. Raises CannotPush, NoPairs, NoWeights, TrainingFailed."""
    uploads = [] if pairs is None else [_write_pairs(name, pairs, to)]
    datasets = [upload.repo for upload in uploads]
    for role, model in sorted(models.items()):
        card = None if is_untrained(role, model) else read_model_card(home, model)
        if card is not None and role in (*LANGUAGE_ROLES, "retriever"):
            uploads += _write_model(home, name, role, card, to, datasets)
    if not uploads:
        raise CannotPush(
            "nothing to push: no model of this release is trained, and --pairs names no export;"
            " `toolmill export --format hf --out DIR` makes one"
        )
    for upload in uploads:
        files = sorted([MANIFEST, *(name for name, _ in upload.list_files())])
        (upload.folder / MANIFEST).write_text(json.dumps({"files": files}, indent=1))
    return uploads


def _write_pairs(name: str, pairs: Path, to: Path) -> RepositoryUpload:
    if not (pairs / README).is_file() or not any((pairs / "data").glob("*.parquet")):
        raise NoPairs(
            f"{pairs}: no README.md with data/*.parquet beside it; expected the folder that"
            " `toolmill export --format hf --out DIR` writes"
        )
    for path in (pairs / README, pairs / "data", *(pairs / "data").rglob("*")):
        if path.is_symlink():
            raise CannotPush(
                f"{path}: a link, which could lead to any file of this machine; put the file itself"
                " there, or export again"
            )
    folder = to / "pairs"
    folder.mkdir(parents=True)
    shutil.copyfile(pairs / README, folder / README)
    shutil.copytree(pairs / "data", folder / "data")
    return RepositoryUpload(f"{name}-pairs", "dataset", folder)


def _write_model(
    home: Path, name: str, role: str, card: Mapping[str, Any], to: Path, datasets: Sequence[str]
) -> Iterator[RepositoryUpload]:
    write_card(home, str(card["name"]))
    base, _ = get_base_and_licence(card)
    card_changes = {"datasets": list(datasets) or None}
    if base is not None:
        repo, folder = f"{name}-{role}", to / role
        revision = str(card.get("base") or "").partition("@")[2]
        source = get_model_folder(home, str(card["name"]))
        folder.mkdir(parents=True)
        for file in _ADAPTER_FILES:
            if not (source / file).is_file():
                raise CannotPush(f"models/{source.name[:12]}: {file} is missing; train it again")
            shutil.copyfile(source / file, folder / file)
        config = json.loads((folder / _ADAPTER_FILES[0]).read_bytes())
        config |= {"base_model_name_or_path": base, "revision": revision or None}
        (folder / _ADAPTER_FILES[0]).write_text(json.dumps(config, indent=2, sort_keys=True))
        template = ADAPTER if role in LANGUAGE_ROLES else ENCODER
        pinned = f', revision="{revision}"' if revision else ""
        snippet = template.format(base=base, repo=repo, revision=pinned)
        _write_card(home, card, folder, snippet, {**card_changes, "base_model": base})
        yield RepositoryUpload(repo, "model", folder)
    if role in LANGUAGE_ROLES:
        repo, folder = f"{name}-{role}-merged", to / f"{role}-merged"
        write_model_weights(home, str(card["name"]), folder)
        for path in (folder / "safetensors").iterdir():
            path.rename(folder / path.name)
        (folder / "safetensors").rmdir()
        for recipe in ("SERVE.md", "Modelfile"):  # they name the folders of an export
            (folder / recipe).unlink(missing_ok=True)
        more = {**card_changes, "base_model": base, "library_name": "transformers"}
        _write_card(home, card, folder, MERGED.format(repo=repo), more)
        yield RepositoryUpload(repo, "model", folder)


def _write_card(
    home: Path, card: Mapping[str, Any], folder: Path, snippet: str, changes: Mapping[str, Any]
) -> None:
    text = (get_model_folder(home, str(card["name"])) / README).read_text(encoding="utf-8")
    (folder / README).write_text(rewrite_card(text, snippet, changes), encoding="utf-8")


class PushFailed(RuntimeError):
    """The hub refused an upload or part of it. The same command resumes where it stopped."""


def send_uploads(
    uploads: Sequence[RepositoryUpload],
    token: str,
    endpoint: str | None = None,
    *,
    private: bool = True,
) -> list[dict[str, Any]]:
    """Makes repositories, commits changes; {repo, commit, changed} each. Raises PushFailed."""
    from huggingface_hub import HfApi

    api, results = HfApi(endpoint=endpoint, token=token), list[dict[str, Any]]()
    for upload in uploads:
        try:
            results.append(_send_upload(api, upload, private))
        except Exception as error:  # of the hub, of HTTP and of names it refuses, all unlike
            # Cut last: what is left of a token that was cut would not be found.
            reason = " ".join(str(error).split()).replace(token, "…")[:300]
            done = ", ".join(upload["repo"] for upload in results) or "none"
            raise PushFailed(
                f"{upload.repo}: {reason or type(error).__name__}; pushed before it: {done}. Run"
                " the same command again: files that are there are not sent again"
            ) from None
    return results


def _send_upload(api: Any, upload: RepositoryUpload, private: bool) -> dict[str, Any]:
    api.create_repo(upload.repo, repo_type=upload.kind, private=private, exist_ok=True)
    before = api.repo_info(upload.repo, repo_type=upload.kind).sha
    remote = set(api.list_repo_files(upload.repo, repo_type=upload.kind))
    ours = _find_pushed(api, upload) & remote if MANIFEST in remote else set[str]()
    new = {name for name, _ in upload.list_files()}
    commit = api.upload_folder(
        repo_id=upload.repo,
        repo_type=upload.kind,
        folder_path=str(upload.folder),
        commit_message="Push by Toolmill",
        delete_patterns=[glob.escape(name) for name in sorted(ours - new)] or None,
    )
    foreign = sorted(remote - ours - new - {".gitattributes"})  # that one is the hub's own
    done = {"repo": upload.repo, "commit": commit.oid, "changed": commit.oid != before}
    return {**done, "kept": foreign} if foreign else done


def _find_pushed(api: Any, upload: RepositoryUpload) -> set[str]:
    with tempfile.TemporaryDirectory(prefix="toolmill-manifest-") as folder:
        path = api.hf_hub_download(upload.repo, MANIFEST, repo_type=upload.kind, cache_dir=folder)
        return read_manifest(Path(path).read_bytes())
