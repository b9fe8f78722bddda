"""Base models and adapters: loading them, and telling which base an adapter is of."""

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assets.vectors.encoders.hub import UnpinnedModel, split_hub_id
from training.caller.shipped import find_caller_folder, read_caller_card
from training.caller.smollm2 import find_base_flaw, find_base_folder, is_smollm2
from training.runtime.device import get_process_device, pick_frozen_type
from training.runtime.model_store import TrainingFailed, read_card
from warehouse.storage.digest import digest

_SHAPE = (
    *("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "vocab_size"),
)
_PASSING = ("transformers_version", "dtype", "torch_dtype", "architectures", "use_cache")
_EXPECTED = (
    "expected 'smollm2', a folder with a causal model and its tokenizer, or a hub id at a commit"
)


def load_base(base: str, device: str) -> tuple[Any, Any]:
    """(model, tokenizer) of a folder or a hub id at a commit. Raises TrainingFailed naming it."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    name, revision = find_base_source(base)
    options: dict[str, Any] = {"revision": revision} if revision else {}
    try:
        with load_quietly(fetches=revision is not None):
            config = AutoConfig.from_pretrained(name, **options)
            kind = pick_frozen_type(device, getattr(config, "hidden_size", 0))
            tokenizer = AutoTokenizer.from_pretrained(name, **options)
            model: Any = AutoModelForCausalLM.from_pretrained(name, dtype=kind, **options)
    except Exception as error:  # a third-party folder fails in any library on the way
        raise TrainingFailed(
            f"caller base {base!r} does not load: {_get_first_error_line(error)}; {_EXPECTED}"
        ) from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model.to(get_process_device(device)), tokenizer


@contextmanager
def load_quietly(*, fetches: bool) -> Iterator[None]:
    """Without bars over what lies on the disk (a download keeps its own), and without what
    libraries warn each other of."""
    from transformers.utils import logging

    hidden = not fetches and logging.is_progress_bar_enabled()
    if hidden:
        logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        if hidden:
            logging.enable_progress_bar()


def find_base_source(base: str) -> tuple[str, str | None]:
    """(folder or hub id, the commit of a hub id). Raises TrainingFailed."""
    try:
        return split_hub_id(base)
    except UnpinnedModel as error:
        raise TrainingFailed(f"caller base {error}; {_EXPECTED}") from error


def describe_base(model: Any, tokenizer: Any) -> dict[str, Any]:
    """What tells bases apart: shape, and digests of vocabulary, template and config."""
    config = model.config
    stated = config.to_diff_dict()
    stated_keys = {k: v for k, v in stated.items() if not k.startswith("_") and k not in _PASSING}
    return {
        **{name: getattr(config, name, None) for name in _SHAPE},
        "vocabulary": digest(tokenizer.get_vocab()),
        "template": digest(tokenizer.chat_template),
        "config": digest(json.loads(json.dumps(stated_keys, default=str))),
    }


def load_caller(home: Path, name: str, device: str = "cpu") -> tuple[Any, Any, dict[str, Any]]:
    """(model with its adapter, tokenizer, card) of a trained caller, ready to generate.

    Raises TrainingFailed: no finished model, or one whose base is no longer the one it was trained
    on.
    """
    model_card, folder = read_caller_card(home, name), find_caller_folder(home, name)
    if model_card is None:
        raise TrainingFailed(f"caller {name[:12]}: no finished model in {folder}")
    base = find_card_base(home, model_card)
    model, tokenizer = load_adapter(folder, base, device, model_card)
    return model, tokenizer, model_card


def find_card_base(home: Path, card: Mapping[str, Any]) -> str:
    """The folder or hub id of the base that a card names. Raises TrainingFailed."""
    if flaw := find_base_flaw(card):
        raise TrainingFailed(flaw)
    base = str(card["base"])
    return find_base_folder(home, base) if is_smollm2(base) else str(card.get("base_name") or base)


def load_adapter(
    folder: Path,
    base: str | None = None,
    device: str = "cpu",
    card: Mapping[str, Any] | None = None,
) -> tuple[Any, Any]:
    """(model, tokenizer) of an adapter's folder; `base` None: the one its config names.

    `made`: its card, whose base identity is then held against the base that is there.
    """
    from peft import PeftModel

    card = card or read_card(folder)
    config = _read_base_config(folder)
    base_name = str(config.get("base_model_name_or_path") or "")
    if config.get("revision"):
        base_name = f"{base_name}@{config['revision']}"
    model, tokenizer = load_base(base or base_name, device)
    trained = (card or {}).get("base_identity")
    if trained:
        _require_same_base(
            folder,
            base_name or str((card or {}).get("base_name")),
            base or base_name,
            trained,
            describe_base(model, tokenizer),
        )
    try:
        with load_quietly(fetches=False):
            adapted = PeftModel.from_pretrained(model, str(folder))
    except Exception as error:
        raise TrainingFailed(
            f"adapter {folder} does not go onto {base or base_name!r} (it names {base_name!r} as"
            f" its base): {_get_first_error_line(error)}; load it onto its own base"
        ) from error
    return adapted.eval(), tokenizer


def _require_same_base(
    folder: Path, trained_on: str, base: str, then: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    wrong = [name for name in (*_SHAPE, "vocabulary") if then.get(name) != now.get(name)]
    if not wrong:
        return
    differences = ", ".join(
        f"{name} {str(now.get(name))[:12]} instead of {str(then.get(name))[:12]}"
        for name in wrong[:3]
    )
    raise TrainingFailed(
        f"adapter {folder} was trained on base {trained_on!r}, but {base!r} is another model:"
        f" {differences}; give the base it was trained on, or train it again"
    )


def _read_base_config(folder: Path) -> dict[str, Any]:
    path = folder / "adapter_config.json"
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise TrainingFailed(
            f"{folder} holds no adapter ({_get_first_error_line(error)}); expected"
            " adapter_config.json and adapter_model.safetensors"
        ) from error


def _get_first_error_line(error: BaseException) -> str:
    """The first words of an error; its second line where the first only announces it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[:2] if lines and lines[0].endswith(":") else lines[:1]
    return " ".join(first or [type(error).__name__])[:300]
