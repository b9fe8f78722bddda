"""Markdown as a reader takes it: what an image, a link or a cell is, a parser decides."""

from markdown_it import MarkdownIt
from markdown_it.token import Token

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def list_tokens(page: str) -> list[Token]:
    blocks = READER.parse(page)
    return [item for block in blocks for item in (block, *(block.children or ()))]
