"""Models of the Hugging Face hub, each at one commit: a name alone is another model tomorrow."""

import re
from pathlib import Path

_PINNED = re.compile(r"([\w.-]+(?:/[\w.-]+)?)@([0-9a-f]{40})")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?(?:@.*)?")


class UnpinnedModel(ValueError):
    """A model that is neither a folder here nor a hub id at a commit; the message has the fix."""


def split_hub_id(model: str) -> tuple[str, str | None]:
    """(folder, None) of a model that lies here, or (hub id, commit) of `name@commit`.

    Raises UnpinnedModel.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return str(folder), None
    if found := _PINNED.fullmatch(model):
        return found[1], found[2]
    if not _NAME.fullmatch(model):
        raise UnpinnedModel(f"{model}: no such folder")
    name, _, given = model.partition("@")
    said = f"{given!r} is no commit" if given else "it names no revision"
    raise UnpinnedModel(
        f"{model}: no such folder, and as a hub id {said}; expected {name}@<commit>, the 40 hex"
        " digits of a commit as the model's page on the hub lists them"
    )
