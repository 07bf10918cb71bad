#!/bin/sh
# Makes a plain Debian machine able to build the images and run the sandbox: installs what is missing with apt
# and starts dockerd where no init system does. Safe to run at any time; says in one line what it did.
set -eu

log_dir=$(cd "$(dirname "$0")/../.." && pwd)/.build/logs
mkdir -p "$log_dir"
did=""

missing_packages() {
    command -v docker >/dev/null && command -v dockerd >/dev/null || echo docker.io
    command -v debootstrap >/dev/null || echo debootstrap
    command -v iptables >/dev/null || echo iptables
    python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    [ -s /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
}

daemon_answers() {
    docker info >/dev/null 2>&1
}

# A client alone is enough when it already reaches a daemon (a remote one, or one started by hand).
install_missing() {
    packages=$(missing_packages | tr '\n' ' ')
    if daemon_answers; then packages=$(echo "$packages" | sed 's/docker\.io//'); fi
    [ -n "$(echo "$packages" | tr -d ' ')" ] || return 0
    if [ "$(id -u)" != 0 ]; then
        echo "bootstrap: missing $packages: run this as root, or install them with apt" >&2
        exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086  # the names are meant to be split
    if ! { apt-get update && apt-get install -y --no-install-recommends $packages; } >"$log_dir/bootstrap.log" 2>&1; then
        tail -20 "$log_dir/bootstrap.log" >&2
        echo "bootstrap: apt could not install $packages (full log: .build/logs/bootstrap.log)" >&2
        exit 1
    fi
    did="installed $packages"
}

# Without an init system dockerd is ours to start; a pid file left by a killed one would stop it.
launch_daemon() {
    if [ -d /run/systemd/system ]; then
        systemctl start docker
        return
    fi
    if ! pgrep -x dockerd >/dev/null; then rm -f /var/run/docker.pid; fi
    if ! pgrep -x containerd >/dev/null; then rm -f /run/containerd/containerd.pid; fi
    setsid nohup dockerd "$@" >>"$log_dir/dockerd.log" 2>&1 </dev/null &
}

wait_for_daemon() {
    tries=0
    until daemon_answers; do
        tries=$((tries + 1))
        [ "$tries" -lt 60 ] || return 1
        sleep 0.5
    done
}

start_daemon() {
    if daemon_answers; then return 0; fi
    if [ "$(id -u)" != 0 ]; then
        echo "bootstrap: no docker daemon answers: start one, or run this as root" >&2
        exit 1
    fi
    launch_daemon
    if ! wait_for_daemon; then
        # overlay2 needs kernel support that a nested machine may lack; vfs works everywhere, slower.
        echo "bootstrap: dockerd did not start with its default storage, trying vfs" >&2
        launch_daemon --storage-driver vfs
        wait_for_daemon || {
            tail -20 "$log_dir/dockerd.log" >&2
            echo "bootstrap: dockerd does not start (full log: .build/logs/dockerd.log)" >&2
            exit 1
        }
    fi
    did="$did${did:+, }started dockerd ($(docker info -f '{{.Driver}}'))"
}

install_missing
start_daemon
echo "bootstrap: ${did:-nothing to do}"
