"""Typed placeholders: plausible values for what a listing leaves to its user.

Belongs here: choosing a value by the name, format and description of a secret, URL, path, number or
identifier, so that a server which only checks the shape still lists its tools. Every value of a
secret says that it is a placeholder: nobody can take it for a real one.
Does not belong here: real secrets, and where values are put (`recipe.py`, `bundle.py`).
"""

import re
import uuid

from assets.servers.launch import HOME

DATA = f"{HOME}/data"
_HEX = "0123456789abcdef"
_PREFIXES = (
    (r"openai", "sk-"),
    (r"anthropic", "sk-ant-"),
    (r"github|\bgh\b", "ghp_"),
    (r"gitlab", "glpat-"),
    (r"notion", "ntn_"),
    (r"slack", "xoxb-"),
    (r"stripe", "sk_test_"),
    (r"hugging|\bhf\b", "hf_"),
    (r"tavily", "tvly-"),
)
_SECRET = r"key|token|secret|password|passwd|credential|bearer|auth|\bpat\b"
_RULES: tuple[tuple[str, str], ...] = (
    (r"mongo|\bmdb\b", "mongodb://placeholder:placeholder@localhost:27017/placeholder"),
    (r"redis", "redis://localhost:6379/0"),
    (r"mysql|mariadb", "mysql://placeholder:placeholder@localhost:3306/placeholder"),
    (
        r"postgres|database ?ur[il]|connection ?string|\bdsn\b|\bdb ?ur[il]",
        "postgresql://placeholder:placeholder@localhost:5432/placeholder",
    ),
    (r"atlassian|jira.*(url|host|site)|confluence.*(url|host|site)",
     "https://placeholder.atlassian.net"),
    (r"\bur[il]s?\b|endpoint|webhook|site\b|base ?url", "https://placeholder.example.com"),
    (r"e-?mail|username|\blogin\b", "placeholder@example.com"),
    (r"uuid|guid|tenant ?id|client ?id|subscription", str(uuid.UUID(int=0x70_6C_61_63_65))),
    (r"hostname|\bhosts?\b|domain", "placeholder.example.com"),
    (r"\bport\b", "8080"),
    (r"region", "us-east-1"),
    (r"time ?zone|\btz\b", "UTC"),
    (r"language|locale", "en"),
    (r"\bdate\b", "2026-01-01"),
)  # fmt: skip


def value_for(name: str, description: str | None = None, format: str | None = None) -> str:
    """A plausible value. format: string, number, boolean, filepath, directory, file, or None.

    The same arguments always give the same value: it is part of the recipe's digest.
    """
    if format in ("filepath", "directory"):
        return DATA
    if format == "file":
        return f"{DATA}/placeholder.txt"
    if format == "number":
        return "1"
    if format == "boolean":
        return "true"
    words = _words(name)
    if re.search(_SECRET, words) and not re.search(r"\bur[il]\b|path|file", words):
        return _secret(f"{words} {(description or '').lower()}")
    for pattern, value in _RULES:
        if re.search(pattern, words):
            return value
    if re.search(r"path|folder|\bdir|directory|workspace|\broot\b", words):
        return DATA
    if re.search(r"\bfile\b", words):
        return f"{DATA}/placeholder.json"
    if re.search(r"\bid\b", words):
        return str(uuid.UUID(int=0x70_6C_61_63_65))
    if re.search(r"https?://|\burl\b", (description or "").lower()):
        return "https://placeholder.example.com"
    return "placeholder"


def _secret(context: str) -> str:
    prefix = next((text for pattern, text in _PREFIXES if re.search(pattern, context)), "")
    return f"{prefix}placeholder{_HEX * 2}"[: max(40, len(prefix) + 11)]


def _words(name: str) -> str:
    """`NOTION_API_TOKEN`, `notionApiToken` -> "notion api token"."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.sub(r"[^a-z0-9]+", " ", split.lower()).strip()
