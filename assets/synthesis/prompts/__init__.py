"""Prompts are files: `<name>.md` with a `## system` and a `## user` part, and a digest."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template

from warehouse.storage.digest import digest, sha256


@dataclass(frozen=True)
class PromptFile:
    """One prompt file. Its digest changes with any byte of it."""

    name: str
    digest: str
    system: str
    user: str

    def make_messages(self, **values: str) -> list[dict[str, str]]:
        """The chat messages with `$name` filled in. Raises KeyError for a value not given."""
        return [
            {"role": "system", "content": self.system},
            {"role": "user", "content": Template(self.user).substitute(values)},
        ]


@cache
def read_prompt(name: str, folder: Path = Path(__file__).parent) -> PromptFile:
    """The prompt of that name. Raises FileNotFoundError, ValueError when a part is missing."""
    path = folder / f"{name}.md"
    text = path.read_text(encoding="utf-8")
    pieces = re.split(r"^## (system|user)\n", text, flags=re.MULTILINE)
    sections = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    if set(sections) != {"system", "user"}:
        raise ValueError(f"{path}: found parts {sorted(sections)}, expected `## system`, `## user`")
    return PromptFile(
        name, sha256(text.encode()), sections["system"].strip(), sections["user"].strip()
    )


def make_marker(*texts: str) -> str:
    """The code of a prompt's markers: made from all texts, and found in none of them."""
    marker = digest(list(texts))[:16]
    while any(marker in text for text in texts):
        marker = digest([marker, *texts])[:16]
    return f"DATA-{marker}"
