"""A finding: one thing that is wrong with a pair, or that the rules cannot confirm."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong (`certain`) or that the rules cannot confirm.

    Kinds of one request: missing_required_argument, unknown_argument, wrong_type, bad_value,
    bad_schema, missing_required_value, ungrounded_value, names_the_tool, not_an_instruction,
    copies_description. Of a row: unreadable_row, unknown_contract, missing_call, unexpected_call,
    not_borrowed, messages_differ, no_question, no_answer, no_reply, no_error, nothing_missing,
    may_need_a_tool. Of two checkers: picked_another_tool.
    """

    kind: str
    path: str
    reason: str
    certain: bool = True
