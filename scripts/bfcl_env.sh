#!/usr/bin/env bash
# An environment of its own for BFCL's checker and data, to hold `toolmill match --bfcl` against:
#   scripts/bfcl_env.sh [FOLDER]        (default var/bfcl-venv; run twice, the second time does nothing)
#   export TOOLMILL_BFCL_PYTHON=FOLDER/bin/python
# bfcl-eval is installed without its dependencies (some 3 GB): the AST checker needs none of them,
# see tests/contracts/bfcl_peer.py. BFCL is Apache-2.0; nothing of it is kept in this repository.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-var/bfcl-venv}
version=2026.3.23
python=${PYTHON:-python3.11}
if ! command -v "$python" >/dev/null; then
  echo "bfcl_env: no $python; set PYTHON=/path/to/python3.11 (3.11 or 3.12)" >&2
  exit 1
fi
if ! "$folder/bin/python" -c "import importlib.metadata as m; assert m.version('bfcl-eval') == '$version'" 2>/dev/null; then
  "$python" -m venv "$folder"
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "bfcl-eval==$version"
fi
data=$("$folder/bin/python" -c 'import importlib.util as u, pathlib as p; print(p.Path(u.find_spec("bfcl_eval").origin).parent / "data")')
echo "export TOOLMILL_BFCL_PYTHON=$(cd "$folder" && pwd)/bin/python"
echo "# data: $data"
