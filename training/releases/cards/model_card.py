"""The card of a model: README.md beside it, with the front matter that the hub reads.

    models/<name>/README.md          the card
                  evaluation.json    {summary, gates} of the evaluation that the card tells

Nothing in a card depends on when it was written: the same model, set and evaluation are the same
card. Names of servers, licences and providers are third-party text and stand quoted.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from training.releases.cards.facts import (
    Facts,
    choose_licence,
    count_learnt_rows,
    get_base_and_licence,
    make_dataset_name,
)
from training.releases.cards.text import format_counts_inline, list_figure_rows, quote_text
from training.releases.gate import render_gates_table
from training.runtime.model_store import get_model_folder, read_model_card
from training.sets.training_set import load_manifest
from warehouse.sanitize.escape import keep_cell, make_markdown_table
from warehouse.storage.digest import digest
from warehouse.storage.files import write_atomically

README, EVALUATION = "README.md", "evaluation.json"
Json = Mapping[str, Any]

_TASKS = {"retriever": "sentence-similarity", "caller": "text-generation"}
_WHAT = {
    "retriever": "Finds the MCP tool that a request needs: requests and tools become vectors whose"
    " cosine says how well they fit.",
    "caller": "Writes the tool call that answers a request, given the tools it may choose from.",
}
_TINY = (
    "The base is a tiny causal model that Toolmill ships, trained on invented tool contracts."
    " It proves that training, saving, loading, generating and scoring work; it is no evidence of"
    " what a pretrained base would learn, and of no use for work."
)
_OFFLINE = (
    "pairs were written by the offline provider (a grammar over the contracts), not by a language"
    " model or by people, on both sides of the split: the figures say how well requests of"
    " that kind are served."
)


def write_card(
    home: Path, name: str, *, summary: Json | None = None, gates: Iterable[Json] = ()
) -> Path | None:
    """Writes the model's card and returns its path; None for a model that was never finished.

    With a `summary` the card tells that evaluation from now on; without, the last one that it was
    given. The same card again is no write. Raises OSError naming the file.
    """
    about = read_model_card(home, name)
    if about is None:
        return None
    folder = get_model_folder(home, name)
    if summary is not None:
        told = {"summary": dict(summary), "gates": [dict(gate) for gate in gates]}
        _write_if_changed(folder / EVALUATION, json.dumps(told, indent=1, ensure_ascii=False))
    known = _read_evaluation(folder / EVALUATION)
    made_of = str(about.get("training_set") or "")
    manifest = load_manifest(home, made_of) if made_of else None
    facts = Facts(
        about,
        manifest or {},
        count_learnt_rows(home, made_of),
        known.get("summary") or {},
        known.get("gates") or (),
    )
    _write_if_changed(folder / README, render_card(facts))
    return folder / README


def render_card(facts: Facts) -> str:
    """The whole card."""
    role = str(facts.model.get("role"))
    parts = [
        _render_front_matter(facts),
        f"# Toolmill {role} {quote_text(_shorten_name(facts.model.get('name')))}",
        _WHAT.get(role, f"A model of role {role}."),
        _render_training(facts),
        _render_data(facts),
        _render_figures(facts),
        "## Gates\n\n"
        + (render_gates_table(facts.gates) if facts.gates else "Not considered yet."),
        _render_limits(facts),
        _render_loading(facts),
    ]
    return "\n\n".join(parts) + "\n"


def _render_front_matter(facts: Facts) -> str:
    import yaml

    base, base_licence = get_base_and_licence(facts.model)
    licence = choose_licence(facts, base_licence)
    body: dict[str, Any] = {"license": licence}
    if licence == "other":
        body["license_name"] = "mixed-see-data-and-licences"
    if base:
        body["base_model"] = base
    body["library_name"] = "peft"
    role = str(facts.model.get("role"))
    if role in _TASKS:
        body["pipeline_tag"] = _TASKS[role]
    body["tags"] = ["mcp", "tool-calling", "toolmill", role, "lora"]
    if facts.model.get("training_set"):
        body["datasets"] = [make_dataset_name(facts.model)]
    text = yaml.safe_dump(body, sort_keys=False, allow_unicode=False)
    return f"---\n{text}---"


def _render_training(facts: Facts) -> str:
    model = facts.model
    base, licence = get_base_and_licence(model)
    shown = f"`{base}`" if base else quote_text(model.get("base"))
    lines = [
        "## Training",
        "",
        f"LoRA of {shown} (licence of the base: {licence or 'not known here'}):"
        f" {model.get('pairs', 0)} pairs, {model.get('steps', 0)} steps, loss"
        f" {model.get('loss_first', '-')} to {model.get('loss_last', '-')},"
        f" {model.get('seconds')} s on {quote_text(model.get('device'))}.",
        "",
        make_markdown_table(
            ["setting", "value"],
            [
                (name, quote_text(json.dumps(value)))
                for name, value in sorted((model.get("settings") or {}).items())
            ],
            keep_cell,
        ),
    ]
    return "\n".join(lines)


def _render_data(facts: Facts) -> str:
    lines = ["## Data and licences", ""]
    held = facts.manifest
    if not held:
        told = f"Training set `{facts.model.get('training_set')}`; its manifest is not kept here."
        return "\n".join([*lines, told])
    contracts = held.get("contracts") or {}
    lines += [
        f"Training set `{held['training_set']}` (the name `{make_dataset_name(facts.model)}`"
        f" above is"
        " local: the set is in no hub), of accepted synthetic pairs. Its rows, each named by its"
        f" digest: `{digest(held.get('row_digests') or {})}`; the {len(contracts)} contracts known"
        f" then: `{digest(contracts)}`; LanceDB"
        f" version {held.get('lance_version')}.",
        "",
        make_markdown_table(
            ["split", "servers", "tools", "pairs"],
            [
                (split, len(held["servers"].get(split, ())), held["tools"].get(split, 0), rows)
                for split, rows in held["rows"].items()
            ],
            keep_cell,
        ),
        "",
        "What it learnt from, pairs by licence of the server and by who wrote them:",
        "",
        f"- licences: {format_counts_inline(facts.count_pairs('license', 'licences'))}",
        f"- providers: {format_counts_inline(facts.count_pairs('provider', 'providers'))}",
        f"- servers: {format_counts_inline(facts.learnt.get('server_id') or {}, 40)}",
    ]
    return "\n".join(lines)


def _render_figures(facts: Facts) -> str:
    summary = facts.summary
    rows = list(list_figure_rows(summary))
    if not rows:
        return "## Figures\n\nNot evaluated yet."
    head = ["split", "offered", "distractors", "n", "measure", "this model",
            quote_text(_shorten_name(summary.get("incumbent"))), "paired gain"]  # fmt: skip
    lines = [
        "## Figures",
        "",
        "Means with 95% intervals (bootstrap over tools), both models on the same items."
        f" Champions are chosen on servers never trained on: {summary.get('n', 0)} items for"
        f" {summary.get('tools', 0)} tools of {summary.get('servers', 0)} servers.",
        "",
        make_markdown_table(head, rows, keep_cell),
    ]
    told = (summary.get("signature") or {}).get("told")
    return "\n".join([*lines, "", quote_text(told)] if told else lines)


def _render_limits(facts: Facts) -> str:
    lines = []
    if facts.model.get("base") == "tiny":
        lines.append(_TINY)
    providers = facts.manifest.get("providers") or {}
    if providers.get("offline"):
        lines.append(f"{providers['offline']} of {sum(providers.values())} {_OFFLINE}")
    lines += [
        "No request is of a user. A server's tools are as its contracts said when the set was made;"
        " a tool that changed since is not known.",
    ]
    return "\n".join(["## Limits", "", *(f"- {line}" for line in lines)])


def _render_loading(facts: Facts) -> str:
    name, role = str(facts.model.get("name")), facts.model.get("role")
    if role == "retriever":
        code = (
            "from pathlib import Path\n"
            "from assets.vectors.embed import MiniLM\n\n"
            f'encoder = MiniLM(Path("var/models/{name}"))\n'
            'vectors = encoder.embed(["which hour is it in Paris?"])'
        )
    else:
        code = (
            "from pathlib import Path\n"
            "from training.caller.train import load_caller\n\n"
            f'model, tokenizer, card = load_caller(Path("var"), "{name}")'
        )
    return f"## Loading\n\nIn the data folder (`var`) of Toolmill:\n\n```python\n{code}\n```"


def _read_evaluation(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError):  # none yet, or unreadable: the next evaluation writes it again
        return {}
    return body if isinstance(body, dict) else {}


def _write_if_changed(path: Path, text: str) -> None:
    data = text.encode("utf-8", "replace")
    if not path.exists() or path.read_bytes() != data:
        write_atomically(path, data)


def _shorten_name(name: object) -> str:
    return str(name)[:12] if len(str(name)) == 64 else str(name)[:40]
