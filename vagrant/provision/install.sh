#!/usr/bin/env bash
# Installs fastpath as a service of systemd: the program, these scripts, the unit, and settings where there are none yet.
#
#   install.sh PROGRAM        PROGRAM is bin/fastpath (for the DPDK of this system), or bin/fastpath-static (virtio only)
#   install.sh --uninstall    all of it but the settings in /etc/fastpath
#
# It starts nothing: settings are in /etc/fastpath/fastpath.env and fastpath.toml, then systemctl enable --now fastpath.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"

here=$(dirname "$(readlink -f "$0")")
root=${DESTDIR-}
lib=$root/usr/local/lib/fastpath
scripts=(lib.sh nic.sh hugepages.sh check.sh isolate.sh service.sh install.sh)

reload() {
	if [ -z "$root" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
}

# put FILE DIRECTORY [MODE]: a copy beside, which takes the old file's place at once.
put() {
	install -D -m "${3:-0755}" "$1" "$2/.${1##*/}.new"
	mv "$2/.${1##*/}.new" "$2/${4:-${1##*/}}"
}

case ${1-} in
--uninstall)
	[ -n "$root" ] || need_root "$@"
	if [ -z "$root" ] && [ -d /run/systemd/system ]; then systemctl disable --now fastpath.service 2>/dev/null || true; fi
	rm -rf "$lib" "$root/usr/local/bin/fastpath" "$root/etc/systemd/system/fastpath.service"
	reload
	say "removed; settings are left in $root/etc/fastpath"
	;;
'' | -*)
	usage
	[ "${1-}" = --help ] || exit 2
	;;
*)
	[ -n "$root" ] || need_root "$@"
	[ -f "$1" ] || die "there is no program $1: make build"
	"$1" version >/dev/null || die "$1 does not run here: libraries of DPDK (ldd $1), or another processor?"
	put "$1" "$root/usr/local/bin" 0755 fastpath
	for s in "${scripts[@]}"; do put "$here/$s" "$lib"; done
	put "$here/fastpath.service" "$root/etc/systemd/system" 0644
	mkdir -p "$root/etc/fastpath"
	[ -e "$root/etc/fastpath/fastpath.env" ] || put "$here/fastpath.env" "$root/etc/fastpath" 0644
	reload
	say "installed $("$1" version | head -n 1)"
	;;
esac
