#!/bin/sh
# coredns.sh VERSION OUT: builds CoreDNS of VERSION, with the plugins of coredns.go beside this script, into OUT, from the
# Go module proxy alone.
set -eu
version=$1 out=$2
main=$(cd "$(dirname "$0")" && pwd)/coredns.go

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0

cp "$main" main.go
go mod init slurmbridge.dev/coredns
go mod edit -require "github.com/coredns/coredns@$version"
go list -deps . >/dev/null # fetches what is needed
mkdir -p "$out"
# Two builds at once need more memory than a small machine has; downloads above may overlap.
${GO_BUILD_LOCK:+flock "$GO_BUILD_LOCK"} go build -trimpath -ldflags "-s -w" -o "$out/coredns" .
"$out/coredns" -version
