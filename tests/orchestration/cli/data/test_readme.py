"""The command `readme-tools`: one line on stdout, and what it means by its exit code."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestration.cli.app import app

RUNNER = CliRunner()


def test_a_readme_is_a_line_of_a_servers_file_read_by_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path / "home"))
    readme = tmp_path / "README.md"
    readme.write_text("# Clock\n## Tools\n- `get_time`: tells the time\n")
    done = RUNNER.invoke(app, ["readme-tools", str(readme), "--server", "npm:clock"])
    assert done.exit_code == 0, done.output
    line = json.loads(done.stdout)
    assert (line["qualified_name"], line["provider"]) == ("npm:clock", "offline")
    assert [tool["name"] for tool in line["tools"]] == ["get_time"]
    assert not (tmp_path / "home").exists()  # rules pay nobody
    readme.write_text("# Clock\n")
    assert RUNNER.invoke(app, ["readme-tools", str(readme), "--server", "x"]).exit_code == 1
    assert RUNNER.invoke(app, ["readme-tools", str(readme), "--server", " "]).exit_code == 2
