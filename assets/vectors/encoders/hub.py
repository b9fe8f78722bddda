"""Where a model may come from: a hub at one commit, because a name alone is another model tomorrow;
and for a saved encoder, which may be anybody's, only what the user's own settings name.
"""

import re
from collections.abc import Sequence
from pathlib import Path

SENTENCE = "sentence-transformers:"  # what a spec of such a model begins with
_PINNED = re.compile(r"([\w.-]+(?:/[\w.-]+)?)@([0-9a-f]{40})")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?(?:@.*)?")

_named: set[str] = set()  # models and addresses, by `allow_embedder`


class UnpinnedModel(ValueError):
    """A model that is neither a folder here nor a hub id at a commit; the message has the fix."""


class NotFetched(ValueError):
    """A hub gave no model at that commit; the message says why."""


def split_hub_id(model: str) -> tuple[str, str | None]:
    """(folder, None) of a model here, or (hub id, commit) of `name@commit`. Raises
    UnpinnedModel."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return str(folder), None
    if pinned := _PINNED.fullmatch(model):
        return pinned[1], pinned[2]
    if not _NAME.fullmatch(model):
        raise UnpinnedModel(f"{model}: no such folder")
    name, _, revision = model.partition("@")
    reason = f"{revision!r} is no commit" if revision else "it names no revision"
    raise UnpinnedModel(
        f"{model}: no such folder, and as a hub id {reason}; expected {name}@<commit>, the 40 hex"
        " digits of a commit as the model's page on the hub lists them"
    )


def is_hub_name(model: str) -> bool:
    """Whether a text names a model as a hub does, and no folder here."""
    return _NAME.fullmatch(model) is not None and not Path(model).is_dir()


def fetch_model(model: str, patterns: Sequence[str]) -> Path:
    """The folder of a model, here or from the hub. Raises UnpinnedModel, NotFetched."""
    name, commit = split_hub_id(model)
    if commit is None:
        return Path(name)
    try:
        from huggingface_hub import snapshot_download

        folder_found = snapshot_download(
            name, revision=commit, allow_patterns=list(patterns), etag_timeout=10.0
        )
        return Path(folder_found)
    except Exception as error:  # of the hub, of HTTP and of names it refuses, all unlike
        message = " ".join(str(error).split())[:160]
        raise NotFetched(
            f"{name}@{commit}: none from the hub ({type(error).__name__}: {message})"
        ) from error


def split_reference(model: str) -> tuple[str, str]:
    """(model, 16 hex digits of its files, "" without any) of `<folder or hub id>[@<16 hex>]`."""
    head, _, tail = model.rpartition("@")
    is_digest = len(tail) == 16 and all(char in "0123456789abcdef" for char in tail)
    return (head, tail) if is_digest else (model, "")


def allow_embedder(spec: str) -> None:
    """Counts the model or address of an embedder's spec as the user's own from now on."""
    kind, _, name = spec.strip().partition(":")
    if kind == "sentence-transformers" and name:
        _named.add(resolve_model(split_reference(name)[0]))
    elif kind == "openai" and "@http" in name:
        _named.add(name.rpartition("@")[2].rstrip("/"))


def is_named(place: str) -> bool:
    """Whether the user's settings name this model or address."""
    return place in _named


def resolve_model(name: str) -> str:
    """A folder's whole path; a hub id as it is."""
    return str(Path(name).expanduser().resolve()) if Path(name).expanduser().is_dir() else name
