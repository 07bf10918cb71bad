#!/bin/sh
# coredns.sh VERSION OUT: builds the CoreDNS binary of VERSION into OUT, from the Go module proxy alone.
set -eu
version=$1 out=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0
# The compiler's own garbage collection is a third of the build; it collects only where memory would get short.
export GOGC=off GOMEMLIMIT=2GiB

go mod init slurmbridge.dev/coredns
go get -tool "github.com/coredns/coredns@$version"
mkdir -p "$out"
# Two builds at once need more memory than a small machine has; downloads above may overlap.
# shellcheck disable=SC2086  # one word per package
${GO_BUILD_LOCK:+flock "$GO_BUILD_LOCK"} go build -trimpath -ldflags "-s -w" -o "$out/coredns" github.com/coredns/coredns
"$out/coredns" -version
