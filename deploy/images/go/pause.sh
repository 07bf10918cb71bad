#!/bin/sh
# pause.sh VERSION OUT: builds the static pause binary (pause.go beside this script) into OUT.
set -eu
out=$2
mkdir -p "$out"
GOTOOLCHAIN=local CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$out/pause" "$(dirname "$0")/pause.go"
