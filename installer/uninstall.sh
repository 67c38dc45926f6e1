#!/usr/bin/env bash
# Removes Berth from this server: `sudo ./installer/uninstall.sh [--purge]`. See --help.
set -euo pipefail

usage() {
  cat <<'EOF'
Usage: uninstall.sh [--purge] [--data-dir DIR] [--dry-run]

Stops Berth, ends the sessions of this node and removes their containers, network and firewall rules, the units and
the executable. Data and configuration stay, so that installing again goes on with them.

  --purge         remove data and configuration too: users, history, logs, everything
  --data-dir DIR  where the data is, when the configuration does not tell (default /var/lib/berth)
  --dry-run       say what would be done, change nothing
EOF
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
prefix=${BERTH_INSTALL_ROOT:-}
data_dir=$prefix/var/lib/berth
# shellcheck source=installer/lib.sh
. "$here/lib.sh"

purge=no
chosen_dir=""

parse_arguments() {
  while [ $# -gt 0 ]; do
    case $1 in
      --purge) purge=yes && shift ;;
      --dry-run) dry_run=yes && shift ;;
      --data-dir)
        [ $# -ge 2 ] || die "--data-dir needs a value"
        data_dir=$2 chosen_dir=$2 && shift 2
        ;;
      --help | -h) usage && exit 0 ;;
      *) die "unknown option $1; see --help" ;;
    esac
  done
  check_path --data-dir "$data_dir"
}

# Told by Berth itself, a session's end reads as what it is; otherwise its container would only be missing later.
end_sessions() {
  [ -x "$binary_path" ] && [ "$dry_run" = no ] && main_pid manager >/dev/null || return 0
  step "Ending the sessions"
  local berth=(env -u BERTH_URL -u BERTH_TOKEN HOME="$data_dir/manager/tmp" BERTH_DATA_DIR="$data_dir/manager" "$binary_path")
  local node ids=()
  node=$(tool field "$data_dir/agent/identity.json" agentId 2>/dev/null) || return 0
  mapfile -t ids < <("${berth[@]}" ps --all-users --node "$node" --json 2>/dev/null | tool ids 2>/dev/null)
  [ "${#ids[@]}" -gt 0 ] || return 0
  timeout 60 "${berth[@]}" rm --wait "${ids[@]}" || warn "not every session could be ended through the manager"
}

stop_services() {
  step "Stopping Berth"
  local role
  for role in manager agent; do
    if has_systemd; then
      [ -e "$unit_dir/berth-$role.service" ] || continue
      run systemctl disable --now "berth-$role.service"
      run rm -f "$unit_dir/berth-$role.service"
    else
      run stop_background "$role"
    fi
  done
  if has_systemd; then run systemctl daemon-reload; fi
}

clear_node() {
  [ -e "$config_dir/agent.toml" ] && [ -x "$binary_path" ] || return 0
  step "Ending this node's sessions"
  if ! tool engine-ping 2>/dev/null; then
    warn "the container engine does not answer, so what sessions left in it stays there"
    return
  fi
  run "$binary_path" agent-cleanup --config "$config_dir/agent.toml" ||
    die "what the sessions of this node left could not be removed; see above, then run this again"
}

# A mount below the folder may be somebody's data: it is never deleted through.
refuse_mounts() {
  local mounts
  mounts=$(awk -v dir="$data_dir/" 'index($2, dir) == 1 { print $2 }' /proc/mounts)
  [ -z "$mounts" ] || die "these are still mounted below $data_dir, so nothing there was deleted:
$mounts"
}

remove_data() {
  step "Removing data and configuration"
  refuse_mounts
  run rm -rf --one-file-system "$data_dir/manager" "$data_dir/agent" "$config_dir"
  # Only when nothing of somebody else is in it.
  [ ! -d "$data_dir" ] || run rmdir "$data_dir" 2>/dev/null || say "$data_dir holds other things and stays."
}

main() {
  parse_arguments "$@"
  [ "$(id -u)" = 0 ] || die "must run as root: sudo $0"
  find_installation "$chosen_dir"
  end_sessions
  stop_services
  clear_node
  step "Removing $binary_path"
  run rm -f "$binary_path" "$binary_path.previous" "$binary_path.new"
  if [ "$purge" = yes ]; then
    remove_data
  else
    say "Kept: $data_dir and $config_dir (remove them with --purge)."
  fi
  say "The container engine and its configuration stay as they are."
}

main "$@"
