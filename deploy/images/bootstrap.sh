#!/bin/sh
# bootstrap.sh [python|docker|all]: makes a plain Debian machine able to build the images and run the sandbox. Installs
# what is missing with apt and starts dockerd where no init system does. Safe to run at any time; says what it did.
set -eu

part=${1:-all}
case $part in
python | docker | all) ;;
*)
    echo "bootstrap: there is no part $part: choose python, docker or all" >&2
    exit 1
    ;;
esac

log_dir=$(cd "$(dirname "$0")/../.." && pwd)/.build/logs
mkdir -p "$log_dir"
did=""

missing_packages() {
    [ -s /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
    if [ "$part" != docker ]; then
        python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    fi
    if [ "$part" != python ]; then
        # A client alone is enough when it already reaches a daemon (a remote one, or one started by hand).
        { command -v docker && { command -v dockerd || daemon_answers; }; } >/dev/null || echo docker.io
        command -v debootstrap >/dev/null || echo debootstrap
        command -v iptables >/dev/null || echo iptables
    fi
}

daemon_answers() {
    docker info >/dev/null 2>&1
}

install_missing() {
    packages=$(missing_packages | tr '\n' ' ')
    [ -n "$packages" ] || return 0
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
    if ! pidof dockerd >/dev/null; then rm -f /var/run/docker.pid /var/run/docker/containerd/containerd.pid; fi
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
if [ "$part" != python ]; then start_daemon; fi
if [ -n "$did" ]; then echo "bootstrap: $did"; fi
