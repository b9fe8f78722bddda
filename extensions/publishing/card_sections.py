"""The sections of a model card, and the facts they are written from."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assets.vectors.encoders.hub import SENTENCE
from training.figures import describe_offline, format_interval, shorten_model
from training.sets.split import TRAIN
from training.sets.training_set import TRAINING_SET
from warehouse.sanitize.markdown import (
    Markdown,
    fill_markdown,
    join_markdown,
    make_markdown_table,
    quote_text,
)
from warehouse.storage.digest import digest

Json = Mapping[str, Any]
UNKNOWN = "unknown"

# name in a card -> (id on the hub, licence)
_BASES = {"minilm-l6-v2": ("sentence-transformers/all-MiniLM-L6-v2", "apache-2.0"),
          "smollm2": (None, "apache-2.0")}  # fmt: skip
_LICENCES = {"qwen/": "apache-2.0", "meta-llama/llama-3.1": "llama3.1",
             "sentence-transformers/": "apache-2.0"}  # fmt: skip


@dataclass(frozen=True)
class CardFacts:
    model: Json
    manifest: Json = field(default_factory=dict)
    learnt: Mapping[str, Mapping[Any, int]] = field(default_factory=dict)  # over the train split
    summary: Json = field(default_factory=dict)
    gates: Iterable[Json] = ()

    def list_pairs(self, column: str, in_manifest: str) -> Markdown:
        """Pairs by a column: of the train split where its rows are there, else of the whole set."""
        counts = self.learnt.get(column) or self.manifest.get(in_manifest) or {}
        names = {name: UNKNOWN if name in (None, "None") else str(name) for name in counts}
        return format_counts_inline({names[name]: n for name, n in counts.items()})


def get_base_and_licence(model: Json) -> tuple[str | None, str | None]:
    """(id on the hub, licence) of the base; None for what is local or not known."""
    base = str(model.get("base") or "").removeprefix(SENTENCE)
    base = base.partition("@")[0]  # without its commit, its files
    if (name := base.partition(":")[0]) in _BASES:  # behind the colon is a digest
        return _BASES[name]
    segments = base.split("/")
    on_hub = len(segments) == 2 and all(
        part and all(c.isascii() and (c.isalnum() or c in "-_.") for c in part) and part[0] != "."
        for part in segments
    )
    if not on_hub:
        return None, None
    licences = [licence for prefix, licence in _LICENCES.items() if base.lower().startswith(prefix)]
    return base, licences[0] if licences else None


def choose_licence(facts: CardFacts, base: str | None) -> str:
    from assets.synthesis.export.selection import normalise_licence

    counts = facts.learnt.get("license") or facts.manifest.get("licences") or {}
    names = {
        (normalise_licence(None if name in (None, "None") else str(name)) or "?").lower()
        for name in counts
    }
    return str(base) if base and names == {base} else "other"


def count_learnt_rows(home: Path, training_set: str) -> dict[str, Counter[Any]]:
    """Counts over the rows that were learnt from; empty where that version of the table is gone."""
    import polars as pl

    path = home / "tables" / TRAINING_SET.name / "_" / f"{training_set}.parquet"
    if not training_set or not path.exists():
        return {}
    frame = pl.read_parquet(path)
    names = [name for name in ("license", "provider", "server_id") if name in frame.columns]
    learnt = frame.filter(pl.col("split") == TRAIN).select(names)
    return {name: Counter(map(str, learnt[name].fill_null(UNKNOWN))) for name in names}


def make_dataset_name(model: Json) -> str:
    return f"toolmill-training-set-{str(model.get('training_set'))[:12]}"


_NONE = Markdown("-")


def format_counts_inline(counts: Mapping[Any, int], most: int = 20) -> Markdown:
    """Counts as a list in one line, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
    items = [fill_markdown("{} {}", quote_text(name), count) for name, count in ordered[:most]]
    if len(ordered) > most:
        items.append(fill_markdown("{} more", len(ordered) - most))
    return join_markdown(", ", items or ["none"])


def list_figure_rows(summary: Json) -> Iterator[list[object]]:
    """[split, candidates, distractors, n, measure, this model, the other, paired gain] of every
    comparison in a retriever's or a caller's summary."""
    cells = list(summary.get("cells") or ())
    cells_by_split = [(str(cell.get("split")), cell) for cell in cells]
    cells_by_split += list((summary.get("splits") or {}).items())
    if not cells_by_split and "n" in summary:
        cells_by_split = [(str(summary.get("split") or "unseen_server"), summary)]
    for split, part in cells_by_split:
        for name, both in part.items():
            if not isinstance(both, Mapping) or "candidate" not in both:
                continue
            gain = both.get("gain") or part.get(f"gain_{name.removeprefix('recall_')}")
            figures = [format_interval(both.get(who)) for who in ("candidate", "incumbent")]
            offered = part.get("candidates") or part.get("pool") or _NONE
            n = (both["candidate"] or {}).get("n", 0)
            yield [split, offered, part.get("distractors") or _NONE, n, name, *figures,
                   format_interval(gain, signed=True)]  # fmt: skip


def render_training(facts: CardFacts) -> Markdown:
    model = facts.model
    base, licence = get_base_and_licence(model)
    # Those of the base are filled in: whoever loads the adapter elsewhere needs them.
    prompts = {f"{name}_prompt": text for name, text in (model.get("prompts") or {}).items()}
    lines = [
        Markdown("## Training"),
        "",
        fill_markdown(
            "Fitted at once over vectors of retriever {}: {} outcomes (what was passed over for a"
            " request counts a quarter), log loss {} before and {} after, {} s.",
            quote_text(shorten_model(str(model.get("base")))),
            *(model.get(name, "-") for name in ("pairs", "loss_first", "loss_last", "seconds")),
        )
        if model.get("role") == "reranker"
        else fill_markdown(
            "LoRA of {} (licence of the base: {}): {} pairs, {} steps, loss {} to {}, {} s on {}.",
            quote_text(base or model.get("base")),
            licence or "not known here",
            *(model.get(name, 0) for name in ("pairs", "steps")),
            *(model.get(name, "-") for name in ("loss_first", "loss_last")),
            model.get("seconds"),
            quote_text(model.get("device")),
        ),
        "",
        make_markdown_table(
            ["setting", "value"],
            [
                (name, quote_text(json.dumps(value)))
                for name, value in sorted({**(model.get("settings") or {}), **prompts}.items())
            ],
        ),
    ]
    return join_markdown("\n", lines)


def _render_calls(facts: CardFacts) -> Markdown:
    return fill_markdown(
        "## Data and licences\n\nCalls that Toolmill executed, and calls of clients whose tokens"
        " opted in to their words being kept; set {}. No words, arguments or results are in the"
        " model: weights by tool, server and client, and directions that the words' vectors vary"
        " in.",
        quote_text(facts.model.get("training_set")),
    )


def render_data(facts: CardFacts) -> Markdown:
    if facts.model.get("role") == "reranker":
        return _render_calls(facts)
    lines: list[object] = [Markdown("## Data and licences"), ""]
    manifest = facts.manifest
    if not manifest:
        name = quote_text(facts.model.get("training_set"))
        line = fill_markdown("Training set {}; its manifest is not kept here.", name)
        return join_markdown("\n", [*lines, line, *_describe_drafts(facts)])
    contracts = manifest.get("contracts") or {}
    lines += [
        fill_markdown(
            "Training set {} (the name {} above is local: the set is in no hub), of accepted"
            " synthetic pairs. Its rows, each named by its digest: {}; the {} contracts known"
            " then: {}; LanceDB version {}.",
            quote_text(manifest["training_set"]),
            quote_text(make_dataset_name(facts.model)),
            quote_text(digest(manifest.get("row_digests") or {})),
            len(contracts),
            quote_text(digest(contracts)),
            manifest.get("lance_version"),
        ),
        "",
        make_markdown_table(
            ["split", "servers", "tools", "pairs"],
            [
                (
                    split,
                    len(manifest["servers"].get(split, ())),
                    manifest["tools"].get(split, 0),
                    rows,
                )
                for split, rows in manifest["rows"].items()
            ],
        ),
        "",
        fill_markdown(
            "Pairs to learn from, by licence of the server and by who wrote them (it learnt {}):",
            facts.model.get("pairs"),
        ),
        "",
        fill_markdown("- licences: {}", facts.list_pairs("license", "licences")),
        fill_markdown("- providers: {}", facts.list_pairs("provider", "providers")),
        fill_markdown(
            "- servers: {}", format_counts_inline(facts.learnt.get("server_id") or {}, 40)
        ),
        *_describe_drafts(facts),
    ]
    return join_markdown("\n", lines)


def _describe_drafts(facts: CardFacts) -> list[object]:
    """What a sidecar learnt from: drafts of the pairs' calls; nothing for other roles."""
    counts = facts.model.get("lessons") or {}
    drafts = counts.get("drafts") or {}
    if not drafts:
        return []
    what = fill_markdown(
        "It learnt from {} drafts of calls of the train split; in {} of them asking is right, and"
        " {} were too long for its context and left out. By where a draft comes from (`corrupted`:"
        " an error written into a right call; `drift`: an older contract's; `execution`: refused by"
        " a server, with its words; `drafted`: written by another model; `untouched`: right as it"
        " is), and by what is wrong with it:",
        *(counts.get("rows", 0), drafts.get("asks", 0), counts.get("too_long", 0)),
    )
    sources, kinds = (format_counts_inline(drafts.get(name) or {}, 40)
                      for name in ("sources", "kinds"))  # fmt: skip
    bullets = fill_markdown("- sources: {}", sources), fill_markdown("- kinds: {}", kinds)
    return ["", what, "", *bullets]


def _render_reranked(summary: Json) -> Markdown:
    rows = [
        (
            name,
            (summary[gain] or {}).get("n", 0),
            *(format_interval(summary[measure].get(who)) for who in ("candidate", "incumbent")),
            format_interval(summary[gain], signed=True),
        )
        for name, measure, gain in (
            ("AUC, calls that worked over those that failed", "auc", "gain"),
            ("Recall@1, requests of the training set", "recall_at_1", "requests"),
        )
    ]
    head = ["measure", "n", "this model", quote_text(shorten_model(str(summary["incumbent"]))),
            "paired gain"]  # fmt: skip
    return fill_markdown(
        "## Figures\n\nMeans with 95% intervals (bootstrap over tools), of words that it has not"
        " learnt from: {} calls of {} tools.\n\n{}",
        *(summary.get(name, 0) for name in ("n", "tools")),
        make_markdown_table(head, rows),
    )


def render_figures(facts: CardFacts) -> Markdown:
    summary = facts.summary
    if "auc" in summary:
        return _render_reranked(summary)
    rows = list(list_figure_rows(summary))
    if not rows:
        return Markdown("## Figures\n\nNot evaluated yet.")
    head = ["split", "offered", "distractors", "n", "measure", "this model",
            quote_text(shorten_model(str(summary.get("incumbent")))), "paired gain"]  # fmt: skip
    lines = [
        Markdown("## Figures"),
        "",
        fill_markdown(
            "Means with 95% intervals (bootstrap over {}), both models on the same items."
            " Champions are chosen on servers never trained on: {} items for {} tools of {}"
            " servers.",
            summary.get("drawn_over", "tools"),
            *(summary.get(name, 0) for name in ("n", "tools", "servers")),
        ),
        "",
        make_markdown_table(head, rows),
    ]
    return join_markdown("\n", lines)


def render_limits(facts: CardFacts) -> Markdown:
    lines: list[Markdown] = []
    if facts.model.get("role") == "reranker":
        return Markdown(
            "## Limits\n\n- It knows tools by the calls that were made of them: who makes more"
            " calls teaches it more, within a token's daily limit.\n- Another retriever's vectors"
            " mean nothing to it: it serves only beside the one it was fitted over."
        )
    providers = facts.manifest.get("providers") or {}
    if providers.get("offline"):
        lines.append(describe_offline(providers))
    lines.append(
        Markdown(
            "No request is of a user. A server's tools are as its contracts said when the set was"
            " made; a tool that changed since is not known."
        )
    )
    bullets = (fill_markdown("- {}", line) for line in lines)
    return join_markdown("\n", [Markdown("## Limits"), "", *bullets])


def render_loading(facts: CardFacts) -> Markdown:
    name, role = str(facts.model.get("name")), facts.model.get("role")
    if role == "retriever":
        code = fill_markdown(
            "from pathlib import Path\n"
            "from assets.vectors.encoders.choose import open_retriever\n\n"
            'encoder = open_retriever(Path("var/models/{}"))  # base=SPEC where it is not MiniLM\n'
            'vectors = encoder.embed(["which hour is it in Paris?"])',
            name,
        )
    elif role == "reranker":
        code = fill_markdown(
            "from pathlib import Path\n"
            "from extensions.recommender.reranker_file import read_reranker\n\n"
            'weights = read_reranker(Path("var/models/{}/reranker.npz"))',
            name,
        )
    else:
        code = fill_markdown(
            "from pathlib import Path\n"
            "from training.caller.bases import load_caller\n\n"
            'model, tokenizer, card = load_caller(Path("var"), "{}")',
            name,
        )
    template = "## Loading\n\nIn the data folder (`var`) of Toolmill:\n\n```python\n{}\n```"
    return fill_markdown(template, code)
