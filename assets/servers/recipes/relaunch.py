"""Guesses: what else is worth a launch when a server listed nothing, from its own words.

A try costs seconds, so a rule is used only where the words call for it and it has something new.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from packaging.utils import canonicalize_name

from assets.servers.probe.probe import ProbeResult
from assets.servers.recipes.placeholders import DATA, make_value, split_words
from assets.servers.recipes.recipe import LaunchRecipe
from warehouse.patterns import compile_pattern

MAX_TRIES = 5  # launches after the first
_GRACE = timedelta(days=7)  # a release is repaired by its dependencies' fixes of the next days
_HOPELESS = (
    *("needs_software", "needs_network", "oversize", "out_of_memory", "disk_full"),
    *("too_many_processes", "policy_denied", "integrity", "not_found", "fetch_failed"),
    "incompatible",
)
# Distributions whose next major version breaks servers that pin nothing, and how words name them.
_BREAKING = ("mcp", "fastmcp")
_NAMED_MODULE = compile_pattern(
    r"(?:No module named|from|module) ['\"](?P<module>[A-Za-z_]\w*)[\w.]*['\"]"
    r"|pin ['\"](?P<pinned>[A-Za-z][\w\-]*)<"
)
_WANTS_SDK = compile_pattern(
    r"(?i)install[^\n]{0,40}\b(fast)?mcp\b"
    r"|\b(fast)?mcp\b[^\n]{0,40}(not installed|missing|required)"
)
_OF_NONE = "'NoneType' object has no attribute"  # a bug, whatever the release
_MOVED_ON = compile_pattern(
    r"cannot import name|No module named|has no attribute"
    r"|unexpected keyword argument"
    r"|PydanticUserError|pin 'mcp<2'|takes \d+ positional arguments? but|was removed|been removed"
    r"|got multiple values|is not a known attribute|metaclass conflict|ValidationInfo"
    r"|missing \d+ required (positional|keyword)"
)
_OPTION = r"--[A-Za-z][\w\-]*"
_NAMED_OPTION = compile_pattern(_OPTION, unless_after=r"\w\-", unless_before=r"^\s=,.'\"`)")
_LACKING = compile_pattern(
    r"(?i)(?:following (?:required )?arguments (?:are required|were not provided)|missing option"
    r"|missing (?:required )?arguments?|missing (?:required )?parameters?|required option"
    r"|required (?:argument|flag|parameter)s?)[:\s]*"
    r"(?P<rest>[^\n]*(?:\n\s+--?\w[^\n]*)*)"
)
_ASKS = re.compile(
    r"(?i)require|missing|must|provide|specif|not set|set the|please|expected|need|undefined"
    r"|not found|usage"
)
_VARIABLE = compile_pattern(
    r"[A-Z][A-Z0-9]*_[A-Z0-9_]*[A-Z0-9]", unless_after=r"\w/.\-", unless_before=r"\w/"
)
_KEY_ERROR = compile_pattern(r"KeyError: ['\"]([A-Za-z_]\w*)['\"]")
_FIELD = compile_pattern(r"(?m)^([A-Za-z_]\w*)\n\s+Field required")
_NO_VARIABLE = re.compile(
    r"^(ERR_|NODE_|NPM_|UV_|SIG|PYTHON|ESM_|MODULE_NOT|ENOENT|HTTP_STATUS|METHOD_NOT|INVALID_"
    r"|LOG_|TYPE_|TEST_)|_ERROR$|_NOT_FOUND$|_FAILED$"
)
_SUBCOMMANDS = ("stdio", "mcp", "serve", "server", "start", "run")
_HTTP = (
    r"listening (on|at)|running (on|at) (http|port)|Uvicorn running|https?://(localhost|127|0\.)"
)


@dataclass(frozen=True)
class FailedLaunch:
    """A launch that listed nothing. output: its words; usage: what it printed besides, most often
    how it is called; installed: name -> version of the Python packages beside it."""

    recipe: LaunchRecipe
    output: str
    error_kind: str | None
    usage: str = ""
    installed: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        return f"{self.output}\n{self.usage}"


Guess = Callable[[FailedLaunch], LaunchRecipe | None]


def make_next_guess(
    recipe: LaunchRecipe,
    result: ProbeResult,
    tried: list[LaunchRecipe],
    *,
    placeholders: bool = True,
    installed: Mapping[str, str] | None = None,
) -> LaunchRecipe | None:
    """The next recipe worth a launch after `recipe` came to `result`; None: nothing calls for one.

    tried: what was launched so far, the first recipe among it; the one returned is added.
    Without `placeholders` no value is made up. installed: as in FailedLaunch.
    """
    if result.status == "ok" or len(tried) > MAX_TRIES:
        return None
    output = f"{result.stderr_tail}\n{result.hint or ''}"
    failed = FailedLaunch(recipe, output, result.error_kind, result.stdout_text, installed or {})
    for rule, makes_up in _RULES:
        if makes_up and not placeholders:
            continue
        if result.error_kind in _HOPELESS and rule not in _OF_DEPENDENCIES:
            continue
        guess = rule(failed)
        if guess is not None and guess not in tried:
            tried.append(guess)
            return guess
    return None


def list_made_up(first: LaunchRecipe, used: LaunchRecipe) -> tuple[str, ...]:
    """What the guesses added to the first recipe: `env:NAME`, `arg:3`, `with:mcp<2`,
    `as_of:DATE`."""
    passed = {name for name, _ in first.env}
    added = [f"env:{name}" for name, _ in used.env if name not in passed]
    added += [f"arg:{place}" for place in range(len(first.args), len(used.args))]
    if first.args and not used.args:
        added.append("args")
    added += [f"with:{each}" for each in used.requirements if each not in first.requirements]
    if used.as_of and used.as_of != first.as_of:
        added.append(f"as_of:{used.as_of[:10]}")
    return tuple(added)


def _guess_older_major(failed: FailedLaunch) -> LaunchRecipe | None:
    """The dependency that the words name, below the major version that was installed. The SDK also
    unnamed: a server that crashes may have caught the error and printed a sentence of its own."""
    recipe = failed.recipe
    if recipe.ecosystem != "pypi":
        return None
    matches = _NAMED_MODULE.finditer(failed.words) if _MOVED_ON.search(failed.words) else ()
    named = [str(match["module"] or match["pinned"]).lower() for match in matches]
    if failed.error_kind in ("crashed", "incompatible") or _WANTS_SDK.search(failed.words):
        named += _BREAKING
    for name in dict.fromkeys(canonicalize_name(name) for name in named):
        first, _, _ = failed.installed.get(name, "").partition(".")
        fresh = name != recipe.name and not any(
            each.startswith(name) for each in recipe.requirements
        )
        if fresh and first.isdigit() and int(first) > (name in _BREAKING):
            cap = f"{name}<{first}"
            return recipe.model_copy(update={"requirements": (*recipe.requirements, cap)})
    return None


def _guess_older_dependencies(failed: FailedLaunch) -> LaunchRecipe | None:
    """Packages that pin nothing break when a dependency's next major version comes out."""
    recipe = failed.recipe
    if recipe.ecosystem != "pypi" or not recipe.released or recipe.as_of:
        return None
    if not _MOVED_ON.search(failed.words.replace(_OF_NONE, "")):
        return None
    until = datetime.fromisoformat(recipe.released) + _GRACE
    return recipe.model_copy(update={"as_of": until.strftime("%Y-%m-%dT%H:%M:%SZ")})


def _guess_options(failed: FailedLaunch) -> LaunchRecipe | None:
    """Options and arguments that the server's own parser names as missing."""
    recipe = failed.recipe
    passed = {arg.partition("=")[0] for arg in recipe.args}
    more: list[str] = []
    for name in list(dict.fromkeys(_find_lacking(failed)))[:12]:
        if name in passed:
            continue
        value = make_value(name.strip("-"), context=recipe.name)
        value = "stdio" if split_words(name) in ("transport", "mode") else value
        more += [name, value] if name.startswith("-") else [value]
    return _add_args(recipe, more)


def _find_lacking(failed: FailedLaunch) -> Iterator[str]:
    for match in _LACKING.finditer(failed.words):
        tail = match["rest"]
        options = compile_pattern(_OPTION).findall(tail)
        if options:
            yield from options
        elif quoted := compile_pattern(r"['\"`<]([A-Za-z][\w\-]*)['\"`>]").findall(tail):
            yield from quoted
        elif words := compile_pattern(r"(?i)\s*([a-z][\w\-]*(?:, ?[a-z][\w\-]*)*)\s*$").match(tail):
            names = [word.strip() for word in words[1].split(",")]
            # yargs names options without their dashes, argparse its positional arguments.
            yargs = "missing required argument" in match[0].lower()
            yield from (f"--{name}" if yargs else name for name in names)
    for line in failed.output.splitlines():  # a usage text names every option that there is
        if not _LACKING.search(line) and _ASKS.search(line) and "usage" not in line.lower():
            yield from _NAMED_OPTION.findall(line)


def _guess_variables(failed: FailedLaunch) -> LaunchRecipe | None:
    """Variables that the words name as missing."""
    output = failed.words
    lines = "\n".join(
        line for line in output.splitlines() if _ASKS.search(line) or "_" in line.split(" ")[0]
    )
    names = _VARIABLE.findall(lines)
    if "environment" in output.lower():
        names += compile_pattern(r"[`'\"]([a-z][a-z0-9]*_[a-z0-9_]+)[`'\"]").findall(lines)
    names += _KEY_ERROR.findall(output)
    names += [name.upper() for name in _FIELD.findall(output)]
    return _add_env(failed.recipe, [name for name in names if not _NO_VARIABLE.search(name)])


def _guess_spare_variables(failed: FailedLaunch) -> LaunchRecipe | None:
    """What the listing calls optional."""
    return _set_env(failed.recipe, dict(failed.recipe.spare_env))


def _guess_transport(failed: FailedLaunch) -> LaunchRecipe | None:
    """A server that speaks HTTP unless told otherwise, or a command line that wants a word."""
    recipe, output = failed.recipe, failed.words
    if "stdio" in " ".join(recipe.args):
        return None
    if re.search(r"--transport\b", output):
        return _add_args(recipe, ["--transport", "stdio"])
    if re.search(r"(?<![\w-])--stdio\b", output):
        return _add_args(recipe, ["--stdio"])
    if failed.error_kind == "protocol_error" and compile_pattern(f"(?i){_HTTP}").search(output):
        return _set_env(recipe, {"TRANSPORT": "stdio", "MCP_TRANSPORT": "stdio"})
    return None


def _guess_subcommand(failed: FailedLaunch) -> LaunchRecipe | None:
    """`stdio`, `serve`, `mcp`, …: as a usage text lists them, or its examples call them."""
    # An option's choices are no commands.
    output = compile_pattern(rf"{_OPTION}[ =]\{{[^}}]*\}}").sub("", failed.words)
    if (called := _find_example(output)) and not failed.recipe.args:
        return _add_args(failed.recipe, called)
    commands = compile_pattern(r"(?is)\bcommands:(.*)|\{([0-9A-Za-z_,\-]{4,})\}").search(output)
    words = re.findall(r"[\w\-]+", (commands[1] or commands[2])[:1500]) if commands else []
    if compile_pattern(r"(?i)usage:[^\n]*\n?[^\n]*[\[<](sub)?command[\]>]").search(output):
        words += compile_pattern(r"(?m)^[ \t]+([a-z][\w\-]*)[ \t]{2,}\S").findall(output)
    left = [word for word in _SUBCOMMANDS if word not in failed.recipe.args]
    word = next((word for word in left if word in words), None)
    if word is None and re.search(r"\bstdio\b", output):
        word = "stdio" if re.search(r"(?i)usage|expected", output) else None
    return _add_args(failed.recipe, [word]) if word and word not in failed.recipe.args else None


def _find_example(output: str) -> list[str]:
    """The words of the first example of a usage text that are subcommands alone."""
    program = compile_pattern(r"(?i)usage:\s*([\w.\-/]+)").search(output)
    if program is None:
        return []
    for words in compile_pattern(
        rf"(?m)^\s*(?:[$>] )?{re.escape(program[1])} ([a-z\- ]+)$"
    ).findall(output):
        if all(word in _SUBCOMMANDS for word in words.split()):
            return words.split()
    return []


def _guess_folder(failed: FailedLaunch) -> LaunchRecipe | None:
    """The folder that recipes make up, where the words ask for one."""
    asks = re.search(r"director|folder|\bpath\b|vault", failed.output, re.IGNORECASE)
    return _add_args(failed.recipe, [DATA]) if asks and not failed.recipe.args else None


def _guess_unfilled(failed: FailedLaunch) -> LaunchRecipe | None:
    """Without variables that were made up: a server may check one that it could do without."""
    recipe = failed.recipe
    env = tuple(pair for pair in recipe.env if f"env:{pair[0]}" not in recipe.placeholders)
    return recipe.model_copy(update={"env": env}) if env != recipe.env else None


def _guess_bare(failed: FailedLaunch) -> LaunchRecipe | None:
    """Without the listing's own arguments, which may be a README's: `or x:/temp/mcp-files/`."""
    return failed.recipe.model_copy(update={"args": ()}) if failed.recipe.args else None


def _add_args(recipe: LaunchRecipe, more: Sequence[str]) -> LaunchRecipe | None:
    return recipe.model_copy(update={"args": (*recipe.args, *more)}) if more else None


def _add_env(recipe: LaunchRecipe, names: Sequence[str]) -> LaunchRecipe:
    passed, spare = dict(recipe.env), dict(recipe.spare_env)
    added = {
        name: spare.get(name) or make_value(name, context=recipe.name)
        for name in names[:40]
        if name not in passed
    }
    return _set_env(recipe, added)


def _set_env(recipe: LaunchRecipe, more: Mapping[str, str]) -> LaunchRecipe:
    env = {**dict(recipe.env), **more}
    return recipe.model_copy(update={"env": tuple(sorted(env.items()))})


_OF_DEPENDENCIES = (_guess_older_major, _guess_older_dependencies)
# (rule, whether it makes up a value), the surest first.
_RULES: tuple[tuple[Guess, bool], ...] = (
    *((rule, False) for rule in _OF_DEPENDENCIES),
    (_guess_options, True),
    (_guess_variables, True),
    (_guess_subcommand, False),
    (_guess_transport, False),
    (_guess_spare_variables, True),
    (_guess_folder, True),
    (_guess_unfilled, False),
    (_guess_bare, False),
)
