"""Plausible values for a tool's parameters, drawn from the contract first and from pools second.

What belongs here: one value for one slot, valid by its schema wherever the schema can be met.
What does not: saying the value in a sentence (`phrasing.py`), checking it (`verify.py`).

Order of trust: `const` and `enum`; examples in the schema or quoted in the description; the
default; the `format`; then a pool chosen by the words of the name and the description.
"""

import datetime as dt
import random
import re
from collections.abc import Iterable, Mapping
from typing import Any

from assets.synthesis.lexicon import pool, words_in
from assets.synthesis.reading import Slot, fields, json_type, resolve
from assets.synthesis.reading import slots as slots_of

Json = Any
# Where the calendar of invented dates starts; a fixed day keeps every run reproducible.
_EPOCH = dt.date(2025, 3, 3)

# Words of a parameter's name -> the sort of value. Two-word marks are tried before one-word marks.
_MARKS: dict[str, str] = {
    "start date": "date", "end date": "date", "due date": "date", "date from": "date",
    "date to": "date", "from date": "date", "to date": "date", "birth date": "date",
    "start time": "datetime", "end time": "datetime", "created at": "datetime",
    "time zone": "timezone", "country code": "country_code", "language code": "language_code",
    "language id": "programming", "zip code": "zip", "postal code": "zip", "phone number": "phone",
    "first name": "first", "last name": "last", "full name": "person", "user name": "username",
    "display name": "person", "file name": "filename", "sheet name": "sheet",
    "table name": "table", "column name": "column", "database name": "database",
    "db name": "database", "branch name": "branch", "repo name": "repo", "tag name": "tag",
    "city name": "city", "company name": "company", "project name": "project",
    "account id": "account", "image path": "image_path", "video path": "video_path",
    "image url": "image_url", "repo path": "repo_path", "file path": "path",
    "directory path": "folder_path", "output path": "path", "cell range": "range",
    "data range": "range", "source range": "range", "start cell": "cell", "end cell": "cell",
    "target cell": "cell", "issue key": "issue_key", "project key": "project_key",
    "space key": "project_key", "epic key": "issue_key", "jql": "jql", "cql": "cql",
    "issue number": "small_number", "pull number": "small_number", "entity type": "entity_type",
    "relation type": "relation", "search term": "topic", "search query": "topic",
    "paper id": "arxiv_id", "connection string": "connection_string", "package name": "package",
    "or key": "issue_key", "key or id": "issue_key",
    "connection id": "connection_id", "session id": "session", "user agent": "user_agent",
    "team name": "team", "song name": "song", "artist name": "artist", "movie title": "movie",
    "book title": "book", "old text": "sentence", "new text": "sentence", "api key": "secret",
    "tracking number": "order_id", "icon": "emoji", "emoji": "emoji",
    "timezone": "timezone", "tz": "timezone", "city": "city", "location": "city", "place": "city",
    "destination": "city", "origin": "city", "country": "country", "region": "country",
    "language": "language", "lang": "language_code", "locale": "language_code",
    "currency": "currency", "ticker": "symbol", "symbol": "symbol", "symbols": "symbol",
    "stock": "symbol", "coin": "coin", "crypto": "coin", "pair": "pair", "email": "email",
    "recipient": "email", "cc": "email", "bcc": "email", "phone": "phone", "url": "url",
    "uri": "url", "link": "url", "website": "url", "domain": "domain", "hostname": "domain",
    "host": "domain", "ip": "ip", "path": "path", "filepath": "path", "filename": "filename",
    "file": "path", "files": "path", "paths": "path", "directory": "folder_path",
    "folder": "folder_path", "dir": "folder_path", "cwd": "folder_path", "source": "path",
    "date": "date", "day": "date", "since": "date", "until": "date", "deadline": "date",
    "datetime": "datetime", "timestamp": "datetime", "time": "time", "username": "username",
    "user": "username", "assignee": "username", "author": "person", "handle": "username",
    "owner": "owner", "org": "owner", "organization": "owner", "repo": "repo",
    "repository": "repo", "branch": "branch", "ref": "branch", "revision": "sha", "sha": "sha",
    "commit": "sha", "sql": "sql", "pipeline": "stage", "formula": "formula", "cell": "cell",
    "range": "range", "worksheet": "sheet", "sheet": "sheet", "table": "table",
    "column": "column", "field": "column", "fields": "column", "columns": "column",
    "database": "database", "db": "database", "collection": "table", "index": "table",
    "query": "topic", "keyword": "topic", "keywords": "topic", "topic": "topic", "q": "topic",
    "subject": "title", "title": "title", "heading": "title", "headline": "title",
    "summary": "title", "content": "sentence", "body": "sentence", "message": "sentence",
    "text": "sentence", "comment": "sentence", "description": "sentence", "note": "sentence",
    "notes": "sentence", "markdown": "sentence", "caption": "sentence", "contents": "sentence",
    "thought": "thought", "question": "question", "prompt": "prompt", "code": "code",
    "script": "code", "expression": "code", "function": "js_function", "command": "command",
    "cmd": "command", "pattern": "regex", "glob": "regex", "regex": "regex", "color": "color",
    "colour": "color", "selector": "selector", "element": "element", "target": "element",
    "tag": "tag", "tags": "tag", "label": "tag", "labels": "tag", "category": "tag",
    "status": "status", "state": "status", "word": "word", "term": "word", "key": "slug_key",
    "name": "project", "project": "project", "company": "company", "customer": "company",
    "brand": "company", "team": "team", "role": "role", "version": "version",
    "package": "package", "packages": "package", "dependency": "package",
    "environment": "environment", "env": "environment", "reason": "reason", "unit": "unit",
    "units": "unit", "model": "model", "address": "address", "movie": "movie", "film": "movie",
    "book": "book", "song": "song", "track": "song", "artist": "artist", "recipe": "food",
    "dish": "food", "ingredient": "ingredient", "sport": "sport", "product": "thing",
    "item": "thing", "airport": "airport", "person": "person", "entity": "person",
    "names": "person", "jid": "phone", "cursor": "token", "token": "token", "data": "sentence",
    "value": "word", "values": "word", "worklog": "sentence", "observations": "sentence",
    "from": "person", "to": "person", "type": "tag", "issue": "issue_key", "issues": "issue_key",
}  # fmt: skip

_EXTENSIONS = {
    "excel": "xlsx", "workbook": "xlsx", "sheet": "xlsx", "pdf": "pdf", "word doc": "docx",
    "image": "png", "screenshot": "png", "video": "mp4", "audio": "mp3", "csv": "csv",
    "markdown": "md", "python": "py",
}  # fmt: skip
_QUOTED = re.compile(r"""["'`“‘]([^"'`“”‘’\n]{1,80})["'`”’]""")
_EXAMPLE = re.compile(
    r"(?:e\.g\.?,?|for example:?|examples?:?|such as)\s*(.{2,160}?)(?:\)|\.\s|\.$|;|$)",
    re.IGNORECASE,
)


def draw(slot: Slot, root: Mapping[str, Json], rng: random.Random, depth: int = 0) -> Json:
    """A value for one slot. `root` is the input schema (for `$ref`)."""
    schema = slot.schema
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        options = [option for option in schema["enum"] if option not in (None, "")]
        return rng.choice(options or schema["enum"])
    samples = [v for v in _samples(slot) if _fits(v, schema)]
    if samples and slot.type != "boolean" and rng.random() < 0.55:
        return rng.choice(samples)
    match slot.type:
        case "boolean":
            # Said at all, an option is said because it differs from what happens anyway.
            default = schema.get("default")
            return (not default) if isinstance(default, bool) else rng.random() < 0.7
        case "integer" | "number":
            return _number(slot, rng)
        case "array":
            return _array(slot, root, rng, depth)
        case "object":
            return _object(slot, root, rng, depth)
        case "null":
            return None
    return _string(slot, rng, samples)


def draw_new(
    slot: Slot,
    root: Mapping[str, Json],
    rng: random.Random,
    taken: Iterable[Json],
    depth: int = 0,
) -> Json:
    """A value unlike the ones already drawn beside it, where the schema leaves a choice."""
    value = draw(slot, root, rng, depth)
    for _ in range(4):
        if not isinstance(value, str) or value not in taken:
            break
        value = draw(slot, root, rng, depth)
    return value


def _samples(slot: Slot) -> list[Json]:
    """Values that the contract itself offers."""
    schema = slot.schema
    found: list[Json] = list(schema.get("examples") or []) if _is_list(schema, "examples") else []
    if "example" in schema:
        found.append(schema["example"])
    for match in _EXAMPLE.finditer(slot.hint):
        span = match.group(1)
        quoted = _QUOTED.findall(span)
        bare = [] if quoted else re.split(r",\s*(?:or\s+|and\s+)?|\s+or\s+", span)
        found += [_typed(v.strip(" `'\""), slot.type) for v in [*quoted, *bare]]
    default = schema.get("default")
    if default not in (None, "", [], {}) and slot.type in ("string", "integer", "number"):
        found.append(default)
    return [value for value in found if value not in (None, "") and _sayable(value)]


def _is_list(schema: Mapping[str, Json], name: str) -> bool:
    return isinstance(schema.get(name), list)


_PLACEHOLDER = re.compile(r"[<>{}\[\]\\()|]|: |\.\.\.|xxx|your[_ -]")


def _sayable(value: Json) -> bool:
    if isinstance(value, str):
        return (
            0 < len(value) <= 80
            and value[0].isalnum() | (value[0] in "/#@.$=*-")
            and not re.search(r"[<>{}\[\]\\]|\.\.\.|xxx|your[_ -]", value)
        )
    return True


def _typed(text: str, kind: str) -> Json:
    if kind in ("integer", "number"):
        try:
            return int(text) if kind == "integer" or text.isdigit() else float(text)
        except ValueError:
            return None
    # An unquoted word list in a description is prose more often than values.
    return text if kind == "string" and len(text.split()) <= 6 else None


def _fits(value: Json, schema: Mapping[str, Json]) -> bool:
    import jsonschema

    try:
        jsonschema.Draft202012Validator({k: v for k, v in schema.items() if k != "$ref"}).validate(
            value
        )
    except Exception:  # an invalid schema or value: either way this value is not usable
        return False
    return True


def _number(slot: Slot, rng: random.Random) -> int | float:
    schema, words = slot.schema, set(slot.words)
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and isinstance(schema.get("exclusiveMinimum"), (int, float)):
        low = schema["exclusiveMinimum"] + 1
    if words & {"latitude", "lat"}:
        return round(rng.uniform(-45, 60), 4)
    if words & {"longitude", "lng", "lon"}:
        return round(rng.uniform(-120, 150), 4)
    if words & {"limit", "max", "count", "size", "num", "top", "first", "head", "tail", "results"}:
        usual = [3, 5, 8, 10, 15, 20, 25, 30, 50, 100]
    elif words & {"page", "level", "depth", "step", "rank", "priority", "position", "day"}:
        usual = [1, 2, 3, 4, 5]
    elif words & {"year"}:
        usual = list(range(2018, 2026))
    elif words & {"width", "height", "pixels"}:
        usual = [640, 720, 800, 1080, 1200, 1280, 1440, 1920]
    elif words & {"seconds", "duration", "timeout", "minutes", "ms", "delay", "time"}:
        usual = [5, 10, 15, 30, 45, 60, 90, 120]
    elif words & {"id", "number", "issue", "pr"}:
        usual = [rng.randint(11, 9999) for _ in range(5)]
    elif words & {"amount", "price", "total", "cost", "budget"}:
        usual = [12.5, 49.9, 75, 120, 250, 499, 1200]
    elif words & {"offset", "start", "skip", "index", "row", "col", "line"}:
        usual = [1, 2, 4, 5, 10, 20, 25]
    else:
        usual = [2, 3, 4, 6, 7, 12, 18, 24, 36, 42, 64, 75, 96, 110, 250]
    low = low if isinstance(low, (int, float)) else min(min(usual), high or 0)
    high = high if isinstance(high, (int, float)) else max(max(usual), low)
    fitting = [n for n in usual if low <= n <= high and n != schema.get("default")]
    value = rng.choice(fitting) if fitting else _between(low, high, rng, slot.type)
    step = schema.get("multipleOf")
    if isinstance(step, (int, float)) and step:
        value = round(value / step) * step
    return int(value) if slot.type == "integer" else value


def _between(low: float, high: float, rng: random.Random, kind: str) -> int | float:
    high = min(high, low + 1000)
    if kind == "integer" or high - low >= 4:
        return rng.randint(int(-(-low // 1)), int(max(high, -(-low // 1))))
    return round(rng.uniform(low, high), 2)


def _array(slot: Slot, root: Mapping[str, Json], rng: random.Random, depth: int) -> list[Json]:
    schema = slot.schema
    items = resolve(schema.get("items") or {}, root)
    low, high = _bounds(schema)
    wanted = 1 if json_type(items) == "object" else rng.randint(1, 3)
    wanted = min(max(low, wanted), max(high, low))
    singular = tuple(_singular(word) for word in slot.words)
    member = Slot(slot.name, items, True, singular, slot.hint)
    found: list[Json] = []
    for _ in range(wanted * 6):
        value = draw(member, root, rng, depth + 1)
        if value not in found or not schema.get("uniqueItems", True):
            found.append(value)
        if len(found) == wanted:
            break
    return found


def _bounds(schema: Mapping[str, Json]) -> tuple[int, int]:
    low, high = schema.get("minItems"), schema.get("maxItems")
    low = low if isinstance(low, int) else 1
    return low, high if isinstance(high, int) else low + 2


def _singular(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _object(
    slot: Slot, root: Mapping[str, Json], rng: random.Random, depth: int
) -> dict[str, Json]:
    if depth > 4:
        return {}
    members = fields(slot.schema, root)
    chosen = [m for m in members if m.required or (depth < 2 and rng.random() < 0.25)]
    if not chosen and members:
        chosen = [rng.choice(members)]
    found: dict[str, Json] = {}
    for member in chosen:
        found[member.name] = draw_new(member, root, rng, found.values(), depth + 1)
    extra = slot.schema.get("additionalProperties", True)
    if not members and extra is not False:
        key = rng.choice(pool("column"))
        free = Slot("status", {"type": "string"}, True, ("status",), "")
        of_map = (
            Slot(key, resolve(extra, root), True, (key,), "") if extra not in (True, {}) else free
        )
        found = {key: draw(of_map, root, rng, depth + 1)}
    return found


def _string(slot: Slot, rng: random.Random, samples: list[Json]) -> str:
    schema = slot.schema
    by_format = {
        "date": "date", "date-time": "datetime", "time": "time", "email": "email", "uri": "url",
        "url": "url", "uuid": "uuid", "ipv4": "ip", "hostname": "domain", "iri": "url",
    }.get(str(schema.get("format")))  # fmt: skip
    sort = by_format or sort_of(slot)
    for attempt in range(12):
        value = invent(sort if attempt < 8 else "token", rng, slot)
        if _fits(value, schema):
            return value
    if samples:
        return str(rng.choice(samples))
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and (made := from_pattern(pattern, rng)) and _fits(made, schema):
        return made
    shortest, longest = schema.get("minLength") or 0, schema.get("maxLength") or 24
    size = max(shortest, min(longest, 24))
    return "".join(rng.choice("0123456789abcdef") for _ in range(size))


def sort_of(slot: Slot) -> str:
    """The pool or maker for a string parameter, by the words of its name, then its description."""
    words = list(slot.words)
    if words == ["target"] and " git " in f" {slot.about} ":
        return "branch"
    if words == ["name"] and _PEOPLE.search(slot.about):
        return "person"
    if words == ["path"] and _FOLDER.search(slot.about):
        return "folder_path"
    for size in (2, 1):
        for start in range(len(words) - size, -1, -1):
            mark = " ".join(words[start : start + size])
            if words[-1] in ("id", "ids", "uid", "uuid", "guid") and mark not in _MARKS:
                continue
            if mark in _MARKS and not (size == 1 and words[-1] in ("id", "ids", "uid", "uuid")):
                return _MARKS[mark]
    if words and words[-1] in ("id", "ids", "uid", "key", "slug", "ref"):
        return "id"
    hint = re.findall(r"[a-z]+", slot.hint.lower())
    return next((_MARKS[w] for w in hint[:12] if w in _MARKS and w not in _VAGUE), "project")


_FOLDER = re.compile(r"^(?!.*\bfiles?\b).*\b(?:director(?:y|ies)|folders?)\b")
_PEOPLE = re.compile(
    r"\b(?:person|people|player|nationality|gender|age|author|contact|character|member|customer)\b"
)
# Words that nearly every description holds; they say nothing about the value.
_VAGUE = set(
    words_in(
        "name to from user key value values type text field fields data item items file source to "
        "query search content target index tag status state time role q unit model words message"
    )
)


def invent(sort: str, rng: random.Random, slot: Slot | None = None) -> str:
    """One value of a sort: from its pool, or made."""

    def pick(name: str) -> str:
        return rng.choice(pool(name))

    def number(low: int, high: int) -> int:
        return rng.randint(low, high)

    day = _EPOCH + dt.timedelta(days=rng.randint(0, 420))
    extension = rng.choice(["csv", "md", "txt", "json", "pdf", "xlsx", "docx", "yaml"])
    about = f"{slot.about} {slot.hint}".lower() if slot else ""
    extension = next((to for mark, to in _EXTENSIONS.items() if mark in about), extension)
    home = f"/home/{pick('first').lower().replace('á', 'a')}/{pick('folder')}"
    hexes = "".join(rng.choice("0123456789abcdef") for _ in range(24))
    makers = {
        "date": day.isoformat,
        "datetime": lambda: f"{day}T{number(7, 19):02d}:{15 * number(0, 3):02d}:00Z",
        "time": lambda: f"{number(6, 22):02d}:{5 * number(0, 11):02d}",
        "email": lambda: f"{pick('first')}.{pick('last')}@{pick('domain')}".lower()
        .encode("ascii", "ignore").decode(),
        "url": lambda: f"https://{pick('domain')}/{pick('slug')}",
        "image_url": lambda: f"https://{pick('domain')}/img/{pick('stem')}.png",
        "path": lambda: f"{home}/{pick('stem')}.{extension}",
        "image_path": lambda: f"{home}/{pick('stem')}.png",
        "video_path": lambda: f"{home}/{pick('stem')}.mp4",
        "folder_path": lambda: f"{home}/{pick('project')}",
        "repo_path": lambda: f"{home}/{pick('repo')}",
        "filename": lambda: f"{pick('stem')}.{extension}",
        "person": lambda: f"{pick('first')} {pick('last')}",
        "phone": lambda: f"+1 202-555-01{rng.randint(10, 99)}",
        "zip": lambda: str(rng.randint(10001, 98999)),
        "uuid": lambda: f"{hexes[:8]}-{hexes[8:12]}-4{hexes[12:15]}-a{hexes[15:18]}-{hexes[:12]}",
        "sha": lambda: rng.choice([hexes[:7], "HEAD", "HEAD~2", pick("branch")]),
        "id": lambda: rng.choice(
            [str(rng.randint(1000, 99999)), f"{pick('project')[:3]}-{rng.randint(10, 999)}",
             str(rng.randint(10**8, 10**9))]),
        "token": lambda: f"{pick('project')}{rng.randint(10, 99)}",
        "slug_key": lambda: f"{pick('project')}:{pick('stem')}",
        "account": lambda: str(rng.randint(10**7, 10**8)),
        "issue_key": lambda: f"{pick('project')[:4].upper()}-{rng.randint(2, 980)}",
        "project_key": lambda: pick("project")[:4].upper(),
        "arxiv_id": lambda: f"2{number(0, 5)}{number(1, 12):02d}.{number(1000, 19999):05d}",
        "order_id": lambda: f"{pick('project')[:2].upper()}{rng.randint(10**7, 10**8)}",
        "session": lambda: f"{pick('project')}-{rng.randint(2, 60)}",
        "connection_id": lambda: f"{pick('environment')}-{rng.randint(2, 60)}",
        "connection_string": lambda: f"mongodb://{pick('domain')}:27017/{pick('database')}",
        "jql": lambda: f"project = {pick('project')[:4].upper()} AND status = {pick('stem')}",
        "cql": lambda: f"type = page AND title ~ \"{pick('stem')}\"",
        "emoji": lambda: rng.choice(["📌", "🚀", "🌱", "📚"]),
        "user_agent": lambda: "Mozilla/5.0 (X11; Linux x86_64)",
        "secret": lambda: f"key-{hexes[:10]}",
        "stage": lambda: pick("status"),
        "span": lambda: f"{rng.randint(1, 6)}h {rng.choice((15, 20, 30, 45))}m",
        "small_number": lambda: str(rng.randint(3, 900)),
    }  # fmt: skip
    if sort in ("topic", "project") and slot is not None:
        sort = _themed(slot, sort)
    return makers[sort]() if sort in makers else pick(sort)


# What people search for, or name, depends on what the tool is about.
_THEMES = {
    "movie": r"movies?|films?|series|imdb|cinema", "song": r"songs?|music|lyrics|tracks?|spotify",
    "artist": r"artists?|bands?|concerts?", "book": r"books?|novels?|library of books",
    "food": r"recipes?|food|meals?|dish(?:es)?|cook\w*", "ingredient": r"ingredients?|nutrition",
    "thing": r"products?|shop\w*|e-?commerce|amazon|catalogu?e items?", "word": r"dictionary|thesaurus",
    "symbol": r"stocks?|tickers?|equit(?:y|ies)|shares", "coin": r"crypto\w*|coins?|tokens? price",
    "company": r"compan(?:y|ies)|business(?:es)?|employers?|customers?", "city": r"cit(?:y|ies)|places?"
    r"|hotels?|restaurants?|weather|maps?|travel\w*|tourist", "package": r"npm|pypi|packages?|librar(?:y|ies)",
    "person": r"people|persons?|contacts?|players?|users?|authors?", "team": r"teams?",
    "domain": r"domains?|dns|whois|ssl", "sport": r"sports?|leagues?", "repo": r"repositor(?:y|ies)|github",
    "question": r"ask|questions?|answers?|faq",
}  # fmt: skip


def _themed(slot: Slot, sort: str) -> str:
    hit = {name: re.search(rf"\b(?:{marks})\b", slot.theme) for name, marks in _THEMES.items()}
    first = [(match.start(), name) for name, match in hit.items() if match]
    return min(first)[1] if first else sort


def from_pattern(pattern: str, rng: random.Random) -> str | None:
    """A string that a simple regular expression describes, or None."""
    from re import _parser as parser  # type: ignore[attr-defined]  # how `re` reads a pattern

    try:
        return _say(parser.parse(pattern), rng)
    except Exception:  # features beyond literals, sets and repeats
        return None


def _say(parsed: Json, rng: random.Random) -> str:
    said = ""
    for op, arg in parsed:
        name = str(op)
        if name == "LITERAL":
            said += chr(arg)
        elif name == "ANY":
            said += "a"
        elif name == "IN":
            said += _member(arg, rng)
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, sub = arg
            times = rng.randint(int(low), min(int(high), int(low) + 5))
            said += "".join(_say(sub, rng) for _ in range(times))
        elif name == "SUBPATTERN":
            said += _say(arg[3], rng)
        elif name == "BRANCH":
            said += _say(rng.choice(arg[1]), rng)
        elif name != "AT":
            raise ValueError(name)
    return said


def _member(options: Json, rng: random.Random) -> str:
    op, arg = rng.choice(options)
    if str(op) == "LITERAL":
        return chr(arg)
    if str(op) == "RANGE":
        return chr(rng.randint(arg[0], arg[1]))
    kinds = {"CATEGORY_DIGIT": "0123456789", "CATEGORY_WORD": "abcdefgh", "CATEGORY_SPACE": " "}
    return rng.choice(kinds[str(arg)])


def arguments(
    contract: Mapping[str, Json], rng: random.Random, optional: float = 0.0
) -> dict[str, Json]:
    """Arguments for a call: every required parameter, each optional one with that probability."""
    root = contract.get("inputSchema") or {}
    chosen = [s for s in slots_of(contract) if s.required or rng.random() < optional]
    found: dict[str, Json] = {}
    for slot in chosen:
        found[slot.name] = draw_new(slot, root, rng, found.values())
    return found
