"""The caller that the package ships: a LoRA adapter of SmolLM2-135M-Instruct, checked before use.

It serves until a home promotes one of its own.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from training.caller.smollm2 import find_package_folder
from training.runtime.model_store import CARD, TrainingFailed, get_model_folder, read_card
from warehouse.storage.files import find_file_flaw, read_recipe_file

GENERAL = "general"
FOLDER = Path(__file__).parent / "general"
WEIGHTS = "adapter_model.safetensors"
REPLAY = "replay"  # some of what it learnt from, in a file of that name
KEPT = "kept"  # requests of other servers, on which updates are measured


def find_general_flaw() -> str | None:
    """Why the shipped caller cannot serve, in one line; None where it can."""
    try:
        find_general_folder()
        find_package_folder()
    except TrainingFailed as error:
        return str(error)
    return None


def find_general_folder() -> Path:
    """The adapter's folder. Raises TrainingFailed naming the file that is missing or is not as it
    was built."""
    path = FOLDER / WEIGHTS
    if flaw := _find_flaw(FOLDER, path.stat().st_mtime_ns if path.exists() else 0):
        raise TrainingFailed(f"general caller: {flaw}; install the package again")
    return FOLDER


def read_requests(name: str) -> list[dict[str, Any]]:
    """Requests that ship, as rows of a training set. Raises TrainingFailed as above."""
    lines = (find_general_folder() / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [{"messages": None, "task": "single", **json.loads(line)} for line in lines]


@cache
def _find_flaw(folder: Path, _: int) -> str | None:
    try:
        return find_file_flaw(folder, read_recipe_file(folder / CARD, WEIGHTS)["files"])
    except ValueError as error:
        return str(error)


def find_caller_folder(home: Path, name: str) -> Path:
    """The folder of a caller by its name. Raises TrainingFailed where the shipped one is flawed."""
    return find_general_folder() if name == GENERAL else get_model_folder(home, name)


def read_caller_card(home: Path, name: str) -> dict[str, Any] | None:
    """The card of a caller, None where it was never finished. Raises TrainingFailed."""
    card = read_card(find_caller_folder(home, name))
    return card and {**card, "name": name}
