#!/usr/bin/env bash
# Starts the server as it was at $BASE and as it is here, and writes the page into the job's summary.
set -euo pipefail
: "${BASE:?the commit to compare with: run on pull_request}" "${COMMAND:?what starts the server}"
toolmill=${TOOLMILL:-$RUNNER_TEMP/toolmill/bin/toolmill}
base=$(mktemp -d)
export TOOLMILL_HOME=${TOOLMILL_HOME:-$base/home}
git worktree add --detach "$base/before" "$BASE"
trap 'git worktree remove --force "$base/before"' EXIT
if [ -n "${PREPARE:-}" ]; then
  bash -euc "$PREPARE"
  (cd "$base/before" && bash -euc "$PREPARE")
fi
read -ra command <<< "$COMMAND"
options=(--fail-on "${FAIL_ON:-breaking}" --markdown "$base/page.md")
for name in SERVER INDEX QUESTIONS; do
  if [ -n "${!name:-}" ]; then options+=("--${name,,}" "${!name}"); fi
done
status=0
"$toolmill" contract ci "${options[@]}" "$base/before" . -- "${command[@]}" || status=$?
if [ -f "$base/page.md" ]; then cat "$base/page.md" >> "${GITHUB_STEP_SUMMARY:-/dev/stderr}"; fi
exit "$status"
