"""The errors of reading an index.

What belongs here: their names. What does not: when they are raised (`serving/index/folder.py`).
"""


class IndexMissing(RuntimeError):
    """There is no router index to search."""


class IndexBroken(RuntimeError):
    """An index folder is incomplete, or was made by another format or embedder."""
