"""Plots of a report: drawn into a file, or read where the home keeps the same picture."""

import io
from functools import partial
from pathlib import Path
from typing import IO

from warehouse.pictures import PictureStore

File = Path | IO[bytes]
Draw = partial[None]  # a function with all that it shows, but for the file that it writes


def draw_png(draw: Draw) -> bytes:
    """The PNG that `draw` writes."""
    picture = io.BytesIO()
    draw(picture)
    return picture.getvalue()


def draw_plot(pictures: PictureStore, name: str, draw: Draw) -> bytes:
    """The PNG of a plot. name: under which the home keeps it."""
    shown = [draw.func.__name__, draw.args, draw.keywords]
    return pictures.draw(name, shown, lambda: draw_png(draw))
