#!/usr/bin/env bash
# Makes the checkout ready to build and test: the pinned Bun and the packages of bun.lock. Prints the path of
# Bun. What is there already is kept; nothing outside the checkout changes, but for npm where it is missing.
# With --find it changes nothing: it prints the path of Bun where it is there already, else nothing.
set -euo pipefail

install_npm() {
  command -v npm >/dev/null && return
  command -v apt-get >/dev/null || {
    echo "npm is needed to fetch Bun and this system has no apt-get: install npm and run this again." >&2
    exit 1
  }
  echo "Installing npm …" >&2
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends npm >&2
}

main() {
  local root version bun=""
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
  cd "$root"
  version=$(sed -n 's/.*"bun": "\([0-9.]*\)".*/\1/p' package.json | head -n 1)

  local candidate
  for candidate in node_modules/.bin/bun .tools/node_modules/.bin/bun; do
    if [ "$("./$candidate" --version 2>/dev/null || true)" = "$version" ]; then
      bun=$root/$candidate
      break
    fi
  done
  if [ "${1:-}" = --find ]; then
    echo "$bun"
    return
  fi
  if [ -z "$bun" ]; then
    install_npm
    echo "Fetching Bun $version …" >&2
    npm install --prefix .tools --no-audit --no-fund --no-save --loglevel=error "bun@$version" >&2
    bun=$root/.tools/node_modules/.bin/bun
  fi
  "$bun" install --frozen-lockfile >&2

  # Under sudo the checkout still belongs to the one who cloned it.
  local owner
  owner=$(stat -c %u:%g .)
  if [ "$(id -u)" = 0 ] && [ "${owner%%:*}" != 0 ]; then
    local made
    for made in node_modules .tools; do
      [ ! -e "$made" ] || chown -R "$owner" "$made"
    done
  fi
  echo "$bun"
}

main "$@" </dev/null
