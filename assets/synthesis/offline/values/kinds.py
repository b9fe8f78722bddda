"""What sort of value a parameter wants (a city, a path, a title), by its words."""

import re
from functools import lru_cache

from assets.synthesis.common.contract_reading import Slot
from assets.vectors.lexicon import words_in

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
    "transaction hash": "tx_hash", "tx hash": "tx_hash", "tx id": "tx_hash", "tx": "tx_hash",
    "signature": "tx_hash", "hash": "tx_hash", "public key": "public_key", "pubkey": "public_key",
    "wallet address": "wallet", "contract address": "wallet", "token address": "wallet",
    "wallet": "wallet", "doi": "doi", "isbn": "isbn", "iban": "iban", "vin": "vin", "mac": "mac",
    "amount": "amount", "price": "amount", "quantity": "small_number", "coin id": "coin",
    "interval": "interval", "timeframe": "interval", "chain": "chain", "blockchain": "chain",
    "exchange": "exchange", "equation": "math", "tone": "tone", "mood": "tone",
    "audience": "audience", "sector": "industry",
    "industry": "industry", "solution": "goal", "idea": "goal", "use case": "goal",
    "requirements": "goal", "requirement": "goal", "goal": "goal",
    "task": "goal", "instruction": "goal", "instructions": "goal", "objective": "goal",
    "problem": "trouble", "error": "trouble", "symptom": "trouble", "findings": "trouble",
    "condition": "goal", "feature": "goal", "requirement text": "goal", "step": "goal",
    "steps": "goal", "job title": "job", "occupation": "job", "profession": "job", "hex": "color",
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


def sort_of(slot: Slot) -> str:
    """The pool or maker for a string parameter, by the words of its name, then its description."""
    words = list(slot.words)
    if words == ["target"] and " git " in f" {slot.about} ":
        return "branch"
    if words == ["name"] and _PEOPLE.search(slot.about):
        return "person"
    if words == ["expression"] and _MATHS.search(slot.theme):
        return "math"
    if words == ["address"] and _CHAIN.search(slot.theme):
        return "wallet"
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


_MATHS = re.compile(r"\b(?:math\w*|arithmetic|calculat\w+|sympy|algebra\w*|equations?)\b")
_CHAIN = re.compile(
    r"\b(?:wallets?|token|ethereum|eth|solana|bitcoin|btc|blockchain|on-?chain|erc-?\d+|nft|evm"
    r"|safe|contract|defi)\b"
)


_FOLDER = re.compile(r"^(?!.*\bfiles?\b).*\b(?:director(?:y|ies)|folders?)\b")


_PEOPLE = re.compile(
    r"\b(?:person|people|player|nationality|gender|age|author|contact|character|member|customer)\b"
)


# Words that nearly every description holds; they say nothing about the value.
_VAGUE = set(
    words_in(
        "name to from user key value values type text field fields data item items file source to "
        "query search content target index tag status state time role q unit model words message "
        "hash problem error goal task instruction instructions step steps condition feature "
        "signature findings requirement requirements objective symptom tone hex mac"
    )
)


# What people search for, or name, depends on what the tool is about.
_THEMES = {
    "movie": "movies? films? series imdb cinema",
    "song": "songs? music lyrics tracks? spotify",
    "artist": "artists? bands? concerts?",
    "book": "books? novels?",
    "food": "recipes? food meals? dish(?:es)? cook\\w*",
    "ingredient": "ingredients? nutrition",
    "thing": "products? shop\\w* e-?commerce amazon",
    "word": "dictionary thesaurus",
    "symbol": "stocks? tickers? equit(?:y|ies) shares",
    "coin": "crypto\\w* coins?",
    "company": "compan(?:y|ies) business(?:es)? employers? customers?",
    "city": "cit(?:y|ies) places? hotels? restaurants? weather maps? travel\\w* tourist",
    "package": "npm pypi packages? librar(?:y|ies)",
    "person": "people persons? contacts? players? users? authors?",
    "team": "teams?",
    "domain": "domains? dns whois ssl",
    "sport": "sports? leagues?",
    "repo": "repositor(?:y|ies) github",
    "question": "ask questions? answers? faq",
}


def themed(slot: Slot, sort: str) -> str:
    """The sort that fits what the tool is about, or `sort` when it says nothing of the kind."""
    return _theme(slot.theme) or sort


@lru_cache(maxsize=4096)
def _theme(text: str) -> str | None:
    """The theme whose mark comes first in a text."""
    hits = {name: marks.search(text) for name, marks in _MARKED.items()}
    return min(((hit.start(), name) for name, hit in hits.items() if hit), default=(0, None))[1]


_MARKED = {
    name: re.compile(rf"\b(?:{'|'.join(marks.split())})\b") for name, marks in _THEMES.items()
}
