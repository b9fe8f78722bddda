"""The sections of a model's card."""

import json

from training.releases.cards.facts import (
    Facts,
    get_base_and_licence,
    make_dataset_name,
)
from training.releases.cards.text import format_counts_inline, list_figure_rows, quote_text
from warehouse.sanitize.escape import keep_cell, make_markdown_table
from warehouse.storage.digest import digest

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


def render_training(facts: Facts) -> str:
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


def render_data(facts: Facts) -> str:
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


def render_figures(facts: Facts) -> str:
    summary = facts.summary
    rows = list(list_figure_rows(summary))
    if not rows:
        return "## Figures\n\nNot evaluated yet."
    head = ["split", "offered", "distractors", "n", "measure", "this model",
            quote_text(shorten_name(summary.get("incumbent"))), "paired gain"]  # fmt: skip
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


def render_limits(facts: Facts) -> str:
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


def render_loading(facts: Facts) -> str:
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
            "from training.caller.bases import load_caller\n\n"
            f'model, tokenizer, card = load_caller(Path("var"), "{name}")'
        )
    return f"## Loading\n\nIn the data folder (`var`) of Toolmill:\n\n```python\n{code}\n```"


def shorten_name(name: object) -> str:
    return str(name)[:12] if len(str(name)) == 64 else str(name)[:40]
