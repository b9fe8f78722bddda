"""The reasoning text of a model, apart from its answer."""

_OPENED, _CLOSED = "<think>", "</think>"


def drop_thinking(text: str) -> str:
    """The text without what stands between `<think>` and `</think>`."""
    kept, at = [], 0
    while (start := text.find(_OPENED, at)) >= 0:
        end = text.find(_CLOSED, start)
        if end < 0:
            break
        kept.append(text[at:start])
        at = end + len(_CLOSED)
    return "".join([*kept, text[at:]])
