"""A trained adapter merged into its base: one folder that plain `transformers` opens."""

from pathlib import Path
from typing import Any

from training.caller.bases import find_base_source, find_card_base, load_caller

# Whose models write text: their weights are exported. A retriever and a reranker lie in the index.
LANGUAGE_ROLES = ("caller", "sidecar")


def write_merged_model(home: Path, name: str, folder: Path) -> dict[str, Any]:
    """Writes model.safetensors (in the base's own dtype), tokenizer, chat template and generation
    config; returns the model's card. `name`: of a finished adapter under `<home>/models`.

    Raises TrainingFailed for a model that is not there, or whose base is another.
    """
    adapted, tokenizer, made = load_caller(home, name)
    # Merged in float32, as it was loaded, and rounded once.
    merged = adapted.merge_and_unload().to(_read_base_dtype(find_card_base(made)))
    _end_answers(merged, tokenizer)
    merged.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return made


def _read_base_dtype(base: str) -> Any:
    import torch
    from transformers import AutoConfig

    source, revision = find_base_source(base)
    options: dict[str, Any] = {"revision": revision} if revision else {}
    return AutoConfig.from_pretrained(source, **options).dtype or torch.float32


def _end_answers(model: Any, tokenizer: Any) -> None:
    """Greedy answers that end where the chat template ends them, for whoever reads the generation
    config; a base that samples says so in its own, and a caller was never measured so."""
    settings = model.generation_config
    settings.do_sample = False
    settings.temperature = settings.top_p = settings.top_k = None
    for name in ("eos_token_id", "pad_token_id"):
        if getattr(settings, name) is None:
            setattr(settings, name, getattr(tokenizer, name))
