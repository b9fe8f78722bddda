"""Yamlfile: third-party YAML as plain JSON values."""

from typing import Any

import yaml

_DEEPEST = 40
_MOST_EVENTS = 3_000_000
_LARGEST = 16 * 1024 * 1024
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str) -> Any:
    """The value of a YAML document as JSON has it: keys are texts, and so are dates. Raises
    ValueError where it is none or could do harm."""
    if len(text) > _LARGEST:
        raise ValueError(f"YAML of {len(text):,} characters, at most {_LARGEST:,}")
    try:
        _refuse_harm(text)
        return _convert_plain(yaml.load(text, Loader=_Loader))  # the safe loader, in C
    except yaml.YAMLError as error:
        first = str(error).splitlines()[0]
        raise ValueError(f"YAML that cannot be read: {first}") from error


def _refuse_harm(text: str) -> None:
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ValueError("YAML with an anchor or alias")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST or number > _MOST_EVENTS:
            raise ValueError(f"YAML nested deeper than {_DEEPEST} levels or of too many parts")


def _convert_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _convert_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_convert_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
