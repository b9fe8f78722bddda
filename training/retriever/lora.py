"""LoRA of a retriever's base: which layers it adapts, and the weights that it starts from."""

import re
from typing import Any

from assets.vectors.encoders.minilm import GENERAL_WEIGHTS, find_general_folder, make_general_name
from assets.vectors.encoders.weights import BASE
from training.retriever.settings import NONE, RetrieverSettings, find_other_shape
from training.runtime.model_store import TrainingFailed


def add_adapter(model: Any, settings: RetrieverSettings) -> Any:
    """A transformer with a new adapter of its linear layers, all other weights frozen. Raises
    TrainingFailed."""
    from peft import LoraConfig, get_peft_model

    return get_peft_model(
        model,
        LoraConfig(
            r=settings.rank,
            lora_alpha=settings.alpha,
            lora_dropout=settings.dropout,
            target_modules=list_linear_layers(model, settings.first_layer),
        ),
    )


def list_linear_layers(model: Any, first_layer: int) -> list[str]:
    """Names of the linear modules in the layers of a transformer from `first_layer` on: attention
    and feed-forward, by whatever names its architecture has for them.

    Where no list of as many layers as its configuration counts is found, all but the pooler.
    Raises TrainingFailed for more frozen layers than there are, and where nothing is left.
    """
    import torch

    layers = getattr(model.config, "num_hidden_layers", None)
    if layers is not None and first_layer >= layers:
        raise TrainingFailed(
            f"retriever first_layer is {first_layer}, the base has {layers} layers;"
            f" expected 0 to {layers - 1}"
        )
    linear = [name for name, each in model.named_modules() if isinstance(each, torch.nn.Linear)]
    stacks = [
        re.escape(name)
        for name, each in model.named_modules()
        if isinstance(each, torch.nn.ModuleList) and len(each) == layers
    ]
    if stacks:
        inside = re.compile(rf"(?:{'|'.join(stacks)})\.(\d+)\.")
        found = [(name, inside.match(name)) for name in linear]
        kept = [name for name, at in found if at and int(at[1]) >= first_layer]
    else:
        kept = [name for name in linear if not name.startswith("pooler.")]
    if not kept:
        raise TrainingFailed(
            f"retriever: a {type(model).__name__} has no linear layers that LoRA could adapt;"
            " choose another base"
        )
    return kept


def load_start(model: Any, base: str, settings: RetrieverSettings) -> None:
    """Puts the shipped adapter's weights into one of the same shape; nothing where `start` is none.
    Raises TrainingFailed."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    start = settings.start
    if start == NONE:
        return
    known = make_general_name()
    if base != BASE or start != known:
        raise TrainingFailed(
            f"retriever: start is {start} over {base}; expected {known} over {BASE}, the adapter of"
            f" this package, or {NONE}"
        )
    if other := find_other_shape(settings):
        raise TrainingFailed(f"retriever {other}")
    set_peft_model_state_dict(model, load_file(str(find_general_folder() / GENERAL_WEIGHTS)))
