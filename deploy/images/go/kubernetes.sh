#!/bin/sh
# kubernetes.sh VERSION OUT: builds the Kubernetes binaries of VERSION into OUT, from the Go module proxy alone.
# The published module k8s.io/kubernetes points its staging modules at folders that the proxy does not carry,
# so a module of our own replaces each of them by the release that was published beside it.
set -eu
version=$1 out=$2
commands="kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl"
staging_version=v0.${version#v1.}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0

go mod init slurmbridge.dev/kubernetes
go_mod=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
sed -n 's#^\t\(k8s.io/[a-z0-9-]*\) => ./staging/.*#\1#p' "$go_mod" |
    while read -r module; do go mod edit -replace "$module=$module@$staging_version"; done

packages=""
for command in $commands; do packages="$packages k8s.io/kubernetes/cmd/$command"; done
# shellcheck disable=SC2046,SC2086  # one word per package
go get -tool $(for package in $packages; do echo "$package@$version"; done)

stamp=k8s.io/component-base/version
flags="-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=$(echo "$version" | cut -d. -f2)"
flags="$flags -X $stamp.gitTreeState=clean"
mkdir -p "$out"
# Two builds at once need more memory than a small machine has; downloads above may overlap.
# shellcheck disable=SC2086  # one word per package
${GO_BUILD_LOCK:+flock "$GO_BUILD_LOCK"} go build -trimpath -ldflags "$flags" -o "$out/" $packages
"$out/kubectl" version --client
