"""Each command does with a home in a bucket what its name says, and no command is forgotten."""

from pathlib import Path

import pytest
from typer.main import get_command

from extensions.scale.bucket_home_opening.commands import (
    ASIDE,
    STAYS,
    WRITES,
    choose_command,
    is_set,
    open_home_for,
)
from orchestration.cli.app import app


def list_commands() -> set[str]:
    found = set()
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        parts = getattr(command, "commands", {})
        found |= {name, *(f"{name} {part}" for part in parts)}
    return found


def test_every_command_that_is_named_is_one() -> None:
    assert (WRITES - {"gc --yes"}) | ASIDE | STAYS <= list_commands()
    assert not WRITES & (ASIDE | STAYS)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["run", "-m", "glama"], "run"),
        (["champion", "approve", "x"], "champion approve"),
        (["champion", "list"], "champion"),
        (["gc"], "gc"),
        (["gc", "--json", "--yes"], "gc --yes"),
        ([], ""),
    ],
)
def test_a_command_is_known_by_its_words(words: list[str], command: str) -> None:
    assert choose_command(words) == command


def test_without_the_setting_nothing_is_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toolmill.toml").write_text('home = "var"')
    assert not is_set()
    with open_home_for(["run"], pytest.fail):
        assert not (tmp_path / "var").exists()
    (tmp_path / "toolmill.toml").write_text('[storage]\nbucket = "s3://a/b"')
    assert is_set()
    (tmp_path / "toolmill.toml").unlink()
    monkeypatch.setenv("TOOLMILL_STORAGE__BUCKET", "s3://a/b")
    assert is_set()
    with open_home_for(["run", "--help"], pytest.fail), open_home_for(["match"], pytest.fail):
        pass
