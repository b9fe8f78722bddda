"""The error that the command line tells apart from the rest, and words for unreadable files."""


class UnusableInput(ValueError):
    """A user's file, name, option or setting cannot be used; commands exit 2, not 1."""


def describe_unreadable(error: Exception) -> str:
    """Why a file could not be read, in a line: Python's words on recursion are no help."""
    if isinstance(error, RecursionError):
        return "nested too deep to be read"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
