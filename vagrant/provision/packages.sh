#!/usr/bin/env bash
# Installs Debian packages whose commands are missing: `packages.sh COMMAND:PACKAGE...`
set -euo pipefail
missing=()
for p in "$@"; do
	command -v "${p%%:*}" >/dev/null || missing+=("${p#*:}")
done
[ ${#missing[@]} -gt 0 ] || exit 0
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
