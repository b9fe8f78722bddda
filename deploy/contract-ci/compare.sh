#!/usr/bin/env bash
# Starts the server as it was at $BASE and as it is here, and writes the page into the job's summary.
# The change may be anybody's: on a fork its code is given no secret, and nothing it prints is obeyed.
set -euo pipefail
summary=${GITHUB_STEP_SUMMARY:-/dev/stderr}

report() {  # LEVEL TEXT [REASON]: an annotation and a line of the summary; the reason is obeyed nowhere
  local text=$2 quoted=$2 tick='`' apostrophe="'"
  if [ -n "${3:-}" ]; then
    text="$2: ${3//%/%25}"
    quoted="$2: $tick${3//$tick/$apostrophe}$tick"
  fi
  printf '::%s title=Tool contracts::%s\n' "$1" "$text"
  printf '%s\n\n' "$quoted" >> "$summary"
}

refuse() {  # TEXT [REASON]
  report error "$@"
  exit 2
}

if [ "${GITHUB_EVENT_NAME:-pull_request}" != pull_request ]; then
  refuse "Run this on pull_request: it runs the code of the change, which on $GITHUB_EVENT_NAME would have the\
 secrets and the write token of this repository. Nothing was run."
fi
if [ -z "${BASE:-}" ]; then refuse "There is no commit to compare with: run this on pull_request."; fi
fork=${FORK:-false}
if [ "$fork" = true ] && [ -z "${CLEANED:-}" ]; then
  # A job's own environment may hold what GitHub does not withhold from forks.
  kept=(CLEANED=1)
  for name in BASE COMMAND PREPARE SERVER INDEX FAIL_ON FORK HAS_SECRETS PATH HOME LANG TMPDIR CI \
    LD_LIBRARY_PATH JAVA_HOME GOROOT SSL_CERT_FILE NODE_EXTRA_CA_CERTS RUNNER_TEMP RUNNER_TOOL_CACHE \
    GITHUB_STEP_SUMMARY TOOLMILL TOOLMILL_HOME $(compgen -e TOOLMILL_SANDBOX__ || true); do
    if [ -n "${!name:-}" ]; then kept+=("$name=${!name}"); fi
  done
  exec env -i "${kept[@]}" bash "${BASH_SOURCE[0]}"
fi

toolmill=${TOOLMILL:-$RUNNER_TEMP/toolmill/bin/toolmill}
change=$PWD
base=$(mktemp -d)
export TOOLMILL_HOME=${TOOLMILL_HOME:-$base/home}
token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')

clean() {
  cd "$change"
  if [ -d "$base/before" ]; then git worktree remove --force "$base/before"; fi
  rm -rf "$base"
}
trap clean EXIT

unheard() {  # COMMAND...: no line that it prints is a command to GitHub's runner
  local status=0
  echo "::stop-commands::$token"
  "$@" || status=$?
  echo "::$token::"
  return "$status"
}

read_reason() {  # the last line of what went wrong, in plain characters
  { grep -v '^[[:space:]]*$' "$base/errors" || true; } | tail -n 1 | cut -c -500 | LC_ALL=C tr -c '\040-\176\n' '?'
}

blame_base() {  # WHAT [REASON]: the base failed as a server without its secrets does
  if [ "$fork" = true ] && [ "${HAS_SECRETS:-false}" = true ]; then
    report warning \
      "$1 on the base, which a pull request from a fork cannot give its secrets: nothing was compared" "${2:-}"
    exit 0
  fi
  refuse "$1 on the base; the log of this step says more" "${2:-}"
}

prepare() { cd "$1" && bash -euc "$PREPARE"; }

split='import shlex, sys; print(*shlex.split(sys.argv[1]), sep="\0", end="\0")'
if ! python3 -I -c "$split" "${COMMAND:-}" > "$base/words" 2> "$base/errors"; then
  refuse "\`command\` cannot be split as a shell would" "$(read_reason)"
fi
mapfile -d '' -t command < "$base/words"
if [ -z "${command[*]}" ]; then refuse "\`command\` is empty: say what starts the server, like \`node server.js\`."; fi

environment=()
number=0
while IFS= read -r line; do
  number=$((number + 1))
  line=${line%$'\r'}
  if [[ $line =~ ^[A-Za-z_][A-Za-z0-9_.-]*= ]]; then
    if [ -n "${line#*=}" ]; then environment+=(--env "$line"); fi  # a secret that is not set is left out
  elif [ -n "$line" ]; then  # of which nothing is shown: it may be a part of a secret
    refuse "Line $number of \`secrets\` is no \`NAME=VALUE\`: give each on one line."
  fi
done <<< "${SECRETS:-}"

if ! git cat-file -e "$BASE^{commit}" 2> /dev/null; then
  refuse "The base $BASE is not in this checkout: give actions/checkout \`fetch-depth: 0\`."
fi
git worktree add --quiet --detach "$base/before" "$BASE"
if [ "${HAS_SECRETS:-false}" = true ] && [ -z "${SECRETS:-}" ]; then
  report notice "Left out: \`secrets\`, which a pull request from a fork is not given; the server starts without them."
fi
if [ -n "${PREPARE:-}" ]; then
  status=0
  (unheard prepare "$base/before") || status=$?
  case $status in
    0) ;;
    126 | 127) refuse "\`prepare\` names a program that is not here or cannot be run; the log of this step says which." ;;
    *) blame_base "\`prepare\` failed" ;;
  esac
  if ! (unheard prepare "$change"); then
    refuse "\`prepare\` failed on the change; the log of this step says why."
  fi
fi

options=(--fail-on "${FAIL_ON:-breaking}" --markdown "$base/page.md" --annotations "$base/annotations")
if [ -n "${SERVER:-}" ]; then options+=(--server "$SERVER"); fi
if [ -n "${INDEX:-}" ]; then options+=(--index "$(realpath -m "$INDEX")"); fi
cd "$base"  # a toolmill.toml of the change would be read, and could loosen the sandbox

compare() {
  local status=0
  "$toolmill" contract ci "${options[@]}" "${environment[@]}" "$base/before" "$change" -- "${command[@]}" \
    2> "$base/errors" || status=$?
  cat "$base/errors" >&2
  return "$status"
}

status=0
unheard compare || status=$?
if [ -f page.md ]; then cat page.md >> "$summary"; fi
if [ -f annotations ]; then cat annotations; fi
if [ "$status" = 3 ]; then blame_base "The server gave no tools" "$(read_reason)"; fi
if [ "$status" -gt 1 ] || [ ! -f page.md ]; then
  report error "Nothing was compared" "$(read_reason)"
  if [ "$status" -le 1 ]; then status=2; fi  # without a page it is not the change that failed
fi
exit "$status"
