# shellcheck shell=bash
# What the scripts of this directory share. They source it after `set -euo pipefail`.

# Trees of the kernel; tests have their own.
SYS=${FASTPATH_SYS:-/sys}
# shellcheck disable=SC2034 # of those that source this
PROC=${FASTPATH_PROC:-/proc}
# What was changed, so that it can be restored. Gone after a reboot, as the changes are.
STATE=${FASTPATH_STATE:-/run/fastpath-host}
umask 022 # all may read it

say() { echo "${0##*/}: $*"; }
warn() { echo "${0##*/}: $*" >&2; }
die() {
	warn "$*"
	exit 1
}

need_root() {
	[ "$(id -u)" = 0 ] || die "needs root: sudo $0 $*"
}

# value FILE: its first line; nothing if it cannot be read.
value() {
	local v=
	if [ -r "$1" ]; then IFS= read -r v <"$1" 2>/dev/null || true; fi
	echo "$v"
}

# poke VALUE FILE: tells the kernel something; fails if it refuses.
poke() {
	echo "$1" 2>/dev/null >"$2"
}

# usage: prints the script's head comment.
usage() {
	sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"
}

pci_pattern='^([0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$'
mac_pattern='^([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$'

# device NAME: the PCI address of the network card with this PCI address or MAC address.
device() {
	local name=${1,,} found
	if [[ $name =~ $pci_pattern ]]; then
		[[ $name == ????:* ]] || name=0000:$name
		[ -e "$SYS/bus/pci/devices/$name" ] || die "this machine has no PCI device $name; to list the network cards: lspci -D | grep -i net"
		echo "$name"
		return
	fi
	[[ $name =~ $mac_pattern ]] || die "$1 is neither a PCI address (0000:00:03.0) nor a MAC address (02:00:00:00:00:01)"
	found=$(by_mac "$name" | sort -u)
	case $(echo "$found" | wc -w) in
	0) die "no PCI network card has the MAC address $name; to list them: ip -br link" ;;
	1) echo "$found" ;;
	*) die "several cards have the MAC address $name, give a PCI address: ${found//$'\n'/ }" ;;
	esac
}

# by_mac MAC: the PCI addresses of the cards that have it, or had it when nic.sh took them from the kernel.
by_mac() {
	local f n mac
	for f in "$STATE"/nic/*; do
		[ -e "$f" ] || continue
		if [ "$(recorded mac "${f##*/}")" = "$1" ]; then echo "${f##*/}"; fi
	done
	for n in "$SYS"/class/net/*; do
		[ -e "$n/device" ] || continue # bridges, bonds and VLANs have their lower device's address
		mac=$(value "$n/bonding_slave/perm_hwaddr")
		[ "${mac:-$(value "$n/address")}" = "$1" ] || continue
		pci_of "$n" || true
	done
}

# pci_of INTERFACE_DIR: the PCI address of the device below an interface; virtio has a bus of its own between them.
pci_of() {
	local dir
	dir=$(readlink -f "$1/device")
	while [ "${#dir}" -gt 1 ]; do
		if [[ ${dir##*/} =~ $pci_pattern ]]; then
			echo "${dir##*/}"
			return
		fi
		dir=${dir%/*}
	done
	return 1
}

# interfaces ADDRESS: the kernel's interfaces of a PCI device.
interfaces() {
	local n
	for n in "$SYS/bus/pci/devices/$1"/net/* "$SYS/bus/pci/devices/$1"/virtio*/net/*; do
		if [ -e "$n" ]; then echo "${n##*/}"; fi
	done
}

# driver_of ADDRESS: the driver that a PCI device is bound to; nothing if it is to none.
driver_of() {
	local d
	d=$(readlink "$SYS/bus/pci/devices/$1/driver") || return 0
	echo "${d##*/}"
}

# recorded KEY ADDRESS: what nic.sh noted about a device that it took.
recorded() {
	sed -n "s/^$1=//p" "$STATE/nic/$2" 2>/dev/null || true
}

# has_iommu ADDRESS: whether vfio can use the device: behind an IOMMU, or without one where that is allowed.
has_iommu() {
	[ -e "$SYS/bus/pci/devices/$1/iommu_group" ] || [ "$(value "$SYS/module/vfio/parameters/enable_unsafe_noiommu_mode")" = Y ]
}

# default_route INTERFACE: whether a default route leaves through it, or through a bridge, bond or VLAN above it.
default_route() {
	local up
	if ip -o route show table all 2>/dev/null | carries "$1" || ip -o -6 route show table all 2>/dev/null | carries "$1"; then
		return 0
	fi
	for up in "$SYS/class/net/$1"/upper_*; do
		[ -e "$up" ] || continue
		if default_route "${up##*/upper_}"; then return 0; fi
	done
	return 1
}

# carries INTERFACE <ROUTES: whether a default route among them leaves through it.
carries() {
	awk -v dev="$1" '$1 == "default" || $2 == "default" { for (i = 1; i < NF; i++) if ($i == "dev" && $(i+1) == dev) found = 1 } END { exit !found }'
}
