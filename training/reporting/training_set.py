"""What a report says of the training set: splits and tasks, leaks, lengths."""

from training.figures import Json, format_counts, format_table, split_name
from warehouse.sanitize.markdown import Markdown, fill_markdown, join_markdown, quote_text


def set_part(manifest: Json) -> Markdown:
    if not manifest:
        return Markdown(
            "## Training set\nNone yet: it needs accepted pairs of servers on both sides."
        )
    rows, tools, servers = manifest["rows"], manifest["tools"], manifest["servers"]
    tasks = manifest.get("tasks") or {}
    names = sorted({task for held in tasks.values() for task in held})
    lines = [
        Markdown("## Training set"),
        fill_markdown(
            "{}, split by server first: no server that is tested as unseen was trained on.",
            quote_text(manifest["training_set"][:16]),
        ),
        "",
        *format_table(
            ["split", "servers", "tools", "pairs", *names],
            [
                [split_name(s), len(servers[s]), tools[s], rows[s]]
                + [(tasks.get(s) or {}).get(name, 0) for name in names]
                for s in rows
            ],
        ),
    ]
    if manifest.get("empty"):
        empty = join_markdown(", ", map(split_name, manifest["empty"]))
        lines += ["", fill_markdown("No pairs, so nothing is measured there: {}.", empty)]
    if manifest.get("dropped"):
        lines += ["", fill_markdown("Left out: {}.", format_counts(manifest["dropped"]))]
    more = [*_render_leaks(manifest), *_render_tokens(manifest.get("tokens") or {})]
    return join_markdown("\n", [*lines, *more])


def _render_leaks(manifest: Json) -> list[object]:
    leaks = manifest.get("leaks")
    if leaks is None:
        return []
    if not leaks:
        return ["", Markdown("Leaks between splits (twins, near-duplicates): none found.")]
    counts = format_counts({name: held["found"] for name, held in leaks.items()})
    found = fill_markdown("Leaks between splits, found and taken out of training: {}.", counts)
    return ["", found]


def _render_tokens(tokens: Json) -> list[object]:
    splits = tokens.get("splits") or {}
    sizes = sorted(
        {name for held in splits.values() for name in held if name.startswith("prompt_")},
        key=lambda name: int(name.removeprefix("prompt_")),
    )
    if not sizes:
        return []
    rows = []
    for split, held in splits.items():
        row = [split_name(split), held["n"]]
        for size in sizes:
            one = held.get(size) or {}
            row.append(_format_lengths(one))
            row.append(one.get("over_limit"))
        rows.append([*row, _format_lengths(held["completion"])])
    head = ["split", "n"]
    for size in sizes:
        label = f"prompt at {size.removeprefix('prompt_')}"
        head += [label, f"over {tokens.get('limit', 8192):,}"]
    label = fill_markdown("Tokens by {}, median / 95% / most:", tokens.get("tokenizer", "?"))
    return ["", label, "", *format_table([*head, "call"], rows)]


def _format_lengths(of: Json) -> Markdown:
    return join_markdown(" / ", (of.get(name) for name in ("p50", "p95", "max")))
