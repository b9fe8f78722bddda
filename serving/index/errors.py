"""The errors of reading an index."""


class IndexMissing(RuntimeError):
    """There is no router index to search."""


class IndexBroken(RuntimeError):
    """An index folder is incomplete, or was made by another format or embedder."""
