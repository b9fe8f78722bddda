"""Trained models on disk: named by what they were made from, whole or absent.

models/<name>/model.json          the card: role, base, training set, settings, losses, timings
              adapter_*.{json,safetensors}, or reranker.npz
jobs/<name>.json                  what a training script is asked to do
"""

import json
import reprlib
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from warehouse.storage.digest import digest
from warehouse.storage.files import write_atomically

CARD = "model.json"
README = "README.md"  # the card that people read; an extension writes it
# Where and how a training runs: these change its result by no more than rounding and dice.
MEANS = (
    *("device", "threads", "packing", "pass_tokens", "gradient_checkpointing", "attention"),
    *("checkpoint_steps", "hold_tokens", "cache_mb", "shortlist"),
)


class TrainingFailed(RuntimeError):
    """A training that produced no usable model; the message names what to change."""


@dataclass(frozen=True)
class TrainingJob:
    """One training to do. `rows` are training-set rows of the train split; `pool` holds what
    their prompts may show beside the right tool: contract digest -> {"contract", …}. start: the
    adapter that goes on learning, "" for a new one."""

    role: str
    name: str
    home: Path
    training_set: str
    base: str
    settings: dict[str, Any]
    rows: list[dict[str, Any]]
    pool: dict[str, dict[str, Any]] = field(default_factory=dict)
    start: str = ""


def make_model_name(
    role: str, base: str, training_set: str, settings: Mapping[str, Any], data: str = ""
) -> str:
    """The digest of an adapter's role, base, set, hyper-parameters and `data`, not of where and how
    it runs (`MEANS`): that changes no more than rounding."""
    recipe = select_recipe(settings)
    identity = {"role": role, "base": base, "set": training_set, "settings": recipe}
    return digest({**identity, "data": data} if data else identity)


def select_recipe(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The hyper-parameters that a model is named by. What is None is as if it were not there: a new
    one that nobody sets trains nothing again."""
    return {k: v for k, v in settings.items() if k not in MEANS and v is not None}


def get_model_folder(home: Path, name: str) -> Path:
    return home / "models" / name


def read_model_card(home: Path, name: str) -> dict[str, Any] | None:
    return read_card(get_model_folder(home, name))


def read_card(folder: Path) -> dict[str, Any] | None:
    """The card in a model's folder, or None. Raises ValueError for one that is no JSON."""
    path = folder / CARD
    return json.loads(path.read_bytes()) if path.exists() else None


def write_job(
    home: Path,
    role: str,
    base: str,
    training_set: str,
    settings: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    pool: Mapping[str, Mapping[str, Any]] | None = None,
    data: str = "",
    start: str = "",
) -> tuple[str, Path]:
    """Writes what a training script needs into one file; returns (model name, job path)."""
    name = make_model_name(role, base, training_set, settings, data + start)
    learnt = [*map(dict, rows)]
    job = TrainingJob(role, name, home, training_set, base, dict(settings), learnt, {}, start)
    body = {**vars(job), "home": str(home), "pool": dict(pool or {})}
    path = home / "jobs" / f"{name}.json"
    write_atomically(path, json.dumps(body, ensure_ascii=False).encode())
    return name, path


def read_job(path: Path) -> TrainingJob:
    try:
        body = json.loads(path.read_bytes())
        return TrainingJob(**{**body, "home": Path(body["home"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TrainingFailed(f"{path}: not a training job ({error})") from error


def save_model(
    home: Path, name: str, card: Mapping[str, Any], fill: Callable[[Path], None]
) -> Path:
    """Calls `fill(folder)`, adds the card, and renames the folder into place in one step. A kill
    leaves only a dot-folder that nobody reads; a model that is there already stays."""
    target = get_model_folder(home, name)
    if (target / CARD).exists():
        return target
    beside = target.parent / f".{name}.{uuid.uuid4().hex[:8]}"
    beside.mkdir(parents=True)
    try:
        fill(beside)
        (beside / CARD).write_text(json.dumps(dict(card), indent=1, ensure_ascii=False))
        if target.exists():
            shutil.rmtree(target)
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target


def find_unreadable_weights(folder: Path) -> str | None:
    """Why a model's weights cannot be read, by their headers and sizes; None if they can."""
    from safetensors import SafetensorError, safe_open

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return f"models/{folder.name[:12]} holds no weights"
    for path in files:
        try:
            with safe_open(str(path), "np"):  # reads the header and holds it against the size
                continue
        except (OSError, SafetensorError) as error:
            return f"models/{folder.name[:12]}/{path.name}: {error}"
    return None


Whole = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
Settings = TypeVar("Settings")


def read_hyper_parameters(role: str, kind: type[Settings], values: Mapping[str, Any]) -> Settings:
    """A Pydantic dataclass `kind`. Raises TrainingFailed naming the first bad value."""
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:  # several values that do not go together
            raise TrainingFailed(f"{role}: {first['msg'].removeprefix('Value error, ')}") from None
        name = first["loc"][0]
        if first["type"] == "unexpected_keyword_argument":
            known = ", ".join(sorted(each.name for each in fields(kind)))  # type: ignore[arg-type]
            raise TrainingFailed(
                f"{role} setting {name!r} is unknown; expected some of {known}"
            ) from None
        wanted = first["msg"].replace("Input should be", "expected")
        raise TrainingFailed(f"{role} {name} is {reprlib.repr(first['input'])}; {wanted}") from None
