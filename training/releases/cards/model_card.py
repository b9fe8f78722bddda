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

from training.releases.cards.facts import Facts, base_of, dataset_of, learnt_from, licence_of
from training.releases.cards.text import counted, figure_rows, quoted
from training.releases.gate import gates_table
from training.runtime.model_store import card, model_folder
from training.sets.training_set import load_manifest
from warehouse.sanitize.escape import keep_cell, markdown_table
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
    about = card(home, name)
    if about is None:
        return None
    folder = model_folder(home, name)
    if summary is not None:
        told = {"summary": dict(summary), "gates": [dict(gate) for gate in gates]}
        _keep(folder / EVALUATION, json.dumps(told, indent=1, ensure_ascii=False))
    known = _evaluation(folder / EVALUATION)
    made_of = str(about.get("training_set") or "")
    manifest = load_manifest(home, made_of) if made_of else None
    facts = Facts(
        about,
        manifest or {},
        learnt_from(home, made_of),
        known.get("summary") or {},
        known.get("gates") or (),
    )
    _keep(folder / README, card_text(facts))
    return folder / README


def card_text(facts: Facts) -> str:
    """The whole card."""
    role = str(facts.model.get("role"))
    parts = [
        _front(facts),
        f"# Toolmill {role} {quoted(_short(facts.model.get('name')))}",
        _WHAT.get(role, f"A model of role {role}."),
        _training(facts),
        _data(facts),
        _figures(facts),
        "## Gates\n\n" + (gates_table(facts.gates) if facts.gates else "Not considered yet."),
        _limits(facts),
        _loading(facts),
    ]
    return "\n\n".join(parts) + "\n"


def _front(facts: Facts) -> str:
    import yaml

    base, base_licence = base_of(facts.model)
    licence = licence_of(facts, base_licence)
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
        body["datasets"] = [dataset_of(facts.model)]
    text = yaml.safe_dump(body, sort_keys=False, allow_unicode=False)
    return f"---\n{text}---"


def _training(facts: Facts) -> str:
    model = facts.model
    base, licence = base_of(model)
    shown = f"`{base}`" if base else quoted(model.get("base"))
    lines = [
        "## Training",
        "",
        f"LoRA of {shown} (licence of the base: {licence or 'not known here'}):"
        f" {model.get('pairs', 0)} pairs, {model.get('steps', 0)} steps, loss"
        f" {model.get('loss_first', '-')} to {model.get('loss_last', '-')},"
        f" {model.get('seconds')} s on {quoted(model.get('device'))}.",
        "",
        markdown_table(
            ["setting", "value"],
            [
                (name, quoted(json.dumps(value)))
                for name, value in sorted((model.get("settings") or {}).items())
            ],
            keep_cell,
        ),
    ]
    return "\n".join(lines)


def _data(facts: Facts) -> str:
    lines = ["## Data and licences", ""]
    held = facts.manifest
    if not held:
        told = f"Training set `{facts.model.get('training_set')}`; its manifest is not kept here."
        return "\n".join([*lines, told])
    contracts = held.get("contracts") or {}
    lines += [
        f"Training set `{held['training_set']}` (the name `{dataset_of(facts.model)}` above is"
        " local: the set is in no hub), of accepted synthetic pairs. Its rows, each named by its"
        f" digest: `{digest(held.get('row_digests') or {})}`; the {len(contracts)} contracts known"
        f" then: `{digest(contracts)}`; LanceDB"
        f" version {held.get('lance_version')}.",
        "",
        markdown_table(
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
        f"- licences: {counted(facts.counts('license', 'licences'))}",
        f"- providers: {counted(facts.counts('provider', 'providers'))}",
        f"- servers: {counted(facts.learnt.get('server_id') or {}, 40)}",
    ]
    return "\n".join(lines)


def _figures(facts: Facts) -> str:
    summary = facts.summary
    rows = list(figure_rows(summary))
    if not rows:
        return "## Figures\n\nNot evaluated yet."
    head = ["split", "offered", "distractors", "n", "measure", "this model",
            quoted(_short(summary.get("incumbent"))), "paired gain"]  # fmt: skip
    lines = [
        "## Figures",
        "",
        "Means with 95% intervals (bootstrap over tools), both models on the same items."
        f" Champions are chosen on servers never trained on: {summary.get('n', 0)} items for"
        f" {summary.get('tools', 0)} tools of {summary.get('servers', 0)} servers.",
        "",
        markdown_table(head, rows, keep_cell),
    ]
    told = (summary.get("signature") or {}).get("told")
    return "\n".join([*lines, "", quoted(told)] if told else lines)


def _limits(facts: Facts) -> str:
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


def _loading(facts: Facts) -> str:
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


def _evaluation(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError):  # none yet, or unreadable: the next evaluation writes it again
        return {}
    return body if isinstance(body, dict) else {}


def _keep(path: Path, text: str) -> None:
    data = text.encode("utf-8", "replace")
    if not path.exists() or path.read_bytes() != data:
        write_atomically(path, data)


def _short(name: object) -> str:
    return str(name)[:12] if len(str(name)) == 64 else str(name)[:40]
