"""The threat model (docs/security.md) rests on tests that exist."""

import ast
import re

from tests.support.paths import ROOT

_NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def test_each_claim_of_the_threat_model_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = _NAMED.findall(page)
    assert len(named) > 50
    missing = []
    for path in {path for path, _ in named}:
        file = ROOT / "tests" / path
        tree = ast.parse(file.read_text(encoding="utf-8") if file.exists() else "")
        held = {getattr(node, "name", "") for node in ast.walk(tree)}
        missing += [f"{path}::{name}" for at, name in named if at == path and name not in held]
    assert not missing, "docs/security.md: no such tests: " + ", ".join(sorted(missing))


def test_each_part_of_the_threat_model_says_what_is_not_held() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    parts = page.split("\n## ")[2:]
    assert len(parts) > 7
    assert [part.splitlines()[0] for part in parts if "**Not held**" not in part] == []
