"""Toolmill's packages under one name: `toolmill.serving` is `serving`, the very same module."""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType

PACKAGES = (
    "assets",
    "demo",
    "extensions",
    "orchestration",
    "serving",
    "training",
    "warehouse",
)

try:
    __version__ = version("toolmill")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0+unknown"


class _Alias(MetaPathFinder, Loader):
    """Finds `toolmill.x.y` as the module `x.y`; both names are one module object."""

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        head, _, name = fullname.partition(".")
        if head != __name__ or name.partition(".")[0] not in PACKAGES:
            return None
        real = find_spec(name)
        if real is None:
            return None
        package = real.submodule_search_locations is not None
        return ModuleSpec(fullname, self, origin=real.origin, is_package=package)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(spec.name.partition(".")[2])
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Gives the module its own spec back, which the import machinery has just replaced."""
        alias = module.__spec__
        if alias is not None:
            module.__spec__ = self._specs.pop(alias.name, alias)


# First: the path finder would find a second copy of a module beside its parent.
sys.meta_path.insert(0, _Alias())
