"""What people decided, one JSON object a line: only ever added to, and so undone by another."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from warehouse.storage.files import append_line, hold_lock

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
        """All decisions, oldest first; [] before the first.

        Raises `error` on a line that is none: a record that was tampered with decides nothing.
        """
        path = home / self.place
        if not path.exists():
            return []
        lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        return [self._parse(line, f"{path}:{number}") for number, line in lines if line.strip()]

    def _parse(self, line: str, where: str) -> Decided:
        try:
            found = self.kind(**json.loads(line))
        except (TypeError, ValueError) as error:
            raise self.error(f"{where}: not a decision ({error}); {self.fix}") from error
        if problem := self._find_flaw(found):
            raise self.error(f"{where}: {problem}")
        return found

    def _find_flaw(self, decision: Decided) -> str:
        for name, value in _read_texts(decision).items():
            if not isinstance(value, str) or not value.strip():
                return f"{name} is empty, expected a text"
        return self.find_problem(decision)


def _read_texts(decision: Any) -> dict[str, Any]:
    return asdict(decision)
