"""A finding: one thing that is wrong with a pair, or that the rules cannot confirm."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong (`certain`) or that the rules cannot confirm.

    Kinds: missing_required_argument, unknown_argument, wrong_type, bad_value, bad_schema,
    missing_required_value, ungrounded_value, names_the_tool, not_an_instruction,
    copies_description.
    """

    kind: str
    path: str
    reason: str
    certain: bool = True
