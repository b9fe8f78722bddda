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

from extensions.publishing.card_sections import (
    CardFacts,
    choose_licence,
    count_learnt_rows,
    get_base_and_licence,
    make_dataset_name,
    render_data,
    render_figures,
    render_limits,
    render_loading,
    render_training,
)
from training.figures import shorten_model
from training.gates import render_gates_table
from training.runtime.model_store import README, get_model_folder, read_model_card
from training.sets.set_audit import load_manifest
from warehouse.sanitize.markdown import (
    Markdown,
    fill_markdown,
    join_markdown,
    mark_markdown,
    quote_text,
)
from warehouse.storage.files import write_changed

EVALUATION = "evaluation.json"
Json = Mapping[str, Any]

_NOT_CONSIDERED = Markdown("Not considered yet.")
_TASKS = {"retriever": "sentence-similarity", "caller": "text-generation",
          "sidecar": "text-generation"}  # fmt: skip
_WHAT = {
    "retriever": Markdown(
        "Finds the MCP tool that a request needs: requests and tools become vectors whose"
        " cosine says how well they fit."
    ),
    "caller": Markdown(
        "Writes the tool call that answers a request, given the tools it may choose from."
    ),
    "sidecar": Markdown(
        "Revises the draft of a tool call that the repair ladder cannot make fit, or asks for what"
        " is missing, given the conversation, the tools and what is wrong with the draft."
    ),
    "reranker": Markdown(
        "Orders the tools that the router found by how likely each is to do what is asked, learnt"
        " from calls that ran. It reads the vectors of one retriever, and NumPy alone runs it."
    ),
}


def write_card(
    home: Path, name: str, *, summary: Json | None = None, gates: Iterable[Json] = ()
) -> Path | None:
    """Writes the model's card and returns its path; None for an unfinished model. A `summary`
    replaces the evaluation that it tells. Raises OSError naming the file."""
    about = read_model_card(home, name)
    if about is None:
        return None
    folder = get_model_folder(home, name)
    if summary is not None:
        evaluation = {"summary": dict(summary), "gates": [dict(gate) for gate in gates]}
        text = json.dumps(evaluation, indent=1, ensure_ascii=False)
        write_changed(folder / EVALUATION, text.encode("utf-8", "replace"))
    evaluation_on_disk = _read_evaluation(folder / EVALUATION)
    made_of = str(about.get("training_set") or "")
    manifest = load_manifest(home, made_of) if made_of else None
    facts = CardFacts(
        about,
        manifest or {},
        count_learnt_rows(home, made_of),
        evaluation_on_disk.get("summary") or {},
        evaluation_on_disk.get("gates") or (),
    )
    write_changed(folder / README, render_card(facts).encode("utf-8", "replace"))
    return folder / README


def render_card(facts: CardFacts) -> Markdown:
    role = str(facts.model.get("role"))
    sections = [
        _render_front_matter(facts),
        fill_markdown(
            "# Toolmill {} {}", role, quote_text(shorten_model(str(facts.model.get("name"))))
        ),
        _WHAT.get(role) or fill_markdown("A model of role {}.", role),
        render_training(facts),
        render_data(facts),
        render_figures(facts),
        fill_markdown(
            "## Gates\n\n{}", render_gates_table(facts.gates) if facts.gates else _NOT_CONSIDERED
        ),
        render_limits(facts),
        render_loading(facts),
    ]
    return fill_markdown("{}\n", join_markdown("\n\n", sections))


def _render_front_matter(facts: CardFacts) -> Markdown:
    import yaml

    base, base_licence = get_base_and_licence(facts.model)
    licence = choose_licence(facts, base_licence)
    body: dict[str, Any] = {"license": licence}
    if licence == "other":
        body["license_name"] = "mixed-see-data-and-licences"
    if base:
        body["base_model"] = base
    role = str(facts.model.get("role"))
    learnt = [] if role == "reranker" else ["lora"]
    if learnt:
        body["library_name"] = "peft"
    if role in _TASKS:
        body["pipeline_tag"] = _TASKS[role]
    body["tags"] = ["mcp", "tool-calling", "toolmill", role, *learnt]
    if facts.model.get("training_set") and learnt:
        body["datasets"] = [make_dataset_name(facts.model)]
    text = yaml.safe_dump(body, sort_keys=False, allow_unicode=False)
    # As YAML writes it: a document of strings in which no line can begin with a sign of its own.
    return mark_markdown(f"---\n{text}---")


def _read_evaluation(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError):  # none yet, or unreadable: the next evaluation writes it again
        return {}
    return body if isinstance(body, dict) else {}
