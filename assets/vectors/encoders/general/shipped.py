"""The tool retriever that the package ships: a LoRA adapter of MiniLM, checked before use.

`benchmarks/retriever_fit` trains it on query sets of many styles; its card says on which.
"""

from functools import cache
from pathlib import Path
from typing import Any

from assets.vectors.encoders.minilm import MiniLM
from assets.vectors.encoders.session import FP32
from assets.vectors.encoders.weights import BadAdapter
from warehouse.storage.files import find_file_flaw, read_recipe_file

GENERAL = "general"
FOLDER = Path(__file__).parent / "weights"
RECIPE, WEIGHTS, CONFIG = "recipe.json", "adapter_model.safetensors", "adapter_config.json"
_FIX = "install the package again, or run `make retriever`"


def open_general(*, threads: int | None = None, precision: str = FP32) -> MiniLM:
    """The encoder with the shipped adapter. Raises BadAdapter, BadEmbedder."""
    return MiniLM(find_general_folder(), threads=threads, precision=precision)


def make_general_name() -> str:
    """What names the shipped adapter: `general@<16 hex of its weights>`. Raises BadAdapter."""
    return f"{GENERAL}@{read_recipe()['files'][WEIGHTS][:16]}"


@cache
def find_general_folder(folder: Path = FOLDER) -> Path:
    """The folder of the adapter. Raises BadAdapter naming the file that is missing or is not as it
    was built."""
    flaw = find_file_flaw(folder, read_recipe(folder)["files"])
    if flaw:
        raise BadAdapter(f"general retriever: {flaw}; {_FIX}")
    return folder


def read_recipe(folder: Path = FOLDER) -> dict[str, Any]:
    """`recipe.json`: {recipe, sets, data, files: {name: SHA-256}, libraries, training, measured}.
    Raises BadAdapter."""
    try:
        return read_recipe_file(folder / RECIPE, WEIGHTS)
    except ValueError as error:
        raise BadAdapter(f"general retriever: {error}; {_FIX}") from error
