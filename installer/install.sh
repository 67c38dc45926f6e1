#!/usr/bin/env bash
# Installs or upgrades Berth on this server: `sudo ./installer/install.sh`. See --help.
#
# It touches /usr/local/bin/berth, /etc/berth, the data folder, two systemd units and, so that sessions outlive a
# restart of the engine, one key of /etc/docker/daemon.json. Nothing else.
set -euo pipefail

usage() {
  cat <<'EOF'
Usage: install.sh [options]

Makes this server the manager and its first node. On further nodes:
  install.sh --agent --manager https://HOST:7410 --token TOKEN

Running it again upgrades; the executable before is kept as berth.previous.

  --binary FILE        install this executable instead of building the checkout
  --listen ADDR:PORT   address of dashboard and API (default 0.0.0.0:7410); agents dial the port after it
  --data-dir DIR       where all data goes (default /var/lib/berth)
  --agent              install an agent only; needs --manager and --token
  --manager URL        the manager that the agent joins
  --token TOKEN        join token, from `berth join-token create` on the manager
  --no-first-session   do not run a first session at the end
  --engine-only        only see to the container engine
  --dry-run            say what would be done, change nothing
  --help               this text
EOF
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# Tests install below a folder of their own, and then always without systemd.
prefix=${BERTH_INSTALL_ROOT:-}
data_dir=$prefix/var/lib/berth
# shellcheck source=installer/lib.sh
. "$here/lib.sh"
# shellcheck source=installer/engine.sh
. "$here/engine.sh"

min_kernel=5.6
min_disk_mib=4096
min_memory_mib=900

role=manager
chosen_dir=""
listen=""
manager_url=""
token=""
first_session=yes
fresh=no
engine_only=no

parse_arguments() {
  while [ $# -gt 0 ]; do
    case $1 in
      --binary | --listen | --data-dir | --manager | --token)
        [ $# -ge 2 ] || die "$1 needs a value"
        ;;
    esac
    case $1 in
      --binary) binary=$2 && shift 2 ;;
      --listen) listen=$2 && shift 2 ;;
      --data-dir) data_dir=$2 chosen_dir=$2 && shift 2 ;;
      --manager) manager_url=$2 && shift 2 ;;
      --token) token=$2 && shift 2 ;;
      --agent) role=agent && shift ;;
      --no-first-session) first_session=no && shift ;;
      --engine-only) engine_only=yes && shift ;;
      --dry-run) dry_run=yes && shift ;;
      --help | -h) usage && exit 0 ;;
      *) die "unknown option $1; see --help" ;;
    esac
  done
}

check_arguments() {
  if [ "$role" = agent ]; then
    [ -z "$listen" ] || die "--listen is the manager's; an agent listens on nothing"
    if [ ! -e "$config_dir/agent.toml" ]; then
      [ -n "$manager_url" ] || die "--agent needs --manager URL"
      [ -n "$token" ] || die "--agent needs --token; make one with: berth join-token create"
    fi
    case $manager_url in
      "" | https://* | http://*) ;;
      *) die "--manager is the manager's address, such as https://lab-server:7410" ;;
    esac
  elif [ -n "$manager_url$token" ]; then
    die "--manager and --token go with --agent"
  fi
  case $listen in
    "" | *:[0-9]*) ;;
    *) die "--listen takes ADDR:PORT, such as 0.0.0.0:7410" ;;
  esac
  check_path --data-dir "$data_dir"
  # Written into TOML files, where other characters would need quoting.
  case $listen$manager_url$token in
    *[!A-Za-z0-9_./:@%+~=[\]-]*) die "addresses and tokens may hold letters, digits and _./:@%+~=[]- only" ;;
  esac
}

at_least() { # HAVE WANTED: compares versions
  [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

existing_parent() {
  local path=$1
  while [ ! -d "$path" ]; do path=$(dirname "$path"); done
  echo "$path"
}

check_machine() {
  [ "$(id -u)" = 0 ] || die "must run as root: sudo $0"
  [ "$(uname -s)" = Linux ] || die "Berth runs on Linux"
  case $(uname -m) in
    x86_64 | aarch64) ;;
    *) die "Berth runs on x86_64 and aarch64; this is $(uname -m)" ;;
  esac
  at_least "$(uname -r)" "$min_kernel" || die "the kernel is $(uname -r); Berth needs $min_kernel or newer"

  local libc wanted=2.17
  [ "$role" = agent ] || wanted=2.34
  libc=$(getconf GNU_LIBC_VERSION 2>/dev/null | awk '{ print $2 }') || true
  [ -n "$libc" ] || die "Berth needs glibc; this system has another C library"
  at_least "$libc" "$wanted" || die "glibc is $libc; the $role needs $wanted or newer"

  local disk memory
  disk=$(df --output=avail -m "$(existing_parent "$data_dir")" | tail -n 1 | tr -d ' ')
  [ "$disk" -ge "$min_disk_mib" ] ||
    die "$data_dir has $disk MiB free; Berth needs at least $min_disk_mib MiB (or another place: --data-dir)"
  memory=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
  [ "$memory" -ge "$min_memory_mib" ] ||
    die "this machine has $memory MiB of memory; Berth needs at least $min_memory_mib MiB"
}

find_binary() {
  if [ -n "$binary" ]; then
    binary=$(readlink -f "$binary") || die "--binary: no such file"
    [ -x "$binary" ] || die "--binary: $binary is not an executable file"
    env -u BUN_BE_BUN "$binary" version >/dev/null || die "--binary: $binary does not run on this machine"
    return
  fi
  [ -f "$here/../build.ts" ] || die "this is no checkout of Berth: give the executable with --binary FILE"
  step "Preparing to build"
  bun=$("$here/toolchain.sh")
  binary=$(cd "$here/.." && pwd)/dist/berth
  [ "$engine_only" = no ] || return 0
  step "Building"
  run "$bun" "$here/../build.ts"
  # Under sudo the checkout still belongs to the one who cloned it.
  run chown -R --reference="$here/.." "$(dirname "$binary")"
}

# --- files ----------------------------------------------------------------------------------------------------------

install_binary() {
  step "Installing $binary_path"
  if [ -e "$binary_path" ] && cmp -s "$binary" "$binary_path"; then
    say "It is this version already."
    return
  fi
  run mkdir -p "$(dirname "$binary_path")"
  run install -m 0755 "$binary" "$binary_path.new"
  [ ! -e "$binary_path" ] || run cp -p "$binary_path" "$binary_path.previous"
  # A rename, so that what runs keeps its file.
  run mv -f "$binary_path.new" "$binary_path"
}

write_file() { # PATH MODE, text on stdin
  if [ "$dry_run" = yes ]; then
    say "would write $1:"
    sed 's/^\(token = \).*/\1…/; s/^/    /'
    return
  fi
  (umask 077 && cat >"$1.new")
  chmod "$2" "$1.new"
  mv -f "$1.new" "$1"
}

make_folders() {
  run install -d -m 0755 "$config_dir"
  run install -d -m 0755 "$data_dir"
  [ "$role" = agent ] || run install -d -m 0700 "$data_dir/manager" "$data_dir/manager/tmp"
  run install -d -m 0700 "$data_dir/agent" "$data_dir/agent/tmp"
}

write_manager_config() {
  local file=$config_dir/manager.toml
  if [ -e "$file" ]; then
    say "$file is kept as it is."
    if [ -n "$listen" ] && ! grep -qF "\"$listen\"" "$file"; then
      warn "--listen $listen is not what $file says: change it there and run this again"
    fi
    return
  fi
  fresh=yes
  write_file "$file" 0600 <<EOF
# Configuration of the manager; docs/configuration.md tells every key. Check it with: berth config check manager
listen = "${listen:-0.0.0.0:7410}"
data-dir = "$data_dir/manager"
EOF
}

write_agent_config() { # URL TOKEN
  write_file "$config_dir/agent.toml" 0600 <<EOF
# Configuration of the agent; docs/configuration.md tells every key. Check it with: berth config check agent
manager = "$1"
token = "$2"
data-dir = "$data_dir/agent"
EOF
}

# The token has done its work as soon as the agent has a certificate.
forget_token() {
  [ "$dry_run" = no ] || return 0
  grep -v '^token = ' "$config_dir/agent.toml" | write_file "$config_dir/agent.toml" 0600
}

# --- services -------------------------------------------------------------------------------------------------------

install_unit() { # NAME
  sed "s#/var/lib/berth#$data_dir#g; s#/usr/local/bin/berth#$binary_path#g; s#/etc/berth#$config_dir#g" \
    "$here/../systemd/$1.service" | write_file "$unit_dir/$1.service" 0644
  run systemctl daemon-reload
  run systemctl enable -q "$1.service"
}

start_service() { # ROLE
  if has_systemd; then
    install_unit "berth-$1"
    run systemctl restart "berth-$1.service"
  elif [ "$dry_run" = yes ]; then
    say "would start in the background: $binary_path $1 --config $config_dir/$1.toml"
  else
    start_background "$1"
  fi
}

service_log() { # ROLE
  if has_systemd; then
    journalctl -u "berth-$1" -n 30 --no-pager -o cat 2>/dev/null || true
  else
    tail -n 30 "$data_dir/$1/$1.log" 2>/dev/null || true
  fi
}

local_berth() {
  env -u BERTH_URL -u BERTH_TOKEN HOME="$data_dir/manager/tmp" BERTH_DATA_DIR="$data_dir/manager" \
    "$binary_path" "$@"
}

# The address under which the manager is reached from this machine.
local_url() {
  local address host port tried
  address=$(config_value "$config_dir/manager.toml" listen)
  port=${address##*:}
  host=${address%:*}
  case $host in
    "" | 0.0.0.0 | "[::]" | "*") host=127.0.0.1 ;;
  esac
  for tried in https http; do
    if tool healthy "$tried://$host:$port/healthz" >/dev/null 2>&1; then
      echo "$tried://$host:$port"
      return
    fi
  done
  return 1
}

install_manager() {
  write_manager_config
  step "Starting the manager"
  start_service manager
  [ "$dry_run" = no ] || return 0
  wait_until 60 local_url >/dev/null || {
    service_log manager >&2
    die "the manager does not answer; its last words are above"
  }
  say "The manager answers at $(local_url)."
}

agent_joined() { [ -s "$data_dir/agent/identity.json" ]; }

agent_ready() { tool agents-ready "$(local_url)" >/dev/null 2>&1; }

install_agent() {
  step "Starting the agent"
  if agent_joined && [ -e "$config_dir/agent.toml" ]; then
    say "This node has joined before; $config_dir/agent.toml is kept as it is."
    start_service agent
    return
  fi
  if [ "$role" = manager ]; then
    if [ "$dry_run" = yes ]; then
      token=TOKEN manager_url=URL
    else
      manager_url=$(local_url)
      token=$(local_berth join-token create --ttl 10m 2>"$data_dir/manager/tmp/join-token.err") ||
        die "no join token: $(cat "$data_dir/manager/tmp/join-token.err")"
      rm -f "$data_dir/manager/tmp/join-token.err"
    fi
  fi
  write_agent_config "$manager_url" "$token"
  start_service agent
  [ "$dry_run" = no ] || return 0
  wait_until 60 agent_joined || {
    service_log agent >&2
    die "the agent did not join $manager_url; its last words are above"
  }
  forget_token
}

# --- the first session ----------------------------------------------------------------------------------------------

run_first_session() {
  local admin=$data_dir/manager/initial-admin.json
  if [ ! -s "$admin" ]; then
    say "No first session: the first administrator's password file is gone, so this was installed before."
    return
  fi
  step "Running a first session"
  # A home of its own: no login of ours is left behind.
  local home url certificate code=0
  home=$(mktemp -d "$data_dir/manager/tmp/first.XXXXXX")
  url=$(local_url)
  # The manager's own certificate is not known to this machine; the lab's own one may not be either.
  certificate=$(config_value "$config_dir/manager.toml" tls-cert)
  local client=(env -u BERTH_URL -u BERTH_TOKEN -u XDG_CONFIG_HOME "HOME=$home"
    "BERTH_FINGERPRINT=$(tool fingerprint "${certificate:-$data_dir/manager/https.pem}" 2>/dev/null || true)" "$binary_path")
  if ! tool field "$admin" password |
    "${client[@]}" login "$url" --email "$(tool field "$admin" email)" --password-stdin >"$home/out" 2>&1; then
    local words
    words=$(cat "$home/out")
    rm -rf "$home"
    [ "$fresh" = no ] || die "signing in as the first administrator failed: $words"
    # The password in that file is meant to be changed after the first sign-in.
    say "No first session, because signing in as the first administrator failed: $words"
    return
  fi
  # shellcheck disable=SC2016 # for the shell inside the session
  "${client[@]}" run --name first-session --cpu 0.1 --mem 64m --timeout 2m -- \
    sh -c 'echo "Hello from a session of Berth: $(id -un) on $(uname -n), $(date)"' || code=$?
  "${client[@]}" logout >/dev/null 2>&1 || true
  rm -rf "$home"
  [ "$code" = 0 ] || die "the first session ended with code $code: see berth ps --all and $data_dir"
}

public_url() {
  local url=$1 address
  address=$(config_value "$config_dir/manager.toml" listen)
  case ${address%:*} in
    "" | 0.0.0.0 | "[::]" | "*") echo "${url%%://*}://$(hostname -f 2>/dev/null || hostname):${address##*:}" ;;
    *) echo "$url" ;;
  esac
}

conclude() {
  [ "$dry_run" = no ] || { step "Nothing was changed (--dry-run)." && return; }
  step "Berth is installed"
  if [ "$role" = manager ]; then
    say "Address:   $(public_url "$(local_url)")"
    say "Sign in:   the first administrator's e-mail and password are in $data_dir/manager/initial-admin.json"
    say "Next node: berth join-token create, then there: install.sh --agent --manager URL --token TOKEN"
  else
    say "This node has joined $(config_value "$config_dir/agent.toml" manager)."
  fi
  has_systemd || say "There is no systemd here: Berth runs in the background (pid files $data_dir/*/*.pid, logs beside \
them) and does not come back by itself after a restart of this machine; run install.sh again then."
}

main() {
  parse_arguments "$@"
  check_arguments
  find_installation "$chosen_dir"
  check_machine
  find_binary
  see_to_engine
  [ "$engine_only" = no ] || return 0
  install_binary
  make_folders
  [ "$role" = agent ] || install_manager
  install_agent
  if [ "$role" = manager ] && [ "$dry_run" = no ]; then
    wait_until 60 agent_ready || {
      service_log agent >&2
      die "the node is not ready; the agent's last words are above"
    }
    [ "$first_session" = no ] || run_first_session
  fi
  conclude
}

main "$@"
