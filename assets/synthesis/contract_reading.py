"""Reads a contract without a model: its parameters as slots, and what the tool is for."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from assets.contracts.schema_shapes import read_list
from assets.contracts.validate import validate_call
from assets.vectors.lexicon import find_base_form, find_family, split_identifier
from warehouse.json_types import Contract, Json, JsonObject, Schema
from warehouse.patterns import compile_pattern

LONGEST = 6000  # characters of a description that are read; nobody's purpose comes later

# Of sentences with one blank between their words, of at most 400 characters.
_PREFIX = re.compile(
    r"^(?:\[[^\]]{1,40}\] ?|[\w ]{2,20} \| |\*\*[^*]{1,60}\*\*:? ?|[^\w\s\"'`]{1,400} ?"
    r"|(?:this|the) (?:tool|function|endpoint|api|method|command|action) "
    r"(?:will|can|is used to|allows (?:you )?to|lets you|helps (?:you )?(?:to )?"
    r"|enables (?:you )?to)? ?"
    r"|use (?:this|it) (?:tool )?(?:to|when you (?:need|want) to) "
    r"|(?:a |an )?(?:\w{1,40} )?(?:tool|utility|function|endpoint|api) (?:to|for|that) "
    r"|uses? [\w\s.-]{3,40}? to "
    r"|(?:quickly|easily|permanently|programmatically|optionally|safely|asynchronously|directly) "
    r"|(?:gives?|provides?) (?:you )?access to |allows? (?:you |users? )?to "
    r"|(?:use|used) to |perform(?:s)? (?:an? )?(?=\w{1,40} (?:of|on)))",
    re.IGNORECASE,
)
# What only matters to whoever implements or calls the tool; a user never says it.
_ASIDE = compile_pattern(
    r"(?i)\s*(?:\([^)]*\)|\b(?:using|via|through|with|by calling|from)\s+(?:the\s+)?[\w\s.\-/]*?"
    r"\b(?:API|SDK|endpoint|server|service|method|protocol)\b[^,;]*"
    r"|\b(?:with|and)\s+(?:optional|advanced|various|additional|enhanced|configurable)\b.*"
    r"|\bfor\s+(?:AI|LLM|debugging MCP)\b.*|\bas (?:a )?JSON\b.*|\bin JSON format\b.*"
    r"|\bin the (?:system|account|server)\b)"
)
_CUT = re.compile(
    r" ?(?:[;:]|\s[-–—]\s|, ?(?:which|including|supporting|allowing|helpful|useful|optionally"
    r"|use)\b|\b(?:This|Use|Returns|Only|Note|NOTE|Args|Parameters|Works|Handles)\b|\\n).*",
    re.DOTALL,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s{1,40}(?=[A-Z\"'(])|\n\s{0,40}(?=[A-Z\n*#-])")


@dataclass(frozen=True)
class ToolPurpose:
    """What a tool does: base-form verb, its family, and the words that follow the verb."""

    verb: str
    family: str
    rest: str


def read_purpose(contract: Contract) -> ToolPurpose:
    """Reads the first sentence of the description, else the tool's name."""
    text = str(contract.get("description") or "").strip()[:LONGEST]
    sentence = " ".join(_SENTENCE.split(text, maxsplit=1)[0].split())[:400].rstrip(".!: ")
    by_name = _read_purpose_from_name(contract)
    letters = [char for char in sentence if char.isalpha()]
    is_latin = sum(char.isascii() for char in letters) > 0.8 * len(letters)
    if not is_latin or len(sentence.split()) < 2:
        return by_name
    for _ in range(3):
        sentence = _PREFIX.sub("", sentence, count=1)
    head, _, phrase = sentence.partition(" ")
    if head.lower().endswith("ly") and find_base_form(phrase.partition(" ")[0]):
        # "Intelligently recommends …": how well it does it is the tool's own praise.
        head, _, phrase = phrase.partition(" ")
    verb = find_base_form(head.strip(",.;:"))
    phrase = _tidy_phrase(phrase)
    if verb is None and phrase and _is_its_verb(head, contract):
        # "Demote participants …" of demote_group_participants: a verb, only a rare one.
        return ToolPurpose(head.lower(), "update", phrase)
    if verb is None or not phrase:
        # "Weather forecast API with …": a noun phrase; the verb comes from the name.
        noun = _tidy_phrase(sentence)
        if not noun or len(noun.split()) > 14 or not _ENGLISH & set(noun.lower().split()):
            return by_name
        lowered = noun if noun[1:2].isupper() else noun[0].lower() + noun[1:]
        return ToolPurpose(by_name.verb, by_name.family, lowered)
    if phrase.startswith("/"):
        return by_name
    if phrase.startswith("and ") and find_base_form([*phrase.split(), "", ""][1]):
        phrase = " ".join(phrase.split()[2:]) or by_name.rest
    return ToolPurpose(verb, find_family(verb) or by_name.family, phrase)


_ENGLISH = {"a", "an", "the", "of", "for", "to", "in", "and", "by", "with", "on", "from"}


def _is_its_verb(head: str, contract: Contract) -> bool:
    """Whether an unknown word opens the sentence and stands in the tool's name too: its verb."""
    name = {word.rstrip("s") for word in split_identifier(str(contract.get("name") or ""))}
    return head.istitle() and head.lower().rstrip("s") in name


def _read_purpose_from_name(contract: Contract) -> ToolPurpose:
    words = list(split_identifier(str(contract.get("name") or "tool")))
    position = next((i for i, word in enumerate(words) if find_base_form(word)), None)
    if position is None:
        return ToolPurpose("get", "read", " ".join(words))
    verb = find_base_form(words[position]) or "get"
    # `git_status`, `jira_get_issue`: what precedes the verb is the product.
    tail = words[position + 1 :] + (words[:position] if words[position + 1 :] else [])
    if position and tail[-position:] == words[:position]:
        tail = [*tail[:-position], *(["in"] if tail[:-position] else []), *words[:position]]
    return ToolPurpose(
        verb, find_family(verb) or "read", " ".join(tail or words[:position] or ["it"])
    )


def _tidy_phrase(phrase: str) -> str:
    phrase = _CUT.sub("", phrase)
    phrase = _ASIDE.sub("", phrase)
    opened = phrase.find("(", phrase.rfind(")") + 1)  # and never closed
    phrase = phrase[:opened] if opened >= 0 else phrase
    phrase = re.sub(r",?\s{1,9}and (?:then )?(?:returns?|gets?)\b.*", "", phrase)
    phrase = re.sub(r"[`*\"]|'(?=\w{1,40}'[\s,.])|https?://\S+", "", phrase)
    words = re.sub(r"\s+", " ", phrase).strip(" .,;:-").split(" ")
    if len(words) > 16:
        # A long tail is the tool's own advertisement; cut it at the last joint that fits.
        joints = [i for i, word in enumerate(words[:16]) if word in _JOINTS and i > 3]
        words = words[: joints[-1]] if joints else words[:12]
    while words and words[-1].lower() in _DANGLING:
        words.pop()
    return " ".join(words).strip(" ,")


_JOINTS = {"and", "or", "with", "using", "for", "based", "by", "that", "in", "from", "including"}
_DANGLING = {
    *_JOINTS, "of", "a", "an", "the", "to", "on", "at", "its", "their", "into", "as", "if", "when",
}  # fmt: skip


@dataclass(frozen=True)
class ParameterSlot:
    """One parameter, with `$ref`, `allOf` and nullable unions resolved."""

    name: str
    schema: Schema
    required: bool
    words: tuple[str, ...]
    hint: str  # the description, one line
    about: str = ""  # the words of the tool's name and of all its parameters
    theme: str = ""  # what the tool says it does, in its own words

    @property
    def type(self) -> str:
        return guess_json_type(self.schema)

    @property
    def choices(self) -> list[Json]:
        """What may be chosen: an enum, or the words that the description lists in quotes, as
        docstrings do: `operation: Operation type ("add", "remove", "list")`."""
        if "enum" in self.schema or self.type != "string":
            return read_list(self.schema.get("enum"))
        match = _LISTED.search(self.hint)
        if match is None or _NO_CHOICES.search(self.hint[: match.start()][-16:]):
            return []
        words = [] if _GOES_ON.match(self.hint[match.end() :]) else _LISTED_WORD.findall(match[0])
        return words if _takes(self.schema, words) else []


_WORD = "[\"'`][\\w.+-]{1,40}[\"'`]"
_LISTED = compile_pattern(
    rf"(?:[(:=]|\b(?i:one of|either|options?)) ?:? ?{_WORD}"
    rf"(?:(?: ?[,|/] ?| )(?:(?:or|and) )?{_WORD})+"
)
_LISTED_WORD = re.compile(r"[\"'`]([\w.+-]{1,40})[\"'`]")
_NO_CHOICES = re.compile(  # before a list: examples, or what may not be chosen
    r"e\.g|\bex\b|\blike|such as|example|sample|except|\bnot\b|reserved|other than|exclud",
    re.IGNORECASE,
)
_GOES_ON = re.compile(r" ?,? ?(?:etc\b|\.\.|…|and (?:so on|more|others)\b)", re.IGNORECASE)


_LIMITS = {"minLength", "maxLength", "pattern", "format"}


def _takes(schema: Schema, words: list[str]) -> bool:
    """Whether a schema takes all words: where not, its description means something else."""
    limits = {name: schema[name] for name in schema.keys() & _LIMITS}
    holder = {"type": "object", "additionalProperties": limits}
    return not (
        limits and validate_call({"inputSchema": holder}, dict(zip(words, words, strict=True)))
    )


def get_input_schema(contract: Contract) -> JsonObject:
    """The input schema; empty where it is none."""
    schema = contract.get("inputSchema")
    return schema if isinstance(schema, Mapping) else {}


def get_properties(contract: Contract) -> JsonObject:
    """Parameter -> schema, as declared at the top; empty where that is odd."""
    properties = get_input_schema(contract).get("properties")
    return properties if isinstance(properties, Mapping) else {}


def get_required(contract: Contract) -> list[str]:
    """The names of the required parameters; empty where the list is odd."""
    names = get_input_schema(contract).get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def read_slots(contract: Contract) -> list[ParameterSlot]:
    """The parameters of a contract: required ones first, each resolved one level."""
    schema, properties = get_input_schema(contract), get_properties(contract)
    required = schema.get("required") or []
    about = " ".join([*split_identifier(str(contract.get("name"))), *properties]).lower()[:400]
    description = str(contract.get("description") or "")[:LONGEST]
    lines = (line.strip()[:400] for line in description.splitlines())
    matches = (_DOCUMENTED.match(line) for line in lines)
    documented = {match.group(1): match.group(2) for match in matches if match}
    theme = f"{about} {description[:300]}".lower()
    slots = [
        _make_slot(name, resolve_schema(of, schema), name in required, documented.get(name, ""),
                   about=about, theme=theme)
        for name, of in properties.items()
    ]  # fmt: skip
    return sorted(slots, key=lambda slot: not slot.required)


def read_fields(schema: Schema, root: Schema) -> list[ParameterSlot]:
    """The members of an object schema, as slots."""
    required = schema.get("required") or []
    properties = schema.get("properties") or {}
    return [
        _make_slot(name, resolve_schema(s, root), name in required)
        for name, s in properties.items()
    ]


_DOCUMENTED = compile_pattern(
    r"(?:[-*]\s+)?[`*]{0,2}(\w+)[`*]{0,2}\s*(?:\([^)]*\))?\s*[:\uff1a-]\s*(.+)"
)


def _make_slot(
    name: str, schema: Schema, required: bool, documented: str = "", **beside: str
) -> ParameterSlot:
    hint = " ".join(f"{schema.get('description') or documented}"[:1000].split())
    return ParameterSlot(name, schema, required, split_identifier(name), hint, **beside)


def resolve_schema(schema: Json, root: Schema, depth: int = 0) -> dict[str, Json]:
    """One schema with local `$ref`, `allOf` and nullable unions folded in; {} when it has none."""
    if not isinstance(schema, Mapping) or depth > 4:
        return {}
    merged = dict(schema)
    ref = merged.pop("$ref", None)
    if isinstance(ref, str) and ref.startswith("#/"):
        target: Json = root
        for part in ref[2:].split("/"):
            target = target.get(part, {}) if isinstance(target, Mapping) else {}
        merged = {**resolve_schema(target, root, depth + 1), **merged}
    for part in _list_members(merged.pop("allOf", None)):
        merged = {**merged, **resolve_schema(part, root, depth + 1)}
    for union in ("anyOf", "oneOf"):
        options = (
            resolve_schema(o, root, depth + 1) for o in _list_members(merged.pop(union, None))
        )
        real = next((option for option in options if guess_json_type(option) != "null"), {})
        merged = {**real, **merged}
    return merged


def _list_members(value: Json) -> list[Json]:
    """A combinator's members; a hostile schema may nest hundreds in hundreds."""
    return value[:8] if isinstance(value, list) else []


def guess_json_type(schema: Schema) -> str:
    """The one JSON type a value should have: the first that is not null, guessed when absent."""
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    if isinstance(kind, str):
        return kind
    if "const" in schema or read_list(schema.get("enum")):
        sample = schema.get("const", [*read_list(schema.get("enum")), None][0])
        return {bool: "boolean", int: "integer", float: "number", type(None): "null"}.get(
            type(sample), "string"
        )
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema else "string"
