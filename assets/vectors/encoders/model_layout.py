"""Files of a sentence-transformers model, which are third-party, checked."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from assets.vectors.encoders.embedder import BadEmbedder, Prompts

MODULES, PROMPTS = "modules.json", "config_sentence_transformers.json"
_OURS = "sentence_transformers."  # another type is code that the model brings
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_MOST = 20  # modules; models have 2 to 5


@dataclass(frozen=True)
class ModelModule:
    """One module: its class, and the folder of its files."""

    kind: str
    folder: Path


def list_modules(model: Path) -> list[ModelModule]:
    """The modules of the model in a folder, at least one. Raises BadEmbedder."""
    path = model / MODULES
    if not path.is_file():
        raise BadEmbedder(
            f"{model}: has no {MODULES}, which says how tokens become one vector: guessing that"
            " would make another model of it"
        )
    entries = read_model_json(path)
    if not isinstance(entries, list) or not 0 < len(entries) <= _MOST:
        raise BadEmbedder(f"{path}: no list of 1 to {_MOST} modules")
    return [_read_module(model, path, entry) for entry in entries]


def _read_module(model: Path, path: Path, entry: Any) -> ModelModule:
    kind, where = (
        (entry.get("type"), entry.get("path")) if isinstance(entry, dict) else (None, None)
    )
    if not isinstance(kind, str) or not isinstance(where, str):
        raise BadEmbedder(f"{path}: a module without its type and path ({str(entry)[:80]!r})")
    if not kind.startswith(_OURS):
        raise BadEmbedder(f"{path}: {kind[:80]!r} is code of its own, which is not run")
    module_path = PurePosixPath(where)
    if module_path.is_absolute() or ".." in module_path.parts or "\0" in where:
        raise BadEmbedder(f"{path}: {where[:80]!r} is no folder inside the model's")
    return ModelModule(kind.rpartition(".")[2], model / where)


def require_safetensors(model: Path, modules: Sequence[ModelModule]) -> None:
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
    """The model's own prompts, None where it names none. Raises BadEmbedder."""
    path = model / PROMPTS
    if not path.is_file():
        return Prompts()
    config = read_model_json(path)
    prompts = (config.get("prompts") if isinstance(config, dict) else config) or {}
    if not isinstance(prompts, dict) or not all(
        isinstance(text, str | None) for text in prompts.values()
    ):
        raise BadEmbedder(f"{path}: prompts is {str(prompts)[:80]!r}, expected texts by name")
    usual = prompts.get(str(config.get("default_prompt_name")))

    def find(*names: str) -> str | None:
        return next((prompts[name] for name in names if prompts.get(name)), None) or (
            None if any(name in prompts for name in names) else usual
        )

    return Prompts(find("query") or None, find("document", "passage", "corpus") or None)


def read_model_json(path: Path) -> Any:
    """The JSON of a model's file. Raises BadEmbedder."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise BadEmbedder(f"{path}: not readable as JSON ({str(error)[:120]})") from error
