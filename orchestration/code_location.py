"""What Dagster loads: the definitions, once it is sure which home the user named."""

import os
from pathlib import Path

import dagster as dg
from dotenv import dotenv_values

from orchestration.definitions import build_defs
from orchestration.resources import HOME_TAG
from orchestration.settings.load import SettingsError, load_settings
from orchestration.settings.model import CONFIG, WORKDIR

_NAMES_A_HOME = ("TOOLMILL_HOME", "TOOLMILL_STATE", CONFIG)


def load_definitions() -> dg.Definitions:
    """All definitions; every asset's page shows the home in use. Raises SettingsError where a
    `.env` hides the home that the shell names, HomeUnavailable where another version made it."""
    if WORKDIR in os.environ:
        os.chdir(os.environ[WORKDIR])
    else:
        refuse_dotenv_home(Path.cwd())
    return build_defs(metadata={HOME_TAG: dg.MetadataValue.path(load_settings().home_path())})


def refuse_dotenv_home(folder: Path) -> None:
    """Raises SettingsError where `.env` names a home: Dagster has loaded it over the shell's."""
    names = [name for name in _NAMES_A_HOME if name in dotenv_values(folder / ".env")]
    if names:
        raise SettingsError(
            f"{folder / '.env'} sets {names[0]}, which Dagster loads over your shell's; take that"
            " line out and set it in the shell, or as `home` in toolmill.toml"
        )


defs = load_definitions()
