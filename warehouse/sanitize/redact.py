"""Redact: takes secrets out of text and JSON before anything is returned or stored.

`redact` is idempotent and leaves JSON text parseable: the mark holds no quote and no backslash, and
what it replaces never crosses a quote. Names stay, places to fill in (`<KEY>`, `${KEY}`) stay.
Linear time: repeats are bounded or possessive, and a value that was taken is not looked at again.
100 KB cost 10-13 ms as text and 20 as parsed JSON on a core where `json.loads` of it took 3 ms.
"""

from itertools import pairwise
from typing import Any

from warehouse.sanitize.credential_patterns import Span, find_credentials, find_issued_keys
from warehouse.sanitize.labelled_secrets import (
    ONLY_IN_QUERIES,
    SCHEME,
    find_labelled_secrets,
    is_convincing,
)
from warehouse.sanitize.nested import rebuild
from warehouse.sanitize.secret_names import (
    MARK,
    is_credible,
    is_firm,
    is_place,
    is_secret_name,
    split_words,
)
from warehouse.sanitize.unseen import drop_unseen

__all__ = [
    "MARK",
    "REDACT_VERSION",
    "is_secret_name",
    "redact",
    "redact_issued_keys",
    "redact_json",
]

REDACT_VERSION = 3  # part of every page's key: a page stored by an older redaction is read anew

_PASSES = 8  # a cut may bring two neighbours together; the second pass finds nothing in most texts
_LAUNCH = frozenset(("env", "environment", "environ", "environmentvariables", "headers"))
_SHORTEST = 6  # characters of a text that may hold a name and its secret
_HEADER_OPTIONS = ("-H", "--header")


def redact(text: str) -> str:
    """The text with every known form of secret replaced by "[redacted]"; half of a surrogate pair,
    which no file can hold, becomes U+FFFD."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for _ in range(_PASSES):
        cleaned = _cut_spans(text, [*find_labelled_secrets(text), *find_credentials(text)])
        if cleaned == text:
            break
        text = cleaned
    return text


def redact_issued_keys(value: Any) -> Any:
    """A copy of a JSON value without keys that are one for certain (`find_issued_keys`): what is
    only named a token or password stays, since a caller may have asked a tool for it."""

    def copy(item: Any, _under: str) -> Any:
        if isinstance(item, str):
            return _cut_issued_keys(item)
        if isinstance(item, dict):
            return {_cut_issued_keys(key): one for key, one in item.items()}
        return list(item) if isinstance(item, list) else item

    return rebuild(value, copy)


def _cut_issued_keys(text: str) -> str:
    """The text without issued keys; where unseen characters part one, without those either."""
    clean = _cut_spans(text, list(find_issued_keys(text)))
    bare = drop_unseen(clean)
    spans = [] if bare == clean else list(find_issued_keys(bare))
    return _cut_spans(bare, spans) if spans else clean


def _cut_spans(text: str, spans: list[Span]) -> str:
    """The text with the spans, and marks that touch them, each as one mark."""
    if not spans:
        return text
    pieces: list[str] = []
    done = 0
    for start, end in sorted(spans):
        if end <= done:
            continue
        if start > done or not pieces:
            pieces += [text[done:start], MARK]
        done = end
    return "".join([*pieces, text[done:]])


def redact_json(value: Any) -> Any:
    """A copy of a JSON value: texts redacted, and values of inputs marked secret blanked.

    A text is blanked where a sibling `isSecret` / `is_secret` marks its `value` or `default`, a
    sibling `name` names a secret, its own key does, or the option before it in a list does.
    """
    if isinstance(value, str):
        return redact(value)
    texts = list(_collect_texts(value))
    changed = {old: new for old, new in zip(texts, _redact_all(texts), strict=True) if old != new}
    return rebuild(value, lambda item, under: _copy_item(item, under, changed))


def _redact_all(texts: list[str]) -> list[str]:
    """Each text redacted. All at once, parted by a character that no form reaches across."""
    if any("\x00" in text for text in texts):
        return [redact(text) for text in texts]
    return redact("\x00".join(texts)).split("\x00") if texts else []


def _collect_texts(value: Any) -> dict[str, None]:
    """Every text and key of a JSON value that is long enough to hold a secret, once."""
    found: dict[str, None] = {}
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack += [*item, *item.values()]
        elif isinstance(item, list):
            stack += item
        # Half of a surrogate pair is short.
        elif isinstance(item, str) and (len(item) >= _SHORTEST or not item.isascii()):
            found[item] = None
    return found


def _copy_item(item: Any, under: str, changed: dict[str, str]) -> Any:
    """A text as it was changed; an object or list whose named secrets are blanked."""
    if isinstance(item, str):
        return changed.get(item, item)
    if isinstance(item, dict):
        blank = _blank_members(item, launch=under.lower() in _LAUNCH)
        return {changed.get(key, key): blank.get(key, member) for key, member in item.items()}
    if isinstance(item, list):
        blanked = [None, *(_blank_after_option(before, one) for before, one in pairwise(item))]
        return [one if new is None else new for one, new in zip(item, blanked, strict=False)]
    return item


def _blank_members(item: dict[str, Any], *, launch: bool) -> dict[str, str]:
    """The members of an object whose value is a secret, and what stands there instead."""
    marked = item.get("isSecret") is True or item.get("is_secret") is True
    label = item.get("name") or item.get("key")
    label = label if isinstance(label, str) and len(label) <= 80 else ""
    found: dict[str, str | None] = {}
    for key, value in item.items():
        if not isinstance(value, str) or not value:
            continue
        if key in ("value", "default"):
            option, equals, own = (
                value.partition("=") if value.startswith("--") else ("", "", value)
            )
            if marked:
                found[key] = None if is_place(own) else option + equals + MARK
            elif is_secret_name(label) and (blank := _blank_value(label, own, launch=launch)):
                found[key] = option + equals + blank
        elif is_secret_name(key):
            found[key] = _blank_value(key, value, launch=launch)
        elif launch and is_credible(value, 20) and not is_place(value):
            found[key] = MARK
    return {key: text for key, text in found.items() if text is not None}


def _blank_value(name: str, value: str, *, launch: bool) -> str | None:
    """The value of a secret name without its secret ("Bearer [redacted]"), or None where it is not
    one. `launch`: it stands in `env` or `headers`, where a name leaves no doubt."""
    scheme = SCHEME.match(value)
    rest = value[scheme.end() :] if scheme else value
    name = name.lstrip("-")
    bare = split_words(name) in (["key"], ["keys"])
    doubt = 0 if launch or is_firm(name) else 16 if bare else 8
    if is_place(rest) or not is_convincing(rest, doubt, plain=launch or name.upper() == name):
        return None
    return value[: len(value) - len(rest)] + MARK


def _blank_after_option(before: Any, value: Any) -> str | None:
    """What stands for a list's text after `--api-key` or `--header`, or None to read it as text."""
    if not isinstance(before, str) or not isinstance(value, str) or not before.startswith("-"):
        return None
    if before.startswith("--") and "=" not in before:
        name = before.lstrip("-")
        if is_secret_name(name) or name.lower() in ONLY_IN_QUERIES - {"config"}:
            return None if value.startswith("--") or is_place(value) else MARK
    name, colon, rest = value.partition(":")
    if before in _HEADER_OPTIONS and colon and is_secret_name(name):
        blank = _blank_value(name, rest.lstrip(), launch=True)
        return None if blank is None else value[: len(value) - len(rest.lstrip())] + blank
    return None
