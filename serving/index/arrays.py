"""The arrays of an index that may be from elsewhere: no larger than their file, no place outside.

What a header says is not believed: 128 bytes can ask for terabytes.
"""

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_ROWS = 8_192  # rows looked at together: a view that is mapped stays out of memory
_LONGEST = 1.02  # of a unit row's square, after rounding


def read_array(path: Path) -> np.ndarray:
    """The array of a .npy file, read only. Raises ValueError where its header asks for more than
    the file holds, OSError."""
    return _parse_array(path.read_bytes(), path.name)


def read_arrays(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """These arrays of a .npz file, in their order, read only. Raises ValueError, KeyError, OSError,
    BadZipFile."""
    most, found = path.stat().st_size, []
    with zipfile.ZipFile(path) as held:
        for name in names:
            about = held.getinfo(f"{name}.npy")
            if about.compress_type != zipfile.ZIP_STORED or about.file_size > most:
                raise ValueError(
                    f"{path.name}: {name} is compressed, expected it as np.savez writes"
                )
            found.append(_parse_array(held.read(about), f"{path.name}: {name}"))
    return found


def _parse_array(data: bytes, name: str) -> np.ndarray:
    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{name}: no array of format 1.0")
    shape, by_column, kind = np.lib.format.read_array_header_1_0(file)
    if by_column or kind.hasobject:
        raise ValueError(f"{name}: {kind} by column or of objects, expected numbers by row")
    return np.frombuffer(data, kind, offset=file.tell()).reshape(shape)


def check_places(places: np.ndarray, rows: int, most: int, name: str) -> np.ndarray:
    """`places` [rows] where each is one of `most`. Raises ValueError."""
    if places.shape != (rows,) or places.dtype.kind != "i":
        raise ValueError(f"{name}: {places.dtype} {places.shape}, expected integers ({rows},)")
    if rows and not 0 <= int(places.min()) <= int(places.max()) < most:
        raise ValueError(f"{name}: {places.min()} to {places.max()}, expected 0 to {most - 1}")
    return places


def check_starts(starts: np.ndarray, rows: int, end: int, name: str) -> np.ndarray:
    """`starts` [rows + 1] where they rise from 0 to `end`. Raises ValueError."""
    check_places(starts, rows + 1, end + 1, name)
    if starts[0] != 0 or starts[-1] != end or (np.diff(starts) < 1).any():
        raise ValueError(f"{name}: does not rise from 0 to {end}")
    return starts


def check_vectors(vectors: np.ndarray, rows: int, name: str) -> np.ndarray:
    """`vectors` [rows, dim] of float32, none longer than 1. Raises ValueError."""
    if vectors.ndim != 2 or len(vectors) != rows or vectors.dtype != np.float32:
        raise ValueError(f"{name}: {vectors.dtype} {vectors.shape}, expected float32 ({rows}, dim)")
    for start in range(0, rows, _ROWS):
        squares = np.square(vectors[start : start + _ROWS]).sum(1)
        wrong = np.flatnonzero(~(squares <= _LONGEST))  # not a number is not less either
        if len(wrong):
            found = float(squares[wrong[0]]) ** 0.5
            raise ValueError(f"{name}: row {start + wrong[0]} has norm {found}, expected 1")
    return vectors


def check_finite(values: np.ndarray, name: str) -> np.ndarray:
    """Numbers all. Raises ValueError."""
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        raise ValueError(f"{name}: holds what is no finite number")
    return values


def check_texts(row: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raises ValueError for a field of these that is no text."""
    for name in names:
        if not isinstance(row[name], str):
            raise ValueError(f"{name} is {row[name]!r:.60}, expected a text")
