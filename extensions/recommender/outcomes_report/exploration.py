"""What exploration cost, and what it tells of orders that were not served."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from assets.outcomes.reliability.observation import TOKEN
from extensions.recommender.outcomes_report.rates import format_rate, measure_rate, tell_empty
from extensions.recommender.policy_value.decisions import Decision, read_decisions
from extensions.recommender.policy_value.policies import compare_policies, count_explored
from training.figures import Json
from warehouse.sanitize.markdown import Markdown, fill_markdown, join_markdown, make_markdown_table

_MOST = 20_000  # newest explored searches that are read
ORDERS = {
    "shown": "what was shown, exploring included",
    "ranking": "the ranking, without exploring",
    "measured": "what did best in other searches first",
    "chance": "any candidate first",
}


def measure_exploration(lines: Iterable[Mapping[str, Any]], excluded: Collection[str]) -> Json:
    """{logged: searches in the log, searches, drawn, explored, kept, tried: success per search that
    showed the ranking's first, or another tool first; policies: of `compare_policies`}. lines: of
    the log of calls. excluded: sources that are left out."""
    own = [line for line in lines if f"{TOKEN}{line.get('token')}" not in excluded]
    logged = sum(line.get("status") == "searched" for line in own)
    decisions = read_decisions(own)[-_MOST:]
    drawn = [decision for decision in decisions if len(decision.candidates) > 1]
    return {
        "logged": logged,
        **count_explored(decisions),
        "kept": _measure_reward([one for one in drawn if one.chosen == 0]),
        "tried": _measure_reward([one for one in drawn if one.chosen > 0]),
        "policies": compare_policies(decisions),
    }


def render_exploration(found: Json) -> Markdown:
    """The part of the page: what was spent, and the orders as a table."""
    if not found["logged"]:
        return tell_empty(
            "the log of calls holds no search (those of tokens that `remember` are kept,"
            " docs/meta-server.md)"
        )
    if not found["drawn"]:
        return tell_empty(
            f"none of {found['logged']:,} logged searches explored (`serve.exploration.share` is 0,"
            " or no tool might have taken the first one's place)"
        )
    lead = fill_markdown(
        "Of {logged:,} logged searches {drawn:,} drew the first tool, and {explored:,}"
        " ({share:.1%}) showed another than the ranking's first. Success per search: {tried}"
        " where another stood first, {kept} where the ranking's did.",
        **{name: found[name] for name in ("logged", "drawn", "explored")},
        share=found["explored"] / found["logged"],
        tried=format_rate(found["tried"]),
        kept=format_rate(found["kept"]),
    )
    lines = [
        [
            ORDERS[row["policy"]],
            *(_format_estimate(row[name]) for name in ("doubly_robust", "self_normalised", "ips")),
            f"{row['effective_n']:g}",
        ]
        for row in found["policies"]
    ]
    head = ("order", "doubly robust [95%]", "self-normalised [95%]", "IPS [95%]", "effective n")
    intro = Markdown("Success per search by who stands first, estimated from the drawn searches:")
    return join_markdown("\n\n", [lead, intro, make_markdown_table(head, lines)])


def _format_estimate(found: Mapping[str, float] | None) -> str:
    return "{value:.3f} [{low:.3f}, {high:.3f}]".format(**found) if found else "not known"


def _measure_reward(decisions: list[Decision]) -> dict[str, float]:
    return measure_rate(sum(decision.reward for decision in decisions), len(decisions))
