"""The error that the command line tells apart from the rest."""


class UnusableInput(ValueError):
    """A file, name, option or setting that a user gave cannot be used; commands exit 2 on it, not
    1."""
