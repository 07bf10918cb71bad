#!/bin/sh
# coredns.sh VERSION OUT: builds the CoreDNS binary of VERSION into OUT, from the Go module proxy alone.
set -eu
version=$1 out=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0

go mod init slurmbridge.dev/coredns
go get -tool "github.com/coredns/coredns@$version"
mkdir -p "$out"
go build -trimpath -ldflags "-s -w" -o "$out/coredns" github.com/coredns/coredns
"$out/coredns" -version
