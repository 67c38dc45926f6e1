#!/usr/bin/env bash
# What install.sh and uninstall.sh share: words, places, and the processes of a server without systemd.
# Sourced, never run. Expects `here`, `prefix` and `data_dir`.
# shellcheck disable=SC2154,SC2034 # set and used by the scripts that source this

binary_path=$prefix/usr/local/bin/berth
config_dir=$prefix/etc/berth
unit_dir=/etc/systemd/system
dry_run=no
bun=""
binary=""

say() { printf '%s\n' "$*"; }
step() { printf '\n— %s\n' "$*"; }
warn() { printf 'Warning: %s\n' "$*" >&2; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# Carries a command out, or only names it.
run() {
  if [ "$dry_run" = yes ]; then
    say "would run: $*"
  else
    "$@"
  fi
}

# JSON, HTTPS and the engine's socket, by the Bun of the checkout or by the one inside berth.
tool() {
  # What it asks is on this machine, never behind a proxy.
  local clean=(env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY -u all_proxy -u ALL_PROXY)
  if [ -n "$bun" ]; then
    "${clean[@]}" "$bun" "$here/tools.ts" "$@"
  else
    local program=$binary_path
    [ ! -x "$binary" ] || program=$binary
    "${clean[@]}" BUN_BE_BUN=1 "$program" "$here/tools.ts" "$@"
  fi
}

wait_until() { # SECONDS COMMAND…
  local left=$(($1 * 5))
  shift
  until "$@"; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || return 1
    sleep 0.2
  done
}

# Tests install below a folder of their own, and then always without systemd.
has_systemd() { [ -z "$prefix" ] && [ -d /run/systemd/system ]; }

check_path() { # OPTION PATH
  case $2 in
    / | "") die "$1: $2 cannot be the data folder" ;;
    # It is written into units and TOML files, where other characters would need quoting of two kinds.
    /*[!A-Za-z0-9_./@%+=-]*) die "$1: the path may hold letters, digits and _./@%+=- only" ;;
    */../* | */..) die "$1: the path may not climb with .." ;;
    /*) ;;
    *) die "$1 must be an absolute path" ;;
  esac
}

config_value() { # FILE KEY
  sed -n "s/^$2 *= *\"\(.*\)\" *\$/\1/p" "$1" | tail -n 1
}

# The data folder of an installation that is here already, so that an upgrade need not be told.
find_installation() { # the --data-dir given, if any
  local file installed=""
  for file in "$config_dir/manager.toml" "$config_dir/agent.toml"; do
    [ -e "$file" ] || continue
    installed=$(config_value "$file" data-dir)
    break
  done
  [ -n "$installed" ] || return 0
  installed=${installed%/*}
  [ -z "$1" ] || [ "$1" = "$installed" ] || die "Berth is installed with the data folder $installed, not $1"
  data_dir=$installed
}

pid_file() { echo "$data_dir/$1/$1.pid"; } # ROLE

# The pid of our own process of that role; a number that another process has by now is not taken for it.
running_pid() { # ROLE
  local pid
  pid=$(cat "$(pid_file "$1")" 2>/dev/null) || return 1
  # A pid file may be stale: the shell itself would complain of a missing file, so its words go first.
  [ -n "$pid" ] && tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF "$binary_path $1 --config" || return 1
  echo "$pid"
}

# The pid of the role's process, however it was started; fails when there is none.
main_pid() { # ROLE
  local pid
  if has_systemd; then
    pid=$(systemctl show -p MainPID --value "berth-$1.service" 2>/dev/null) || return 1
    [ "${pid:-0}" != 0 ] || return 1
    echo "$pid"
  else
    running_pid "$1"
  fi
}

# The manager or agent that has the data folder, whoever started it. The lock goes with its process.
lock_holder() { # ROLE
  local file=$data_dir/$1/lock
  [ "$1" = manager ] || file=$data_dir/$1/$1.lock
  [ -e "$file" ] && command -v flock >/dev/null && ! flock -n "$file" true || return 1
  cat "$file"
}

stop_service() { # ROLE
  if has_systemd; then
    [ ! -e "$unit_dir/berth-$1.service" ] || systemctl stop "berth-$1.service"
  else
    stop_background "$1"
  fi
}

# Nothing of ours may have the data folder any more: a process that was started by hand is its starter's to end.
refuse_others() { # ROLE
  local pid
  ! pid=$(lock_holder "$1") || die "another $1 runs on $data_dir/$1 (process $pid), which this script did not start: \
stop it (kill $pid) and run this again"
}

stop_background() { # ROLE
  local pid
  if pid=$(running_pid "$1"); then
    kill "$pid"
    wait_until 15 test ! -e "/proc/$pid" || kill -9 "$pid"
  fi
  rm -f "$(pid_file "$1")"
}

start_background() { # ROLE
  stop_background "$1"
  # A clean environment, as a unit has it.
  env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    TMPDIR="$data_dir/$1/tmp" setsid nohup "$binary_path" "$1" --config "$config_dir/$1.toml" \
    </dev/null >>"$data_dir/$1/$1.log" 2>&1 &
  echo $! >"$(pid_file "$1")"
}
