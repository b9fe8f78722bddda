#!/usr/bin/env bash
# Starts the server as it was at $BASE and as it is here, and writes the page into the job's summary.
# The change may be anybody's: on a fork its code is given no secret, and nothing it prints is obeyed.
set -euo pipefail
if [ "${GITHUB_EVENT_NAME:-pull_request}" != pull_request ]; then
  echo "::error title=Tool contracts::Run this on pull_request: it runs the code of the change, which on" \
    "$GITHUB_EVENT_NAME would have the secrets and the write token of this repository. Nothing was run."
  exit 2
fi
: "${BASE:?the commit to compare with: run on pull_request}" "${COMMAND:?what starts the server}"
fork=${FORK:-false}
if [ "$fork" = true ] && [ -z "${CLEANED:-}" ]; then
  # A job's own environment may hold what GitHub does not withhold from forks.
  kept=(CLEANED=1)
  for name in BASE COMMAND PREPARE SERVER INDEX QUESTIONS FAIL_ON FORK HAS_SECRETS PATH HOME LANG TMPDIR CI \
    LD_LIBRARY_PATH JAVA_HOME GOROOT SSL_CERT_FILE NODE_EXTRA_CA_CERTS RUNNER_TEMP RUNNER_TOOL_CACHE \
    GITHUB_STEP_SUMMARY TOOLMILL TOOLMILL_HOME $(compgen -e TOOLMILL_SANDBOX__ || true); do
    if [ -n "${!name:-}" ]; then kept+=("$name=${!name}"); fi
  done
  exec env -i "${kept[@]}" bash "${BASH_SOURCE[0]}"
fi

toolmill=${TOOLMILL:-$RUNNER_TEMP/toolmill/bin/toolmill}
summary=${GITHUB_STEP_SUMMARY:-/dev/stderr}
change=$PWD
base=$(mktemp -d)
export TOOLMILL_HOME=${TOOLMILL_HOME:-$base/home}
token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')

report() {  # LEVEL TEXT: an annotation and a line of the summary
  printf '::%s title=Tool contracts::%s\n' "$1" "$2"
  printf '%s\n\n' "$2" >> "$summary"
}

unheard() {  # COMMAND...: no line that it prints is a command to GitHub's runner
  local status=0
  echo "::stop-commands::$token"
  "$@" || status=$?
  echo "::$token::"
  return "$status"
}

blame_base() {  # WHAT: the base failed, which on a fork is no fault of the change
  if [ "$fork" != true ]; then
    report error "$1 on the base; the log of this step says why."
    exit 2
  fi
  report warning "$1 on the base, which a pull request from a fork cannot give its secrets: nothing was compared."
  exit 0
}

prepare() { cd "$1" && bash -euc "$PREPARE"; }

if ! git cat-file -e "$BASE^{commit}" 2> /dev/null; then
  report error "The base $BASE is not in this checkout: give actions/checkout \`fetch-depth: 0\`."
  exit 2
fi
git worktree add --quiet --detach "$base/before" "$BASE"
trap 'cd "$change" && git worktree remove --force "$base/before"; rm -rf "$base"' EXIT
if [ "${HAS_SECRETS:-false}" = true ] && [ -z "${SECRETS:-}" ]; then
  report notice "Left out: \`secrets\`, which a pull request from a fork is not given; the server starts without them."
fi
if [ -n "${PREPARE:-}" ]; then
  (unheard prepare "$base/before") || blame_base "\`prepare\` failed"
  if ! (unheard prepare "$change"); then
    report error "\`prepare\` failed on the change; the log of this step says why."
    exit 2
  fi
fi

read -ra command <<< "$COMMAND"
options=(--fail-on "${FAIL_ON:-breaking}" --markdown "$base/page.md" --annotations "$base/annotations")
if [ -n "${SERVER:-}" ]; then options+=(--server "$SERVER"); fi
if [ -n "${INDEX:-}" ]; then options+=(--index "$(realpath -m "$INDEX")"); fi
if [ -n "${QUESTIONS:-}" ]; then options+=(--questions "$(realpath -m "$QUESTIONS")"); fi
while IFS= read -r line; do
  if [[ $line == ?*=?* ]]; then options+=(--env "$line"); fi
done <<< "${SECRETS:-}"
cd "$base"  # a toolmill.toml of the change would be read, and could loosen the sandbox
status=0
unheard "$toolmill" contract ci "${options[@]}" "$base/before" "$change" -- "${command[@]}" || status=$?
if [ -f page.md ]; then cat page.md >> "$summary"; fi
if [ -f annotations ]; then cat annotations; fi
case $status in
  0 | 1) ;;
  3) blame_base "The server gave no tools" ;;
  *) report error "Nothing was compared; the log of this step says why." ;;
esac
exit "$status"
