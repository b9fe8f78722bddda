"""Textkit: counting, comparing and reshaping plain text."""

import difflib
import re
import textwrap
import unicodedata
from collections import Counter

from stdio import serve, tool

TEXT = {"type": "string", "description": "The text to work on"}


@tool("Count characters, words, lines and sentences of a text.", required=["text"], text=TEXT)
def count_text(text):
    return {
        "characters": len(text),
        "words": len(text.split()),
        "lines": text.count("\n") + 1,
        "sentences": len(re.findall(r"[.!?]+(?:\s|$)", text)),
    }


@tool(
    "List the most frequent words of a text with how often each occurs.",
    required=["text"],
    text=TEXT,
    top={"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
    ignore_case={"type": "boolean", "default": True, "description": "Count 'The' as 'the'"},
)
def frequent_words(text, top=10, ignore_case=True):
    words = re.findall(r"\w+", text.lower() if ignore_case else text)
    return dict(Counter(words).most_common(top))


@tool(
    "Compare two texts line by line and show what was added and removed.",
    required=["before", "after"],
    before={"type": "string", "description": "The older text"},
    after={"type": "string", "description": "The newer text"},
    context={"type": "integer", "minimum": 0, "maximum": 20, "default": 3,
             "description": "Unchanged lines shown around each change"},
)  # fmt: skip
def compare_texts(before, after, context=3):
    return "\n".join(
        difflib.unified_diff(before.splitlines(), after.splitlines(), n=context, lineterm="")
    )


@tool(
    "Turn a headline into a slug for a web address: lower case, ASCII letters and hyphens.",
    required=["headline"],
    headline={"type": "string", "description": "For example 'Café au lait, twice'"},
    max_length={"type": "integer", "minimum": 8, "maximum": 200, "default": 80},
)
def make_slug(headline, max_length=80):
    plain = unicodedata.normalize("NFKD", headline).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:max_length].strip("-")


@tool(
    "Wrap a text to lines of at most a given width.",
    required=["text", "width"],
    text=TEXT,
    width={"type": "integer", "minimum": 10, "maximum": 400, "description": "Characters a line"},
    indent={"type": "string", "default": "", "description": "Put before every line"},
)
def wrap_text(text, width, indent=""):
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent)


serve()
