#!/usr/bin/env bash
# The container engine: installed where there is none, started, and set so that sessions outlive its restarts.
# Sourced by install.sh.
# shellcheck disable=SC2154 # set by lib.sh

engine_config=/etc/docker/daemon.json

refuse_snap() { # WHERE, or nothing
  [ -z "$1" ] || die "Docker is installed as a snap ($1), which cannot see scratch disks and folders of this machine. \
Remove it (snap remove docker) and run this again: it then installs the distribution's Docker."
}

# What Berth's agent calls or the engine needs, as COMMAND=PACKAGE of Debian; docker-init is the sessions' process 1.
node_commands=(docker-init=tini ip=iproute2 iptables=iptables mkfs.ext4=e2fsprogs losetup=mount)

missing_packages() {
  local pair
  for pair in "${node_commands[@]}"; do
    PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%=*}" >/dev/null || echo "${pair#*=}"
  done
  engine_answers || PATH=$PATH:/usr/sbin command -v dockerd >/dev/null || echo docker.io
}

install_engine() {
  local packages
  mapfile -t packages < <(missing_packages)
  [ "${#packages[@]}" -gt 0 ] || return 0
  command -v apt-get >/dev/null || die "this system lacks what the Debian packages ${packages[*]} hold, and has no \
apt-get to install them: install these (Docker 20.10 or newer) and run this again"
  step "Installing ${packages[*]}"
  run apt-get update -qq
  # Another installation may hold the lock for a while.
  run env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -qq -y \
    --no-install-recommends "${packages[@]}" >/dev/null
}

engine_answers() { tool engine-ping >/dev/null 2>&1; }

start_engine() {
  step "Starting Docker"
  if has_systemd; then
    run systemctl enable --now docker.service
  elif [ "$dry_run" = no ]; then
    mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup
    PATH=$PATH:/usr/sbin:/sbin setsid nohup dockerd </dev/null >/var/log/dockerd.log 2>&1 &
  fi
  [ "$dry_run" = yes ] || wait_until 60 engine_answers || die "Docker does not answer: see journalctl -u docker or \
/var/log/dockerd.log"
}

engine_fact() { tool engine-facts | sed -n "s/^$1=//p"; }

live_restore_on() { [ "$(engine_fact live_restore)" = true ]; }

keep_sessions_over_engine_restarts() {
  if engine_answers && live_restore_on; then return; fi
  step "Setting live-restore in $engine_config, so that sessions outlive a restart of Docker"
  if engine_answers && [ "$(engine_fact swarm)" = active ]; then
    warn "this engine is part of a Swarm, which excludes live-restore: a restart of Docker will end sessions"
    return
  fi
  run mkdir -p "$(dirname "$engine_config")"
  run tool engine-live-restore "$engine_config" ||
    die "$engine_config is not valid JSON: mend it, or add \"live-restore\": true yourself"
  [ "$dry_run" = no ] || return 0
  engine_answers || return 0
  # The engine reads this key again on SIGHUP, without a restart that would end what runs.
  if has_systemd; then systemctl reload docker.service; else kill -HUP "$(cat /var/run/docker.pid)"; fi
  wait_until 10 live_restore_on || warn "Docker did not take live-restore: it will after its next restart"
}

# Asking the engine takes a program that runs our tools; a dry run fetches none.
can_ask() { [ -n "$bun" ] || [ -x "$binary" ] || [ -x "$binary_path" ]; }

see_to_engine() {
  refuse_snap "$(find /snap/bin/docker /var/snap/docker -maxdepth 0 2>/dev/null | head -n 1)"
  if [ "$dry_run" = yes ] && ! can_ask; then
    say "would see whether Docker 20.10 or newer answers, install it where there is none, start it and set live-restore"
    return
  fi
  install_engine
  if ! engine_answers; then
    keep_sessions_over_engine_restarts
    start_engine
  fi
  [ "$dry_run" = no ] || engine_answers || return 0
  keep_sessions_over_engine_restarts
  local version
  version=$(engine_fact version)
  at_least "$version" 20.10 || die "Docker is $version; Berth needs 20.10 or newer"
  say "Docker $version answers."
}
