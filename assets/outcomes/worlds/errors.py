"""What can go wrong with a world: its file, or the place where it is opened."""

from warehouse.errors import UnusableInput


class WorldFileError(UnusableInput):
    """A world file, or a name, that cannot be used; says which, what was found and the fix."""


class WorldFailed(RuntimeError):
    """A world that cannot be opened, reset or read here: which and why. Nothing outside its place
    was touched."""


class PlaceUnusable(WorldFailed, UnusableInput):
    """A place that is a file, or a folder with files of somebody else."""
