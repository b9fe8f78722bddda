"""Notes: short texts with tags, kept in one JSON file."""

import json
import os
import time
from pathlib import Path

from stdio import VERSION, serve, tool

FILE = Path(os.environ.get("NOTES_FILE") or Path.home() / "notes.json")
TITLE = {"type": "string", "minLength": 1, "maxLength": 120, "description": "Title of the note"}
NOTE_ID = {"type": "integer", "minimum": 1, "description": "Number of the note"}
TAGS = {"type": "array", "items": {"type": "string"}, "description": "Labels, e.g. ['work']"}


def load():
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []


def save(notes):
    FILE.write_text(json.dumps(notes, ensure_ascii=False), encoding="utf-8")


def find(notes, note_id):
    for note in notes:
        if note["id"] == note_id:
            return note
    raise LookupError(f"there is no note {note_id}")


if VERSION < (2, 0, 0):

    @tool(
        "Write a new note with a title and a text, optionally labelled with tags.",
        required=["title", "text"],
        read_only=False,
        title=TITLE,
        text={"type": "string", "description": "What the note says"},
        tags=TAGS,
    )
    def create_note(title, text, tags=()):
        return add(title, text, tags, None)

else:

    @tool(
        "Write a new note with a title and a text, optionally labelled with tags and with a"
        " reminder on a date.",
        required=["title", "body"],
        read_only=False,
        title=TITLE,
        body={"type": "string", "description": "What the note says, in Markdown"},
        tags=TAGS,
        remind_on={"type": "string", "format": "date", "description": "Date of the reminder"},
    )
    def create_note(title, body, tags=(), remind_on=None):
        return add(title, body, tags, remind_on)

    @tool(
        "List the notes whose reminder falls on or before a date.",
        required=["until"],
        until={"type": "string", "format": "date", "description": "Last day to look at"},
    )
    def list_reminders(until):
        return [note for note in load() if note.get("remind_on") and note["remind_on"] <= until]


def add(title, text, tags, remind_on):
    notes = load()
    number = max((note["id"] for note in notes), default=0) + 1
    note = {"id": number, "title": title, "text": text, "tags": list(tags), "at": time.time()}
    notes.append(note | ({"remind_on": remind_on} if remind_on else {}))
    save(notes)
    return {"id": number}


@tool("Read one note in full by its number.", required=["note_id"], note_id=NOTE_ID)
def read_note(note_id):
    return find(load(), note_id)


@tool(
    "Find notes whose title or text contains a phrase, newest first.",
    required=["phrase"],
    phrase={"type": "string", "minLength": 1, "description": "Words to look for, any case"},
    tag={"type": "string", "description": "Only notes that carry this tag"},
    limit={"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
)
def search_notes(phrase, tag=None, limit=10):
    wanted = phrase.lower()
    found = [
        note
        for note in reversed(load())
        if wanted in f"{note['title']} {note['text']}".lower() and (not tag or tag in note["tags"])
    ]
    return found[:limit]


@tool(
    "Append a paragraph to the end of an existing note.",
    required=["note_id", "paragraph"],
    read_only=False,
    note_id=NOTE_ID,
    paragraph={"type": "string", "description": "The paragraph to add"},
)
def append_to_note(note_id, paragraph):
    notes = load()
    note = find(notes, note_id)
    note["text"] += "\n\n" + paragraph
    save(notes)
    return note


@tool("Delete a note for good.", required=["note_id"], read_only=False, note_id=NOTE_ID)
def delete_note(note_id):
    notes = load()
    notes.remove(find(notes, note_id))
    save(notes)
    return {"deleted": note_id}


serve()
