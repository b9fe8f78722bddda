#!/bin/sh
# Writes the configuration of Dagster's instance, then becomes the command that it is given.
set -eu
cd "$(dirname "$0")/.."
export DAGSTER_HOME="${DAGSTER_HOME:-$TOOLMILL_HOME/state/dagster}"
mkdir -p "$DAGSTER_HOME"
python -m orchestration.runs.instance "$DAGSTER_HOME/dagster.yaml"
exec "$@"
