#!/bin/sh
# pyslurm.sh VERSION OUT: builds a wheel of pyslurm against this container's libslurm into OUT.
# The published source refuses any Slurm but the one it was written for; its version file is all that says so.
set -eu
version=$1 out=$2
slurm_version=$(dpkg-query -W -f '${Version}' libslurm-dev | sed 's/^\([0-9]*\)\.0*\([0-9]*\)\..*/\1.\2.0/')

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install "cython<3.2" "setuptools<81" wheel packaging
venv/bin/pip download --no-deps --no-build-isolation --no-binary pyslurm "pyslurm==$version"
tar -xf pyslurm-*.tar.gz
cd "pyslurm-$version"
sed -i "s/^__version__ *=.*/__version__ = \"$slurm_version\"/" pyslurm/version.py
export SLURM_LIB_DIR=/usr/lib/x86_64-linux-gnu SLURM_INCLUDE_DIR=/usr/include
../venv/bin/pip wheel --no-build-isolation --no-deps --wheel-dir "$out" .
