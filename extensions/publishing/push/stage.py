"""What is pushed, laid out as folders: one for a repository, with its card."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extensions.publishing.cards.facts import get_base_and_licence
from extensions.publishing.cards.model_card import README, write_card
from extensions.publishing.push.cards import ADAPTER, ENCODER, MERGED, rewrite_card
from extensions.publishing.weights.merge import LANGUAGE_ROLES
from extensions.publishing.weights.write import write_model_weights
from training.role import get_untrained_model
from training.runtime.model_store import get_model_folder, read_model_card
from warehouse.errors import UnusableInput

MANIFEST = "toolmill-push.json"  # of a repository: the files that a push wrote
_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")


class CannotPush(ValueError):
    """Nothing that could be pushed: what was found, and the fix."""


class NoPairs(CannotPush, UnusableInput):
    """A folder that is no export of pairs."""


@dataclass(frozen=True)
class Upload:
    """One repository. kind: model or dataset. folder: its files as they are uploaded."""

    repo: str
    kind: str
    folder: Path

    def list_files(self) -> list[tuple[str, int]]:
        """(path, bytes) of each file."""
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return [(str(path.relative_to(self.folder)), path.stat().st_size) for path in paths]


def read_manifest(content: bytes) -> set[str]:
    """The files that a manifest lists; none where it is no manifest of ours."""
    try:
        listed = json.loads(content)["files"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return set()
    return {one for one in listed if isinstance(one, str)} if isinstance(listed, list) else set()


def write_uploads(
    home: Path, name: str, models: Mapping[str, str], to: Path, pairs: Path | None = None
) -> list[Upload]:
    """Writes every repository of a push under `to`. name: ORG/NAME, what the repositories' names
    begin with. models: role -> model. pairs: an export of pairs, in the format hf.

    An adapter is pushed where its base is on the hub; a language model also merged. Raises
    CannotPush, NoPairs, NoWeights, TrainingFailed.
    """
    made = [] if pairs is None else [_write_pairs(name, pairs, to)]
    datasets = [one.repo for one in made]
    for role, model in sorted(models.items()):
        card = None if model == get_untrained_model(role) else read_model_card(home, model)
        if card is not None and role in (*LANGUAGE_ROLES, "retriever"):
            made += _write_model(home, name, role, card, to, datasets)
    if not made:
        raise CannotPush(
            "nothing to push: no model of this release is trained, and --pairs names no export;"
            " `toolmill export --format hf --out DIR` makes one"
        )
    for one in made:
        files = sorted([MANIFEST, *(name for name, _ in one.list_files())])
        (one.folder / MANIFEST).write_text(json.dumps({"files": files}, indent=1))
    return made


def _write_pairs(name: str, pairs: Path, to: Path) -> Upload:
    if not (pairs / README).is_file() or not any((pairs / "data").glob("*.parquet")):
        raise NoPairs(
            f"{pairs}: no README.md with data/*.parquet beside it; expected the folder that"
            " `toolmill export --format hf --out DIR` writes"
        )
    for path in (pairs / README, pairs / "data", *(pairs / "data").rglob("*")):
        if path.is_symlink():
            raise CannotPush(
                f"{path}: a link, which could lead to any file of this machine; put the file itself"
                " there, or export anew"
            )
    folder = to / "pairs"
    folder.mkdir(parents=True)
    shutil.copyfile(pairs / README, folder / README)
    shutil.copytree(pairs / "data", folder / "data")
    return Upload(f"{name}-pairs", "dataset", folder)


def _write_model(
    home: Path, name: str, role: str, card: Mapping[str, Any], to: Path, datasets: Sequence[str]
) -> Iterator[Upload]:
    write_card(home, str(card["name"]))
    base, _ = get_base_and_licence(card)
    own = {"datasets": list(datasets) or None}
    if base is not None:
        repo, folder = f"{name}-{role}", to / role
        revision = str(card.get("base") or "").partition("@")[2]
        _copy_adapter(get_model_folder(home, str(card["name"])), folder, base, revision)
        template = ADAPTER if role in LANGUAGE_ROLES else ENCODER
        pinned = f', revision="{revision}"' if revision else ""
        snippet = template.format(base=base, repo=repo, revision=pinned)
        _write_card(home, card, folder, snippet, {**own, "base_model": base})
        yield Upload(repo, "model", folder)
    if role in LANGUAGE_ROLES:
        repo, folder = f"{name}-{role}-merged", to / f"{role}-merged"
        write_model_weights(home, str(card["name"]), folder)
        for path in (folder / "safetensors").iterdir():
            path.rename(folder / path.name)
        (folder / "safetensors").rmdir()
        for recipe in ("SERVE.md", "Modelfile"):  # they name the folders of an export
            (folder / recipe).unlink(missing_ok=True)
        more = {**own, "base_model": base, "library_name": "transformers"}
        _write_card(home, card, folder, MERGED.format(repo=repo), more)
        yield Upload(repo, "model", folder)


def _copy_adapter(source: Path, folder: Path, base: str, revision: str) -> None:
    """The adapter with the base's name on the hub: it may name a folder of this machine."""
    folder.mkdir(parents=True)
    for file in _ADAPTER_FILES:
        if not (source / file).is_file():
            raise CannotPush(f"models/{source.name[:12]}: {file} is missing; train it again")
        shutil.copyfile(source / file, folder / file)
    config = json.loads((folder / _ADAPTER_FILES[0]).read_bytes())
    config |= {"base_model_name_or_path": base, "revision": revision or None}
    (folder / _ADAPTER_FILES[0]).write_text(json.dumps(config, indent=2, sort_keys=True))


def _write_card(
    home: Path, card: Mapping[str, Any], folder: Path, snippet: str, changes: Mapping[str, Any]
) -> None:
    text = (get_model_folder(home, str(card["name"])) / README).read_text(encoding="utf-8")
    (folder / README).write_text(rewrite_card(text, snippet, changes), encoding="utf-8")
