"""The files of `toolmill repair`: a call, tools, a conversation, a history."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assets.contracts.history.moves import ContractHistory, read_history
from serving.index.folder import load_index, read_served_version
from serving.repair.ladder import repair_drafts
from serving.repair.report import RepairReport
from serving.repair.revision import Revise
from serving.repair.tools import Toolset, read_tool, read_toolset
from warehouse.errors import UnusableInput
from warehouse.user_files import parse_json, read_text

_MOST = 64 * 1024 * 1024  # bytes of a file
_TOOLS = (
    'a list of OpenAI, Anthropic or MCP tools, {"tools": [...]}, a tools/list answer, or one tool'
)
_MESSAGES = 'a list of {"role", "content"}, or {"messages": [...]}'


def repair_files(
    call: Path,
    tools: Path,
    conversation: Path | None = None,
    history: Path | None = None,
    revise: Revise | None = None,
) -> list[RepairReport]:
    """A report of each call that the file holds. Raises UnusableInput."""
    return repair_drafts(
        read_draft_file(call),
        read_tool_file(tools),
        conversation=read_conversation_file(conversation) if conversation else (),
        history=read_history_place(history) if history else None,
        revise=revise,
    )


def read_draft_file(path: Path) -> Any:
    """A call as JSON in any vendor's shape, or the text that a model wrote."""
    text = read_text(path, _MOST)
    if not text.strip():
        raise UnusableInput(f"{path}: empty; give a call as JSON, or a model's text that holds one")
    try:
        return parse_json(text, path)
    except UnusableInput:
        return text


def read_tool_file(path: Path) -> Toolset:
    """The tools of a file, each with a name."""
    value = parse_json(read_text(path, _MOST), path)
    if isinstance(value, dict) and isinstance(value.get("result"), dict):
        value = value["result"]
    if isinstance(value, dict) and isinstance(value.get("tools"), list):
        value = value["tools"]
    listed = [value] if isinstance(value, dict) else value
    if not isinstance(listed, list) or not listed:
        raise UnusableInput(f"{path}: no tool in it; expected {_TOOLS}")
    for at, tool in enumerate(listed):
        if read_tool(tool) is None:
            found = "an object without a name" if isinstance(tool, dict) else type(tool).__name__
            raise UnusableInput(f"{path}, entry {at}: {found}, no tool; expected {_TOOLS}")
    return read_toolset(listed)


def read_conversation_file(path: Path) -> list[Mapping[str, Any]]:
    """Messages of a request, in any vendor's shape."""
    value = parse_json(read_text(path, _MOST), path)
    if isinstance(value, dict):
        value = value.get("messages", value.get("input"))
    if not isinstance(value, list):
        raise UnusableInput(f"{path}: no messages in it; expected {_MESSAGES}")
    for at, message in enumerate(value):
        if not isinstance(message, dict):
            found = type(message).__name__
            raise UnusableInput(f"{path}, message {at}: {found}; expected {_MESSAGES}")
    return value


def read_history_place(place: Path) -> ContractHistory:
    """The history of a file, or of the index that a folder serves: an exported release, a home."""
    if not place.is_dir():
        return read_history(place)
    return load_index(place, read_served_version(place)).history
