"""A picture is drawn again when what it shows or the code that draws it changed, and not else."""

import base64
import io
from pathlib import Path

import pytest
from PIL import Image

from warehouse import pictures
from warehouse.pictures import PictureStore
from warehouse.sanitize.markdown import embed_image


class Drawing:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> bytes:
        self.times += 1
        data = io.BytesIO()
        Image.new("RGB", (8, 8), (self.times * 40, 0, 0)).save(data, "PNG")
        return data.getvalue()


def list_kept(home: Path) -> list[Path]:
    return sorted((home / "cache" / "pictures").rglob("*.png"))


def test_the_same_figures_are_drawn_once_and_one_picture_of_a_name_is_kept(tmp_path: Path) -> None:
    draw = Drawing()
    first = PictureStore(tmp_path, "training/reporting").draw("drift", {"b": 1, "a": [2.5]}, draw)
    again = PictureStore(tmp_path, "training/reporting").draw("drift", {"a": [2.5], "b": 1}, draw)
    assert (draw.times, again) == (1, first)
    other = PictureStore(tmp_path, "training/reporting").draw("drift", {"b": 2, "a": [2.5]}, draw)
    assert draw.times == 2
    assert other != first
    assert len(list_kept(tmp_path)) == 1
    PictureStore(tmp_path, "training/reporting").draw("loss", {"b": 2, "a": [2.5]}, draw)
    assert draw.times == 3
    assert len(list_kept(tmp_path)) == 2


def test_other_code_draws_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Drawing()
    PictureStore(tmp_path, "training/reporting").draw("drift", 1, draw)
    PictureStore(tmp_path, "training/drift").draw("drift", 1, draw)
    assert draw.times == 2
    monkeypatch.setattr(pictures, "_digest_code", lambda *_: "as it was edited")
    PictureStore(tmp_path, "training/drift").draw("drift", 1, draw)
    assert draw.times == 3


def test_a_torn_or_foreign_file_is_drawn_over(tmp_path: Path) -> None:
    draw = Drawing()
    picture_store = PictureStore(tmp_path)
    picture_store.draw("drift", 1, draw)
    [path] = list_kept(tmp_path)
    whole = path.read_bytes()
    for times, damaged in enumerate((whole[:-3], b"", b"\x89PNG no line", whole + b"x"), 2):
        path.write_bytes(damaged)
        picture_store.draw("drift", 1, draw)
        assert draw.times == times
    picture_store.draw("drift", 1, draw)
    assert draw.times == 5


def test_a_folder_that_cannot_be_written_costs_the_drawing_alone(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    draw = Drawing()
    for _ in range(2):
        assert PictureStore(tmp_path).draw("drift", 1, draw).startswith(b"\x89PNG")
    assert draw.times == 2


def test_what_is_kept_has_few_colours_and_is_embedded_as_it_is(tmp_path: Path) -> None:
    png = PictureStore(tmp_path).draw("drift", 1, Drawing())
    assert Image.open(io.BytesIO(png)).mode in ("P", "RGB")
    assert base64.b64encode(png).decode() in embed_image("drift", png)
