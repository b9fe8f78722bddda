"""Other bases than MiniLM: folders or pinned hub ids of sentence encoders that `graph.py` can make.

The graph is BERT's: learnt absolute positions, exact GELU, the mean of all tokens, unit norm. A
model that pools its first token, or turns its vectors in a last layer, would be served as another
model than it is, without a word: so it is refused.
"""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from assets.vectors.encoders.embedder import BadEmbedder
from assets.vectors.encoders.hub import NotFetched, UnpinnedModel, fetch_model
from assets.vectors.encoders.weights import BASE, find_base_path
from warehouse.storage.digest import sha256

DEFAULT = ("minilm", BASE)
WEIGHTS, TOKENIZER, CONFIG = "model.safetensors", "tokenizer.json", "config.json"
_MODULES = ("Transformer", "Pooling", "Normalize")
_NEEDED = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
_HINT = "expected a BERT with mean pooling, such as all-MiniLM-L12-v2, or minilm for the default"


def name_base(base: str) -> str:
    """What names a base in jobs and cards: BASE, or `<folder or hub id>@<16 hex of its files>`.

    Raises BadEmbedder when it is not there or cannot be served.
    """
    if base.strip() in ("", *DEFAULT):
        return BASE
    where, _, known = _split_reference(base)
    found = digest_base(where)[:16]
    if known and known != found:
        raise BadEmbedder(
            f"base {where}: its files are {found}, expected {known}: the model changed since it was"
            " named; name it again without the part after @, or put the old files back"
        )
    return f"{where}@{found}"


def find_base_folder(base: str) -> Path:
    """The folder of a base, its architecture checked. Raises BadEmbedder."""
    where = BASE if base.strip() in ("", *DEFAULT) else _split_reference(base)[0]
    if where == BASE:
        return find_base_path()
    try:
        folder = fetch_model(where, ("*.json", "*.txt", WEIGHTS))
    except (UnpinnedModel, NotFetched) as error:
        raise BadEmbedder(f"base {error}; {_HINT}") from error
    check_base(folder)
    return folder


def digest_base(base: str) -> str:
    """SHA-256 over the files that make an encoder of it."""
    folder = find_base_folder(base)
    stamps = tuple((folder / name).stat().st_mtime_ns for name in (CONFIG, TOKENIZER, WEIGHTS))
    return _digest_folder(folder, stamps)


@lru_cache(maxsize=8)
def _digest_folder(folder: Path, _: tuple[int, ...]) -> str:
    each = [sha256((folder / name).read_bytes()) for name in (CONFIG, TOKENIZER, WEIGHTS)]
    return sha256("".join(each).encode())


def check_base(folder: Path) -> dict[str, Any]:
    """The configuration of an encoder that the graph is right for. Raises BadEmbedder."""
    lost = [name for name in (CONFIG, TOKENIZER, WEIGHTS) if not (folder / name).is_file()]
    if lost:
        raise BadEmbedder(f"base {folder}: has no {', '.join(lost)}; {_HINT}")
    config = _read_json(folder / CONFIG)
    for name, needed in _NEEDED.items():
        found = config.get(name, "absolute" if name == "position_embedding_type" else None)
        if found != needed:
            raise BadEmbedder(f"base {folder}: {name} is {found!r}, not {needed!r}; {_HINT}")
    modules = folder / "modules.json"
    kinds = [str(one.get("type")).rpartition(".")[2] for one in _read_json(modules)]
    strange = [kind for kind in kinds if kind not in _MODULES]
    if strange:
        raise BadEmbedder(f"base {folder}: ends in a {strange[0]} layer; {_HINT}")
    for path in sorted(folder.glob("*_Pooling/config.json")):
        pooling = _read_json(path)
        others = [k for k, v in pooling.items() if k.startswith("pooling_mode_") and v is True]
        if others != ["pooling_mode_mean_tokens"] and pooling.get("pooling_mode") != "mean":
            raise BadEmbedder(f"base {folder}: pools by {others or 'nothing'}; {_HINT}")
    return config


def _split_reference(base: str) -> tuple[str, str, str]:
    head, at, tail = base.rpartition("@")
    known = len(tail) == 16 and all(char in "0123456789abcdef" for char in tail)
    return (head, at, tail) if known else (base, "", "")


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BadEmbedder(f"{path}: not readable as JSON ({error}); {_HINT}") from error
