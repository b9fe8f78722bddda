"""Files that are whole or absent: write beside, fsync, rename. Locks between processes, pointers to
what is current, and append-only histories are made of them."""

import fcntl
import glob
import json
import os
import time
import tomllib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from hashlib import file_digest
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from warehouse.errors import describe_unreadable

_YOUNG_S = 3600.0


def read_data(module: str, name: str) -> Any:
    """What the TOML file `name` beside a module's file holds; read once."""
    return _read_toml(Path(module).with_name(name))


@cache
def _read_toml(path: Path) -> Any:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def write_atomically(path: Path, data: bytes, mode: int = 0o666, *, durable: bool = True) -> None:
    """Writes `data` to `path` so that a reader, a kill or a power cut never sees half of it. mode:
    of the file, less the umask. Not durable: it does not wait for the disk, and a power cut may
    leave the file empty.

    Raises OSError naming the path (disk full, read-only file system), with nothing left behind.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        with _open_for_writing(beside, mode) as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        beside.replace(path)
        if not durable:
            return
        # Makes a rename outlast a power cut: the name is the folder's content, not the file's.
        handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    finally:
        beside.unlink(missing_ok=True)


def write_changed(path: Path, data: bytes) -> bool:
    """`write_atomically` if the content differs (a write waits for the disk); whether it wrote."""
    with suppress(OSError):
        if path.read_bytes() == data:
            return False
    write_atomically(path, data)
    return True


def remove_unfinished(path: Path) -> None:
    """Removes leftovers of killed `write_atomically`s; the caller keeps writers out."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*"):
        left.unlink(missing_ok=True)


def _open_for_writing(path: Path, mode: int) -> BinaryIO:
    """`path` open for writing; its folder is made only when missing (a tenth of the cost)."""
    opener = partial(os.open, mode=mode)
    try:
        return open(path, "wb", opener=opener)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "wb", opener=opener)


def append_line(path: Path, line: str) -> None:
    """Appends one line, whole or not at all, even after a torn one; appenders and `rewrite_lines`
    wait for each other. Raises OSError with the file as it was."""
    handle = _open_locked(path)
    try:
        size = os.fstat(handle).st_size
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        try:
            # `os.write` until all is written: a disk that fills up takes a part. Raises OSError.
            view = memoryview(("\n" * torn + line.rstrip("\n") + "\n").encode())
            while view:
                view = view[os.write(handle, view) :]
            os.fsync(handle)
        except OSError:
            os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)


def rewrite_lines(path: Path, keep: Callable[[str], bool]) -> int:
    """Keeps only lines that `keep` is true of, removing an empty file, and loses none appended
    meanwhile. Returns how many went. Raises OSError, the file as it was."""
    handle = _open_locked(path)
    try:
        remove_unfinished(path)
        lines = [item for item in path.read_bytes().split(b"\n") if item]
        remaining = [line for line in lines if keep(line.decode("utf-8", "replace"))]
        gone = len(lines) - len(remaining)
        if not remaining:
            path.unlink()
        elif gone:
            mode = os.fstat(handle).st_mode & 0o777
            write_atomically(path, b"".join(item + b"\n" for item in remaining), mode)
    finally:
        os.close(handle)
    return gone


def _open_locked(path: Path) -> int:
    """The file at a path, locked; reopened if another one took its name meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            mine = os.fstat(handle)
            with suppress(FileNotFoundError):
                if os.path.samestat(mine, os.stat(path)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def keep_file_young(path: Path) -> None:
    """Makes a reused file as young as one written now, unless it is of the last hour."""
    if abs(time.time() - path.stat().st_mtime) > _YOUNG_S:
        os.utime(path)


@contextmanager
def hold_lock(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Holds a lock on `path` across processes, alone or shared, until the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def find_file_flaw(folder: Path, files: Mapping[str, str]) -> str | None:
    """The first of `files` {name: SHA-256} that is missing or another one; None where all hold."""
    for name, digest in files.items():
        path = folder / name
        try:
            actual = hash_file(path)
        except OSError as error:
            return f"{path} cannot be read ({error})"
        if actual != digest:
            return f"{path} has SHA-256 {actual[:12]}, expected {digest[:12]}"
    return None


def read_recipe_file(path: Path, weights: str) -> dict[str, Any]:
    """The recipe beside a model that the package ships: JSON whose `files` {name: SHA-256} name its
    weights. Raises ValueError, which names the file, for what is none."""
    try:
        body = json.loads(path.read_bytes())
        if body["files"][weights]:
            return body
        raise ValueError(f"no {weights}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({error})") from error


def hash_file(path: Path) -> str:
    """The SHA-256 of a file in hex. Raises OSError."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


Json = dict[str, Any]


class PointerBroken(ValueError):
    """A pointer that cannot be read; the message names the file and the fix."""


def read_pointer(path: Path, fix: str) -> Json | None:
    """The JSON object in the file; None where there is none. Raises PointerBroken, with `fix`."""
    try:
        body = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        reason = describe_unreadable(error)
        raise PointerBroken(f"{path}: cannot be read ({reason}), expected JSON; {fix}") from error
    if not isinstance(body, dict):
        kind = type(body).__name__
        raise PointerBroken(f"{path}: holds a {kind}, expected a JSON object; {fix}")
    return body


def write_pointer(path: Path, body: Mapping[str, Any]) -> None:
    """Moves a pointer; the same content again is no write. Raises OSError naming the file."""
    data = json.dumps(body, indent=1, ensure_ascii=False).encode()
    if not path.exists() or path.read_bytes() != data:
        write_atomically(path, data)


def read_history(path: Path) -> list[Json]:
    """The lines of a history, oldest first; what is no JSON object is passed over."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    entries = []
    for line in text.split("\n"):  # splitlines would also part a string at U+2028
        try:
            body = json.loads(line)
        except ValueError:
            continue
        if isinstance(body, dict):
            entries.append(body)
    return entries


def add_history(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Adds new lines, writing the file whole: half a line would take the next one with it."""
    entries = read_history(path)
    new = [line for line in lines if line not in entries]
    if new:
        body = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in [*entries, *new])
        write_atomically(path, body.encode())


Decided = TypeVar("Decided")  # a dataclass of texts


@dataclass(frozen=True)
class DecisionFile(Generic[Decided]):
    """One such file under a home. find_problem: what is wrong with a decision whose texts are all
    there, "" for nothing. error: what is raised. fix: what to do about a line that is none."""

    place: Path
    kind: Callable[..., Decided]
    find_problem: Callable[[Decided], str]
    error: type[ValueError]
    fix: str

    def record(self, home: Path, decision: Decided) -> None:
        """Appends one decision. Raises `error` on a bad one."""
        if problem := self._find_flaw(decision):
            raise self.error(f"no decision: {problem}")
        path = home / self.place
        with hold_lock(path.with_suffix(".lock")):
            append_line(path, json.dumps(_read_texts(decision), ensure_ascii=True, sort_keys=True))

    def read(self, home: Path) -> list[Decided]:
        """All decisions, oldest first; [] before the first. Raises `error` on a line that is none:
        a record that was tampered with decides nothing."""
        path = home / self.place
        if not path.exists():
            return []
        lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        return [self._parse(line, f"{path}:{number}") for number, line in lines if line.strip()]

    def _parse(self, line: str, where: str) -> Decided:
        try:
            decision = self.kind(**json.loads(line))
        except (TypeError, ValueError) as error:
            raise self.error(f"{where}: not a decision ({error}); {self.fix}") from error
        if problem := self._find_flaw(decision):
            raise self.error(f"{where}: {problem}")
        return decision

    def _find_flaw(self, decision: Decided) -> str:
        for name, value in _read_texts(decision).items():
            if not isinstance(value, str) or not value.strip():
                return f"{name} is empty, expected a text"
        return self.find_problem(decision)


def _read_texts(decision: Any) -> dict[str, Any]:
    return asdict(decision)
