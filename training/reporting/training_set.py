"""What a report says of the training set: splits and tasks, leaks, lengths."""

from training.figures import Json, format_counts, format_table, split_name


def set_part(manifest: Json) -> str:
    if not manifest:
        return "## Training set\nNone yet: it needs accepted pairs of servers on both sides."
    rows, tools, servers = manifest["rows"], manifest["tools"], manifest["servers"]
    tasks = manifest.get("tasks") or {}
    names = sorted({task for held in tasks.values() for task in held})
    lines = [
        "## Training set",
        f"`{manifest['training_set'][:16]}`, split by server first: no server that is tested as"
        " unseen was trained on.",
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
        empty = ", ".join(split_name(split) for split in manifest["empty"])
        lines += ["", f"No pairs, so nothing is measured there: {empty}."]
    if manifest.get("dropped"):
        lines += ["", f"Left out: {format_counts(manifest['dropped'])}."]
    return "\n".join(
        [*lines, *_render_leaks(manifest), *_render_tokens(manifest.get("tokens") or {})]
    )


def _render_leaks(manifest: Json) -> list[str]:
    leaks = manifest.get("leaks")
    if leaks is None:
        return []
    if not leaks:
        return ["", "Leaks between splits (twins, near-duplicates): none found."]
    told = format_counts({name: held["found"] for name, held in leaks.items()})
    return ["", f"Leaks between splits, found and taken out of training: {told}."]


def _render_tokens(tokens: Json) -> list[str]:
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
            row.append(f"{one.get('p50')} / {one.get('p95')} / {one.get('max')}")
            row.append(one.get("over_limit"))
        own = held["completion"]
        rows.append([*row, f"{own['p50']} / {own['p95']} / {own['max']}"])
    head = ["split", "n"]
    for size in sizes:
        told = f"prompt at {size.removeprefix('prompt_')}"
        head += [told, f"over {tokens.get('limit', 8192):,}"]
    told = f"Tokens by {tokens.get('tokenizer', '?')}, median / 95% / most:"
    return ["", told, "", *format_table([*head, "call"], rows)]
