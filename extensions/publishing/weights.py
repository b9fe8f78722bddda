"""Weights of a release: each language model merged into its base, with serving recipes.

weights/<role>/safetensors/   what plain `transformers` opens
               SERVE.md       commands for vLLM, Ollama and llama.cpp
               model.gguf     over SmolLM2; for other bases llama.cpp's converter makes it
               Modelfile      for Ollama, over the GGUF file
"""

import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from training.caller.bases import find_base_source, find_card_base, load_caller
from training.caller.shipped import GENERAL
from training.caller.smollm2 import GGUF, find_package_folder, is_smollm2
from training.figures import shorten_model
from training.prompts.call_text import CallForm, find_call_form
from training.prompts.render import SYSTEM, render_conversation, render_tool_schema
from training.role import is_untrained

_REPLACED = (
    *("general.architecture", "general.name", "general.file_type"),
    *("general.quantization_version", "tokenizer.chat_template"),
)


def write_gguf(merged: Path, target: Path, name: str) -> None:
    """merged: has model.safetensors and chat_template.jinja. Raises TrainingFailed, OSError."""
    import gguf
    from safetensors.numpy import load_file

    reader = gguf.GGUFReader(find_package_folder() / GGUF)
    writer = gguf.GGUFWriter(str(target), "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in _REPLACED:
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_chat_template((merged / "chat_template.jinja").read_text(encoding="utf-8"))
    layers = _read_number(reader, "llama.block_count")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
    heads = {
        "attn_q": _read_number(reader, "llama.attention.head_count"),
        "attn_k": _read_number(reader, "llama.attention.head_count_kv"),
    }
    for key, weights in load_file(merged / "model.safetensors").items():
        tensor = names.get_name(key, try_suffixes=(".weight",))
        if tensor is None:
            raise ValueError(f"{key}: GGUF has no name for this tensor of a Llama")
        count = heads.get(tensor.split(".")[-2])
        laid = weights if count is None else interleave_heads(weights, count)
        writer.add_tensor(tensor, laid.astype(np.float32 if laid.ndim == 1 else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleave_heads(weights: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a query or key projection [heads * width, states] from transformers' order (all first
    coordinates of a head's rotated pairs, then the second) to GGUF's (pairs adjacent)."""
    rows, states = weights.shape
    return (
        weights.reshape(heads, 2, rows // heads // 2, states).swapaxes(1, 2).reshape(rows, states)
    )


def _read_number(reader: Any, key: str) -> int:
    return int(reader.fields[key].contents())


# Roles whose models write text. A retriever and a reranker are in the index.
LANGUAGE_ROLES = ("caller", "sidecar")
WEIGHTS = "weights"  # folder of an export; also the manifest's key
_SAFETENSORS, _GGUF, _MODELFILE, _SERVE = "safetensors", "model.gguf", "Modelfile", "SERVE.md"
_HERE = Path(__file__).parent
_PROBE = "zq_probe_request"
_PYTHON_TAG = "<|python_tag|>"  # vLLM's parser for Llama asks for it in the vocabulary


class NoWeights(ValueError):
    """No model here has weights to export; the message names the fix."""


def write_release_weights(home: Path, folder: Path, models: Mapping[str, str]) -> dict[str, Any]:
    """Writes `weights/<role>/` into an export for each language model of a release, and returns
    {"weights": {role: {…}}} for its manifest. Raises NoWeights, TrainingFailed."""
    trained = {
        role: models[role]
        for role in LANGUAGE_ROLES
        if role in models and (models[role] == GENERAL or not is_untrained(role, models[role]))
    }
    if not trained:
        names = ", ".join(f"{role} {models.get(role, 'none')}" for role in LANGUAGE_ROLES)
        raise NoWeights(
            f"no language model is in this release ({names[:200]}), so there are no weights to"
            " export; leave --weights out, or see `toolmill champion` for what serves"
        )
    weights = {
        role: write_model_weights(home, name, folder / WEIGHTS / role)
        for role, name in trained.items()
    }
    return {WEIGHTS: weights}


def write_model_weights(home: Path, name: str, folder: Path) -> dict[str, Any]:
    """Writes one model: safetensors/, model.gguf, Modelfile, SERVE.md. Returns {name, model, role,
    base, context, precision, vllm_parser, ollama_tools}. Raises TrainingFailed."""
    from transformers import AutoTokenizer

    merged = folder / _SAFETENSORS
    card = write_merged_model(home, name, merged)
    config = json.loads((merged / "config.json").read_bytes())
    facts = {
        "name": f"toolmill-{card['role']}-{shorten_model(name)}",
        "model": name,
        "role": card["role"],
        "base": str(card["base"]),
        "context": int(config["max_position_embeddings"]),
        "precision": str(config.get("dtype")),
    }
    if is_smollm2(facts["base"]):
        write_gguf(merged, folder / _GGUF, facts["name"])
    return facts | write_recipes(folder, AutoTokenizer.from_pretrained(str(merged)), facts)


def write_merged_model(home: Path, name: str, folder: Path) -> dict[str, Any]:
    """Writes model.safetensors (in the base's dtype), tokenizer, template and generation config of
    an adapter `name` under `<home>/models`; returns its card. Raises TrainingFailed."""
    adapted, tokenizer, card = load_caller(home, name)
    # Merged in float32, as it was loaded, and rounded once.
    merged = adapted.merge_and_unload().to(_read_base_dtype(find_card_base(home, card)))
    # Greedy answers that end where the chat template ends them: a base that samples says so in its
    # own generation config, and a caller was never measured that way.
    settings = merged.generation_config
    settings.do_sample = False
    settings.temperature = settings.top_p = settings.top_k = None
    for token in ("eos_token_id", "pad_token_id"):
        if getattr(settings, token) is None:
            setattr(settings, token, getattr(tokenizer, token))
    merged.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return card


def _read_base_dtype(base: str) -> Any:
    import torch
    from transformers import AutoConfig

    source, revision = find_base_source(base)
    options: dict[str, Any] = {"revision": revision} if revision else {}
    return AutoConfig.from_pretrained(source, **options).dtype or torch.float32


def write_recipes(folder: Path, tokenizer: Any, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Writes SERVE.md and Modelfile. facts: {name, model, role, base, context, precision}. Returns
    {vllm_parser, ollama_tools}: None and False where an engine does not read the model's calls."""
    form = find_call_form(tokenizer)
    tool = {"name": "zq_probe_tool", "inputSchema": {"type": "object", "properties": {}}}
    prompt, _ = render_conversation(tokenizer, [render_tool_schema(tool)], _PROBE)
    after = prompt.rpartition(_PROBE)[2]
    at = after.rfind("<|im_start|>")
    begin = after[at:] if at >= 0 else after
    parser = _choose_vllm_parser(form, tokenizer)
    reads_tools = parser == "hermes" and "<|im_start|>" in begin
    modelfile = _format_modelfile(facts, begin if reads_tools else None, tokenizer.eos_token)
    (folder / _MODELFILE).write_text(modelfile, encoding="utf-8")
    page = Template((_HERE / "serve.md").read_text(encoding="utf-8")).substitute(
        name=facts["name"],
        role=facts["role"],
        model=f"`{facts['model'][:12]}`",
        base=f"`{facts['base']}`",
        precision=facts["precision"],
        call=f"{form.before}NAME{form.between}{{…}}{form.after}".replace("\n", "\\n"),
        system=SYSTEM,
        vllm=_describe_vllm(facts, parser, begin),
        ollama=_OLLAMA_WITH_TOOLS if reads_tools else _OLLAMA_RAW,
    )
    (folder / _SERVE).write_text(page, encoding="utf-8")
    return {"vllm_parser": parser, "ollama_tools": reads_tools}


_OLLAMA_WITH_TOOLS = (
    "Ollama writes tools as JSON without blanks. The model was trained with blanks, so prompts"
    " differ by these."
)
_OLLAMA_RAW = (
    "Ollama cannot write this model's prompts: render them with the tokenizer's chat template and"
    " send them raw (`/api/generate` with `raw`)."
)


def _choose_vllm_parser(form: CallForm, tokenizer: Any) -> str | None:
    """The value of vLLM's --tool-call-parser for calls of this form (vLLM 0.33)."""
    if form.before.startswith("<tool_call>"):
        return "hermes"
    bare = form.before.removeprefix(_PYTHON_TAG).startswith('{"name"')
    return "llama3_json" if bare and _PYTHON_TAG in tokenizer.get_vocab() else None


def _format_modelfile(facts: Mapping[str, Any], begin: str | None, end: str | None) -> str:
    """begin: of the model's turn in ChatML, None if Ollama cannot express it. end: of a turn."""
    lines = ["FROM ./model.gguf"]
    if begin is None:
        lines.insert(0, "# Ollama cannot write this model's prompts: send them raw (SERVE.md).")
        lines.append('TEMPLATE """{{ .Prompt }}"""')
    else:
        template = Template((_HERE / "ollama.tmpl").read_text(encoding="utf-8").rstrip("\n"))
        lines.append(f'TEMPLATE """{template.substitute(begin=begin)}"""')
        lines.append(f'SYSTEM """{SYSTEM}"""')
    lines += ["PARAMETER temperature 0", f"PARAMETER num_ctx {facts['context']}"]
    if end:
        lines.append(f'PARAMETER stop "{end}"')
    return "\n".join([*lines, ""])


def _describe_vllm(facts: Mapping[str, Any], parser: str | None, begin: str) -> str:
    if parser is None:
        return (
            "None of vLLM's tool parsers reads calls in this form, so `vllm serve safetensors`"
            " returns them as text. `toolmill proxy --local` serves this model with its calls."
        )
    options = [
        f"--served-model-name {facts['name']}",
        f"--max-model-len {facts['context']}",
        f"--enable-auto-tool-choice --tool-call-parser {parser}",
    ]
    if "<think>" in begin:
        options.append("--default-chat-template-kwargs '{\"enable_thinking\": false}'")
    return "```\nvllm serve safetensors \\\n  " + " \\\n  ".join(options) + "\n```"
