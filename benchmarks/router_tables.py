"""The figures of `benchmarks.router` as compact Markdown tables."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.router_quality import MEASURES


def table(part: str, found: Mapping[str, Any]) -> str:
    """Markdown of one part."""
    return _TABLES.get(part, _plain)(found)


def _quality(found: Mapping[str, Any]) -> str:
    out = [f"{found['tools']:,} tools, {found['queries']:,} queries. " + "; ".join(found["notes"])]
    for name, part in found["parts"].items():
        rows = [[of, *(_figure(row[m]) for m in MEASURES)] for of, row in part["methods"].items()]
        out.append(f"**{name}** (n = {part['n']}, {part['servers']} servers)\n\n"
                   + _markdown(["method", *MEASURES], rows))  # fmt: skip
    header = ["part", "n", "best baseline", "ours", "Recall@1 gain", "ratio", "NDCG@10 gain"]
    gains = [
        [name, part["n"], part["best_baseline"], of, _signed(gain["Recall@1"]),
         _figure(gain["ratio"], 2), _signed(gain["NDCG@10"])]
        for name, part in found["parts"].items()
        for of, gain in part["gains"].items()
    ]  # fmt: skip
    said = "**Paired gains over the baseline with the best Recall@1 of that part**"
    out.append(f"{said}\n\n{_markdown(header, gains)}")
    rows = [
        [name, part["n"], of, _signed(gain["Recall@1"]), _signed(gain["NDCG@10"])]
        for name, part in found["parts"].items()
        for of, gain in part["gains_by_training"].items()
    ]
    header = ["part", "n", "trained", "Recall@1 over ours", "NDCG@10 over ours"]
    return "\n\n".join([*out, f"**Paired gains by training**\n\n{_markdown(header, rows)}"])


def _outside(found: Mapping[str, Any]) -> str:
    zero, bank = found["metatool"], found["api-bank"]
    rows = [
        [*name.split(" | "), of["Recall@1"]["n"], _figure(of["NDCG@5"]), _figure(of["Recall@1"])]
        for name, of in zero["rows"].items()
    ]
    out = [f"MetaTool, 199 tools. Published: {zero['published']}."]
    out.append(_markdown(["method", "of", "queries", "NDCG@5", "Recall@1"], rows))
    if zero["gains"]:
        gains = [[name, _signed(of)] for name, of in zero["gains"].items()]
        out.append(_markdown(["gain by training on the other half's tools, paired", ""], gains))
    else:
        out.append("After training: not run, nothing trained.")
    rows = [[*name.split(" | "), of["n"], _figure(of)] for name, of in bank["rows"].items()]
    out.append(f"API-Bank level 1, {bank['tools']} tools. Published: {bank['published']}.")
    out.append(_markdown(["method", "turns", "cases", "accuracy"], rows))
    tokens = f"{bank['tokens_injected']} tokens injected a case, {bank['tokens_of_pool']:,} of all"
    out.append(f"{tokens}. Active requests: {bank['active_requests']}.")
    return "\n\n".join(out)


def _needle(found: Mapping[str, Any]) -> str:
    out = []
    for name, grid in found.items():
        rows = [
            [row["pool"], row["n"], *(_figure(row[f"recall@{k}"]) for k in (1, 5, 20)),
             row["tokens@1"], row["tokens@5"], f"{row['whole_pool_tokens']:,}",
             f"{row['saved@5']:.2%}", *(_enough(row, recall) for recall in (0.8, 0.9)), row["ms"]]
            for row in grid["rows"]
        ]  # fmt: skip
        header = ["pool", "n", "top 1", "top 5", "top 20", "tokens of 1", "tokens of 5",
                  "whole pool", "saved by 5", "hits for 0.8 (saved)", "for 0.9", "ms"]  # fmt: skip
        out.append(f"**{name}** ({grid['needles']})\n\n{_markdown(header, rows)}")
    return "\n\n".join(out)


def _enough(row: Mapping[str, Any], recall: float) -> str:
    hits, saved = row[f"hits_for_{recall}"], row[f"saved_at_{recall}"]
    return f"{hits} ({saved:.1%})" if hits else "> 200"


def _latency(found: Mapping[str, Any]) -> str:
    timed = ["find", "search", "encode", "one product", "all products", "MCP-Zero's loop"]
    rows = [
        [f"{row['tools']:,}", *(" / ".join(f"{row[name][p]:.2f}" for p in ("p50", "p95", "p99"))
                                for name in timed),
         row["search / one product"], row["search / all products"], row["rss_mb"],
         row["index_mb"], f"{row['load_average']:.1f}"]
        for row in found["rows"]
    ]  # fmt: skip
    header = ["tools", *timed, "search : one", "search : all", "RSS MB", "of it index", "load"]
    worked = [
        [f"{row['tools']:,}", *(f"{row[name]['cpu p50']:.2f} / {row[name]['cpu p95']:.2f}"
                                for name in timed)]
        for row in found["rows"]
    ]  # fmt: skip
    said = "Milliseconds, p50 / p95 / p99, one thread; ratios by the processor's time."
    cpu = _markdown(["tools", *timed], worked)
    return f"{said}\n\n{_markdown(header, rows)}\n\nProcessor's time, p50 / p95:\n\n{cpu}"


def _serve(found: Mapping[str, Any]) -> str:
    shown = ["clients", "seconds", "requests", "per_second", "errors", "stale_mix", "published"]
    ms = found["ms"]
    row = [*(found[name] for name in shown), f"{ms['p50']} / {ms['p95']} / {ms['p99']}"]
    row += [found["server_rss_mb"], f"{found['load_average']:.1f}"]
    header = [*shown, "ms p50 / p95 / p99", "server MB", "load"]
    versions = json.dumps(found["answers_by_version"])
    errors = f"\n\nErrors: {json.dumps(found['errors_by_text'])}" if found["errors"] else ""
    return f"{_markdown(header, [row])}\n\nAnswers by index version: {versions}{errors}"


def _plain(found: Mapping[str, Any]) -> str:
    return _markdown(["", ""], [[name, of] for name, of in found.items()])


_TABLES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "quality": _quality, "outside": _outside, "needle": _needle, "latency": _latency,
    "serve": _serve,
}  # fmt: skip


def _markdown(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def _figure(of: Mapping[str, float], digits: int = 3) -> str:
    value, low, high = (f"{of[key]:.{digits}f}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def _signed(of: Mapping[str, float]) -> str:
    return f"{of['value']:+.3f} [{of['low']:+.3f}, {of['high']:+.3f}]"
