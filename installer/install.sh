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

Running it again upgrades; the executable before is kept as berth.previous. A new --token makes a node join anew, also
one that was removed.

  --binary FILE        install this executable instead of building the checkout
  --listen ADDR:PORT   address of the API (default 0.0.0.0:7410); agents dial the port after it
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
# A full node keeps a session waiting, and its own time limit counts only while it runs.
first_session_seconds=${BERTH_FIRST_SESSION_SECONDS:-60}

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
  binary=$(cd "$here/.." && pwd)/dist/berth
  if [ "$dry_run" = yes ]; then
    bun=$("$here/toolchain.sh" --find)
    say "would run: $here/toolchain.sh (fetches Bun and the packages of bun.lock into the checkout, and npm by apt-get \
where there is none)"
    [ "$engine_only" = yes ] || say "would run: ${bun:-bun} $here/../build.ts"
    return
  fi
  step "Preparing to build"
  bun=$("$here/toolchain.sh")
  [ "$engine_only" = no ] || return 0
  step "Building"
  run "$bun" "$here/../build.ts"
  # Under sudo the checkout still belongs to the one who cloned it.
  run chown -R --reference="$here/.." "$(dirname "$binary")"
}

# --- files ----------------------------------------------------------------------------------------------------------

# Version and commit of an executable; nothing for one that does not tell.
version_of() { # FILE
  env -u BUN_BE_BUN "$1" version --client 2>/dev/null || true
}

install_binary() {
  step "Installing $binary_path"
  if [ -e "$binary_path" ] && cmp -s "$binary" "$binary_path"; then
    say "It is this version already."
    return
  fi
  local installed=""
  # Two builds of one commit differ in their bytes; the one before them is what going back means.
  installed=$(version_of "$binary_path")
  if [ -n "$installed" ] && [ "$installed" = "$(version_of "$binary")" ]; then
    say "It is this version already, in another build; berth.previous stays."
  else
    installed=""
  fi
  run mkdir -p "$(dirname "$binary_path")"
  run install -m 0755 "$binary" "$binary_path.new"
  [ -n "$installed" ] || [ ! -e "$binary_path" ] || run cp -p "$binary_path" "$binary_path.previous"
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
  if [ "$dry_run" = no ]; then
    stop_service "$1"
    refuse_others "$1"
  fi
  if has_systemd; then
    install_unit "berth-$1"
    run systemctl start "berth-$1.service"
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

# Waits for a sign of life of the process that was started; its end, where nothing starts it again, ends the wait.
wait_for_service() { # ROLE COMMAND…
  local role=$1 pid left=300
  shift
  pid=$(cat "$(pid_file "$role")" 2>/dev/null) || true
  until "$@"; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || return 1
    if ! has_systemd && [ ! -e "/proc/$pid" ]; then
      rm -f "$(pid_file "$role")"
      return 1
    fi
    sleep 0.2
  done
}

local_berth() {
  env -u BERTH_URL -u BERTH_TOKEN HOME="$data_dir/manager/tmp" BERTH_DATA_DIR="$data_dir/manager" \
    "$binary_path" "$@"
}

# Whether our own process is the one that answers: another may hold the port while ours is about to fail.
manager_answers() {
  local pid address
  address=$(config_value "$config_dir/manager.toml" listen)
  pid=$(main_pid manager) && tool listens "$pid" "${address##*:}" >/dev/null 2>&1 && local_url >/dev/null
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
  wait_for_service manager manager_answers || {
    service_log manager >&2
    die "the manager did not start; its last words are above"
  }
  say "The manager answers at $(local_url)."
}

agent_field() { # FILE NAME
  [ -s "$data_dir/agent/$1" ] && tool field "$data_dir/agent/$1" "$2" 2>/dev/null
}

agent_removed() { grep -q '"removedAt"' "$data_dir/agent/identity.json" 2>/dev/null; }

agent_joined() { [ -s "$data_dir/agent/identity.json" ] && [ -e "$config_dir/agent.toml" ] && ! agent_removed; }

# The file is the agent's own word, taken only from the process that was started.
agent_connected() {
  [ "$(agent_field status.json state)" = connected ] && [ "$(agent_field status.json pid)" = "$(main_pid agent)" ]
}

# It is known how it went: what failed or was refused need not be waited for.
agent_settled() {
  case $(agent_field status.json state) in
    connected | failed | refused) ;;
    *) return 1 ;;
  esac
}

agent_ready() { tool agents-ready "$(local_url)" >/dev/null 2>&1; }

local_join_token() {
  local_berth join-token create --ttl 10m 2>"$data_dir/manager/tmp/join-token.err" ||
    die "no join token: $(cat "$data_dir/manager/tmp/join-token.err")"
}

# Puts manager and token where the agent looks for them; other lines of an agent.toml that is there stay.
set_agent_config() {
  local file=$config_dir/agent.toml
  if [ ! -e "$file" ]; then
    write_agent_config "$manager_url" "$token"
    return
  fi
  {
    if [ -n "$manager_url" ]; then printf 'manager = "%s"\n' "$manager_url"; else grep '^manager *=' "$file" || true; fi
    [ -z "$token" ] || printf 'token = "%s"\n' "$token"
    grep -v '^\(manager\|token\) *=' "$file" || true
  } | write_file "$file" 0600
}

# A node that was in a cluster stays in it when it cannot join another.
back_to_before() { # COPY
  [ -e "$1" ] || return 0
  mv -f "$1" "$config_dir/agent.toml"
  start_service agent
}

start_agent() { # COPY of the agent.toml before, for a node that has joined
  [ "$dry_run" = yes ] || rm -f "$data_dir/agent/status.json"
  start_service agent
  [ "$dry_run" = no ] || return 0
  if ! wait_for_service agent agent_settled || ! agent_connected; then
    local words
    words=$(agent_field status.json message) || true
    service_log agent >&2
    back_to_before "$1"
    die "the agent has no link to the manager${words:+: $words} (its last words are above)"
  fi
  rm -f "$1"
}

install_agent() {
  step "Starting the agent"
  local before=$config_dir/agent.toml.before
  if agent_joined && [ -z "$manager_url$token" ]; then
    say "This node has joined before; $config_dir/agent.toml is kept as it is."
    start_agent "$before"
    return
  fi
  if agent_joined && [ "$dry_run" = no ]; then cp -p "$config_dir/agent.toml" "$before"; fi
  if [ "$role" = manager ]; then
    if [ "$dry_run" = yes ]; then
      token=TOKEN manager_url=URL
    else
      manager_url=$(local_url)
      token=$(local_join_token)
      rm -f "$data_dir/manager/tmp/join-token.err"
    fi
  elif [ -z "$token" ] && ! agent_joined; then
    die "this node was removed from its cluster, or never joined one: give --manager URL and --token TOKEN; make a token \
with: berth join-token create"
  fi
  set_agent_config
  start_agent "$before"
  forget_token
}

# --- the first session ----------------------------------------------------------------------------------------------

first_admin=""
# Whether the first administrator's password is still the one in the file: yes, no, gone.
first_password=gone
client=()
client_home=""

# Signs in as the first administrator, with a home of its own: no login of ours is left behind.
sign_in() {
  first_admin=$data_dir/manager/initial-admin.json
  [ -s "$first_admin" ] || return 0
  local url certificate words
  client_home=$(mktemp -d "$data_dir/manager/tmp/first.XXXXXX")
  url=$(local_url)
  # The manager's own certificate is not known to this machine; the lab's own one may not be either.
  certificate=$(config_value "$config_dir/manager.toml" tls-cert)
  client=(env -u BERTH_URL -u BERTH_TOKEN -u XDG_CONFIG_HOME "HOME=$client_home"
    "BERTH_FINGERPRINT=$(tool fingerprint "${certificate:-$data_dir/manager/https.pem}" 2>/dev/null || true)" "$binary_path")
  if tool field "$first_admin" password |
    "${client[@]}" login "$url" --email "$(tool field "$first_admin" email)" --password-stdin >"$client_home/out" 2>&1; then
    first_password=yes
    return
  fi
  words=$(cat "$client_home/out")
  rm -rf "$client_home"
  [ "$fresh" = no ] || die "signing in as the first administrator failed: $words"
  first_password=no
}

sign_out() {
  [ "$first_password" = yes ] || return 0
  "${client[@]}" logout >/dev/null 2>&1 || true
  rm -rf "$client_home"
}

sessions_live() { [ -n "$(local_berth ps --all-users --quiet 2>/dev/null)" ]; }

process_gone() { [ ! -e "/proc/$1" ]; }

run_first_session() {
  if [ "$first_password" != yes ]; then
    say "No first session: this was installed before, and the first administrator's password is no longer the first one."
    return
  fi
  if [ "$fresh" = no ] && sessions_live; then
    say "No first session: this was installed before, and sessions live here."
    return
  fi
  step "Running a first session"
  local pid code=0
  # shellcheck disable=SC2016 # for the shell inside the session
  "${client[@]}" run --name first-session --cpu 0.1 --mem 64m --timeout 2m -- \
    sh -c 'echo "Hello from a session of Berth: $(id -un), $(date)"' </dev/null &
  pid=$!
  if ! wait_until "$first_session_seconds" process_gone "$pid"; then
    say "The first session has not ended after $first_session_seconds s, so it is removed again. What is known of it:"
    "${client[@]}" show first-session || true
    "${client[@]}" rm --force first-session || true
    # Without its session the command ends; what does not is not waited for.
    wait_until 10 process_gone "$pid" || kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    return
  fi
  wait "$pid" || code=$?
  [ "$code" = 0 ] || die "the first session ended with code $code: see berth ps --all and $data_dir"
  if "${client[@]}" show first-session --json >"$client_home/session" 2>/dev/null; then
    say "It ran on the node $(tool field "$client_home/session" agent)."
  fi
}

public_url() {
  local url=$1 address
  address=$(config_value "$config_dir/manager.toml" listen)
  case ${address%:*} in
    "" | 0.0.0.0 | "[::]" | "*") echo "${url%%://*}://$(hostname -f 2>/dev/null || hostname):${address##*:}" ;;
    *) echo "$url" ;;
  esac
}

sign_in_words() {
  case $first_password in
    yes) echo "the first administrator's e-mail and password are in $first_admin; change the password (berth user passwd), \
then delete the file" ;;
    no) echo "as before; the first password in $first_admin does not hold any more: delete the file" ;;
    gone) echo "as before" ;;
  esac
}

conclude() {
  [ "$dry_run" = no ] || { step "Nothing was changed (--dry-run)." && return; }
  step "Berth is installed"
  if [ "$role" = manager ]; then
    say "Address:   $(public_url "$(local_url)")"
    say "Sign in:   $(sign_in_words)"
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
    wait_for_service agent agent_ready || {
      service_log agent >&2
      die "the node is not ready; the agent's last words are above"
    }
    sign_in
    [ "$first_session" = no ] || run_first_session
    sign_out
  fi
  conclude
}

main "$@"
