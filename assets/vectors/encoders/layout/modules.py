"""The modules of a sentence-transformers model, in the order of its modules.json, and prompts.

Files of somebody else: whatever they hold is read or is one BadEmbedder that names the file.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from assets.vectors.encoders.embedder import BadEmbedder
from assets.vectors.encoders.prompts import Prompts

MODULES, PROMPTS = "modules.json", "config_sentence_transformers.json"
_OURS = "sentence_transformers."  # another type is code that the model brings
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_MOST = 20  # modules; models have 2 to 5


@dataclass(frozen=True)
class Module:
    """One module: its class, and the folder of its files."""

    kind: str
    folder: Path


def list_modules(model: Path) -> list[Module]:
    """The modules of the model in a folder, at least one. Raises BadEmbedder."""
    path = model / MODULES
    if not path.is_file():
        raise BadEmbedder(
            f"{model}: has no {MODULES}, which says how tokens become one vector: guessing that"
            " would make another model of it"
        )
    listed = read_model_json(path)
    if not isinstance(listed, list) or not 0 < len(listed) <= _MOST:
        raise BadEmbedder(f"{path}: no list of 1 to {_MOST} modules")
    return [_read_module(model, path, one) for one in listed]


def _read_module(model: Path, path: Path, one: Any) -> Module:
    kind, where = (one.get("type"), one.get("path")) if isinstance(one, dict) else (None, None)
    if not isinstance(kind, str) or not isinstance(where, str):
        raise BadEmbedder(f"{path}: a module without its type and path ({str(one)[:80]!r})")
    if not kind.startswith(_OURS):
        raise BadEmbedder(f"{path}: {kind[:80]!r} is code of its own, which is not run")
    parts = PurePosixPath(where)
    if parts.is_absolute() or ".." in parts.parts or "\0" in where:
        raise BadEmbedder(f"{path}: {where[:80]!r} is no folder inside the model's")
    return Module(kind.rpartition(".")[2], model / where)


def require_safetensors(model: Path, modules: Sequence[Module]) -> None:
    """Raises BadEmbedder where a module's weights lie as a pickle alone: opening one runs code."""
    for folder in dict.fromkeys([model, *(module.folder for module in modules)]):
        # A module of several, as a Router, has folders of its own; beside the model lie others'.
        files = folder.iterdir() if folder == model else folder.rglob("*")
        for file in sorted(files) if folder.is_dir() else ():
            if file.suffix in _PICKLES and not any(file.parent.glob("*.safetensors")):
                raise BadEmbedder(
                    f"{file}: a pickle, and no safetensors beside it: its weights are not read;"
                    " save the model as safetensors"
                )


def read_model_prompts(model: Path) -> Prompts:
    """What the model wants before a question and before a tool's text; None where it names nothing.
    Raises BadEmbedder."""
    path = model / PROMPTS
    if not path.is_file():
        return Prompts()
    config = read_model_json(path)
    held = (config.get("prompts") if isinstance(config, dict) else config) or {}
    if not isinstance(held, dict) or not all(
        isinstance(text, str | None) for text in held.values()
    ):
        raise BadEmbedder(f"{path}: prompts is {str(held)[:80]!r}, expected texts by name")
    usual = held.get(str(config.get("default_prompt_name")))

    def find(*names: str) -> str | None:
        return next((held[name] for name in names if held.get(name)), None) or (
            None if any(name in held for name in names) else usual
        )

    return Prompts(find("query") or None, find("document", "passage", "corpus") or None)


def read_model_json(path: Path) -> Any:
    """The JSON of a model's file. Raises BadEmbedder."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise BadEmbedder(f"{path}: not readable as JSON ({str(error)[:120]})") from error
