"""The errors of reading an index."""

from warehouse.errors import UnusableInput


class IndexMissing(UnusableInput):
    """There is no router index to search."""


class IndexBroken(RuntimeError):
    """An index folder is incomplete, or was made by another format or embedder."""
