"""How an exported model is served by others: SERVE.md with vLLM's command line, and a Modelfile for
Ollama. What an engine cannot do with a model is said in the place of a command."""

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from training.prompts.call_form import CallForm, find_call_form
from training.prompts.render import SYSTEM, render_conversation, render_tool_schema

MODELFILE, SERVE = "Modelfile", "SERVE.md"
_HERE = Path(__file__).parent
_PROBE = "zq_probe_request"
_PYTHON_TAG = "<|python_tag|>"  # vLLM's parser for Llama asks for it in the vocabulary
_NO_PARSER = (
    "None of vLLM's tool parsers reads calls in this form, so that `vllm serve safetensors` returns"
    " them as text. `toolmill proxy --local` serves this model with its calls."
)


def write_recipes(folder: Path, tokenizer: Any, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Writes SERVE.md, and a Modelfile where there is a GGUF file. facts: {name, role, base,
    context, precision, gguf: as `write_gguf` returns, or why there is none}. Returns {vllm_parser,
    ollama_tools}: None and False where an engine does not read the model's calls."""
    form = find_call_form(tokenizer)
    begin = _find_turn_begin(tokenizer)
    parser = choose_vllm_parser(form, tokenizer)
    has_file = isinstance(facts["gguf"], Mapping)
    reads_tools = parser == "hermes" and "<|im_start|>" in begin
    if has_file:
        text = write_modelfile(facts, begin if reads_tools else None, tokenizer.eos_token)
        (folder / MODELFILE).write_text(text, encoding="utf-8")
    page = Template((_HERE / "serve.md").read_text(encoding="utf-8")).substitute(
        name=facts["name"],
        role=facts["role"],
        model=f"`{facts['model'][:12]}`",
        base=f"`{facts['base']}`",
        precision=facts["precision"],
        call=f"{form.before}NAME{form.between}{{…}}{form.after}".replace("\n", "\\n"),
        system=SYSTEM,
        gguf_row="| `model.gguf` | the same for llama.cpp and Ollama |" if has_file else "",
        vllm=_describe_vllm(facts, parser, begin),
        ollama=_describe_ollama(facts, reads_tools),
    )
    (folder / SERVE).write_text(page, encoding="utf-8")
    return {"vllm_parser": parser, "ollama_tools": has_file and reads_tools}


def choose_vllm_parser(form: CallForm, tokenizer: Any) -> str | None:
    """The value of vLLM's --tool-call-parser for calls of this form (vLLM 0.33)."""
    if form.before.startswith("<tool_call>"):
        return "hermes"
    bare = form.before.removeprefix(_PYTHON_TAG).startswith('{"name"')
    return "llama3_json" if bare and _PYTHON_TAG in tokenizer.get_vocab() else None


def write_modelfile(facts: Mapping[str, Any], begin: str | None, end: str | None) -> str:
    """begin: what begins the model's turn in a prompt of ChatML, None where its template cannot be
    written in Ollama's language. end: the token that ends a turn."""
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


def _find_turn_begin(tokenizer: Any) -> str:
    """What a prompt ends with: where the model begins to write, an empty thought included."""
    tool = {"name": "zq_probe_tool", "inputSchema": {"type": "object", "properties": {}}}
    prompt, _ = render_conversation(tokenizer, [render_tool_schema(tool)], _PROBE)
    after = prompt.rpartition(_PROBE)[2]
    at = after.rfind("<|im_start|>")
    return after[at:] if at >= 0 else after


def _describe_vllm(facts: Mapping[str, Any], parser: str | None, begin: str) -> str:
    if parser is None:
        return _NO_PARSER
    thinks = "<think>" in begin
    options = [
        f"--served-model-name {facts['name']}",
        f"--max-model-len {facts['context']}",
        f"--enable-auto-tool-choice --tool-call-parser {parser}",
        *(["--default-chat-template-kwargs '{\"enable_thinking\": false}'"] if thinks else []),
    ]
    return "```\nvllm serve safetensors \\\n  " + " \\\n  ".join(options) + "\n```"


def _describe_ollama(facts: Mapping[str, Any], reads_tools: bool) -> str:
    gguf = facts["gguf"]
    if not isinstance(gguf, Mapping):
        return f"No GGUF file: {gguf}."
    parts = [
        f"```\nollama create {facts['name']} -f Modelfile\nllama-server -m model.gguf --jinja\n```"
    ]
    if reads_tools:
        parts.append(
            "Ollama writes tools as JSON without blanks, where the model was trained with blanks:"
            " prompts differ by these."
        )
    else:
        parts.append(
            "Ollama cannot write this model's prompts: render them with the tokenizer's chat"
            " template and send them raw (`/api/generate` with `raw`)."
        )
    if not gguf["exact_tokens"]:
        parts.append(
            "llama.cpp has no rule that cuts texts as this tokenizer does: give it the tokenizer's"
            " numbers as the prompt (a list in `/completion`), never text."
        )
    return "\n\n".join(parts)
