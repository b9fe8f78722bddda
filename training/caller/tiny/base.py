"""The tiny base that the package ships: a Qwen3 of about a million weights, checked before use.

It proves that the caller's path works where no pretrained model can be had. It is no evidence of
what a real base model would learn, and reports say so. `build.py` trains it.
"""

from functools import cache
from pathlib import Path
from typing import Any

from training.runtime.model_store import TrainingFailed
from warehouse.storage.files import find_file_flaw, read_recipe_file

TINY = "tiny"
FOLDER = Path(__file__).parent / "weights"
RECIPE, WEIGHTS = "recipe.json", "model.safetensors"
_FIX = "install the package again, or run `make tiny-base` (some 25 minutes on one core)"


@cache
def find_tiny_base_folder(folder: Path = FOLDER) -> Path:
    """The folder of the tiny base. Raises TrainingFailed naming the file that is missing or is not
    as it was built."""
    flaw = find_file_flaw(folder, read_recipe(folder)["files"])
    if flaw:
        raise TrainingFailed(f"tiny base: {flaw}; {_FIX}")
    return folder


def read_tiny_base_digest(folder: Path = FOLDER) -> str:
    """The SHA-256 of the weights, as the recipe states it. Raises TrainingFailed."""
    return read_recipe(folder)["files"][WEIGHTS]


def find_tiny_base_flaw(digest: str) -> str | None:
    """Why an adapter over the tiny base with these weights cannot be used here; None if it can."""
    try:
        tiny_base_digest = read_tiny_base_digest()
    except TrainingFailed as error:
        return str(error)
    if digest == tiny_base_digest:
        return None
    return f"its tiny base {digest[:12]} is not the one of this package, {tiny_base_digest[:12]}"


def read_recipe(folder: Path = FOLDER) -> dict[str, Any]:
    """`recipe.json`: {recipe, data, files: {name: SHA-256}, libraries, training, measured}."""
    try:
        return read_recipe_file(folder / RECIPE, WEIGHTS)
    except ValueError as error:
        raise TrainingFailed(f"tiny base: {error}; {_FIX}") from error
