"""How many tokens a tool puts into a model's context.

Counted by MiniLM's WordPiece tokenizer (30,522 pieces), the one tokenizer that is installed: for
JSON it gives more than a chat model's byte-pair vocabulary would, for all methods alike.
"""

import json
from collections.abc import Mapping
from typing import Any

from assets.vectors.embed import base_path


class Counter:
    """Tokens of text, uncut."""

    def __init__(self) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(base_path() / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def injected(self, contract: Mapping[str, Any]) -> int:
        """Of a tool as a client lists it to a model: name, description, parameters."""
        shown = {
            "name": contract["name"],
            "description": contract.get("description", ""),
            "inputSchema": contract.get("inputSchema", {}),
        }
        return self.count(json.dumps(shown, ensure_ascii=False))
