"""The form of a request: is it one, and does it leave the tool unnamed?"""

import re
from collections.abc import Iterable

from assets.synthesis.verify.checks.metatalk import is_metatalk
from assets.synthesis.verify.finding import Finding
from assets.synthesis.verify.grounding.folding import fold_text
from assets.vectors.lexicon import split_identifier
from warehouse.json_types import Contract

LONGEST = 8000  # characters; pasted code and letters fit, a dump does not


def find_form_flaws(contract: Contract, instruction: str, server: str) -> Iterable[Finding]:
    folded = fold_text(instruction[: 4 * LONGEST]).strip()
    if len(re.findall(r"\w", folded[:100])) < 3:
        yield Finding("not_an_instruction", "", "the text says nothing")
    elif len(folded) > LONGEST:
        yield Finding("not_an_instruction", "", f"{len(folded)} characters are no request")
    elif is_metatalk(folded):
        yield Finding("not_an_instruction", "", "talk about a request instead of a request")
    if named := _find_tool_name(contract, instruction, server):
        yield Finding("names_the_tool", "", f"the text names {named!r}")


def _find_tool_name(contract: Contract, instruction: str, server: str) -> str | None:
    """The name of the tool or server as only a program would write it, if it is in the text."""
    name = str(contract.get("name") or "")
    escaped = re.escape(name)
    coined = len(split_identifier(name)) > 1 and bool(re.search(r"[_\-./]|[a-z][A-Z]", name))
    if coined and re.search(rf"(?<![\w/.-]){escaped}(?![\w/-])", instruction, re.IGNORECASE):
        # `well-known` hyphens are English too; an identifier is called, used or followed by "tool".
        if "_" in name or re.search(r"[a-z][A-Z]", name) or _is_called_tool(escaped, instruction):
            return name
        if len(split_identifier(name)) > 2:
            return name
    if name and _is_called_tool(escaped, instruction):
        return name
    short = server.split(":", 1)[-1].rsplit("/", 1)[-1]
    ids = [part for part in (server, server.split(":", 1)[-1], short) if re.search(r"[-_/@]", part)]
    return next(
        (part for part in ids if len(part) > 5 and part.lower() in instruction.lower()), None
    )


_NOUN = (
    r"(?:tools?|functions?|endpoint|command|method|api call|ferramenta|herramienta|outil|werkzeug"
    r"|funktion|fonction|funcao|funcion|araci(?:ni)?|fonksiyonu?|alat|strumento)"
)


_CALLS = r"(?:call|invoke|using|use|run|usa|usar|use a|utilise|nutze|benutze|gunakan|usando)"


def _is_called_tool(escaped: str, instruction: str) -> bool:
    """Whether a name that may be an ordinary word is used as a tool's name."""
    if escaped.replace("\\", "").lower() not in instruction.lower():
        return False
    patterns = (
        rf"\b{escaped}[`'\"]?\s+{_NOUN}\b",
        rf"\b{_NOUN}\s+(?:called\s+|named\s+)?[`'\"]?{escaped}\b",
        rf"\b{_CALLS}\s+[`'\"]?{escaped}[`'\"]?\s+(?:with|for|on|to|to set)\s+\w+\s*(?:=|set to)",
        rf"^\W*(?:please\s+)?{_CALLS}\s+[`'\"]?{escaped}[`'\"]?\s*[:.,]",
        rf"`{escaped}`|\b{escaped}\(",
        rf"{escaped}\s*(?:工具|函数|接口|ツール|関数|도구|함수)",
    )
    return any(re.search(pattern, instruction, re.IGNORECASE) for pattern in patterns)
