#!/bin/sh
# rootfs.sh OUT.tar: a minimal Debian forky file system, for machines that reach apt's mirror but no image registry.
# The mirror is the one the host's own apt uses.
set -eu
out=$1
suite=forky

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mirror=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(COMPONENT)' 'Created-By: Packages' |
    awk '$2 == "Debian" && $3 == "main" && $1 !~ /security/ { print $1; exit }')
[ -n "$mirror" ] || { echo "rootfs: apt on this machine has no Debian mirror: add one to its sources, run apt-get update" >&2; exit 1; }
case $mirror in *snapshot*) ;; *) mirror=${mirror%/} ;; esac

# The third argument is debootstrap's script: an older debootstrap does not know the suite's name, and sid fits.
debootstrap --variant=minbase "$suite" "$work/root" "$mirror" sid

# A frozen mirror's index is older than its validity says; documentation only makes every node's images larger.
cat >"$work/root/etc/apt/apt.conf.d/90slurm-bridge" <<'CONF'
Acquire::Check-Valid-Until "false";
APT::Install-Recommends "false";
CONF
cat >"$work/root/etc/dpkg/dpkg.cfg.d/90slurm-bridge" <<'CONF'
path-exclude /usr/share/doc/*
path-exclude /usr/share/man/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/info/*
CONF
rm -rf "$work/root"/usr/share/doc/* "$work/root"/usr/share/man/* "$work/root"/usr/share/locale/* \
    "$work/root"/var/cache/apt/* "$work/root"/var/lib/apt/lists/* "$work/root"/var/log/*.log
tar -C "$work/root" -c . >"$out"
