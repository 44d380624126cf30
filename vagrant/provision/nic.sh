#!/usr/bin/env bash
# Takes network cards from the kernel for DPDK, and gives them back.
#
#   nic.sh bind [--driver DRIVER] [--force] NIC...   to vfio-pci where there is an IOMMU, else to uio_pci_generic
#   nic.sh unbind NIC... | --all                     back to the driver that each had before
#   nic.sh address NIC                               its PCI address
#   nic.sh status                                    every card: PCI address, driver, interface, MAC address
#
# NIC is a PCI address (0000:00:03.0) or a MAC address. What is done already is left alone. A card through which a default route leaves is
# taken with --force only. If one of several cards cannot be taken, none is.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"

drivers=(vfio-pci uio_pci_generic igb_uio)

is_user_driver() {
	local d
	for d in "${drivers[@]}"; do
		if [ "$d" = "$1" ]; then return 0; fi
	done
	return 1
}

# load DRIVER: its module is there, or a line says what is missing.
load() {
	[ -e "$SYS/bus/pci/drivers/$1" ] && return
	modprobe -q "$1" 2>/dev/null || true
	[ -e "$SYS/bus/pci/drivers/$1" ] ||
		die "the kernel $(uname -r) has no module $1: install the kernel's full package (Debian: linux-image-amd64; Ubuntu: linux-modules-extra-$(uname -r))"
}

# choose ADDRESS: the driver for a card if none is asked for.
choose() {
	if has_iommu "$1"; then echo vfio-pci; else echo uio_pci_generic; fi
}

# check_take ADDRESS DRIVER FORCE ALL...: dies if the card must not, or cannot, be taken. ALL are those that are taken together.
check_take() {
	local i dev
	for i in $(interfaces "$1"); do
		if [ -z "$3" ] && default_route "$i"; then
			die "$1 is $i, through which the default route leaves: this machine could not be reached any more. If that is meant: --force"
		fi
	done
	[ "$2" = vfio-pci ] || return 0
	has_iommu "$1" || die "vfio-pci finds no IOMMU for $1: boot with intel_iommu=on iommu=pt (AMD: enable it in the firmware), or: --driver uio_pci_generic"
	for dev in "$SYS/bus/pci/devices/$1"/iommu_group/devices/*; do
		[ -e "$dev" ] || continue
		case $(driver_of "${dev##*/}") in
		'' | vfio-pci | pci-stub | pcieport) ;;
		*) [[ " ${*:4} " == *" ${dev##*/} "* ]] || die "$1 shares its IOMMU group with ${dev##*/}, which $(driver_of "${dev##*/}") drives: take that too, or: --driver uio_pci_generic" ;;
		esac
	done
}

# move ADDRESS DRIVER: from its driver to another; "" lets the kernel choose.
move() {
	local dev=$SYS/bus/pci/devices/$1
	poke "$2" "$dev/driver_override" || return
	if [ -e "$dev/driver" ]; then poke "$1" "$dev/driver/unbind" || return; fi
	poke "$1" "$SYS/bus/pci/drivers_probe" || true
	[ -z "$2" ] || [ "$(driver_of "$1")" = "$2" ]
}

# take ADDRESS DRIVER: binds a card, and notes what it was. On failure it is the old driver's again.
take() {
	local old iface mac=
	old=$(driver_of "$1")
	if [ "$old" = "$2" ]; then
		say "$1 is bound to $2 already"
		return
	fi
	iface=$(interfaces "$1" | head -n 1)
	if [ -n "$iface" ]; then mac=$(value "$SYS/class/net/$iface/address"); fi
	mkdir -p "$STATE/nic"
	if [ ! -e "$STATE/nic/$1" ]; then # else it is moved between two drivers of ours
		printf 'driver=%s\nmac=%s\ninterface=%s\n' "$old" "$mac" "$iface" >"$STATE/nic/$1"
	fi
	taken+=("$1")
	if ! move "$1" "$2"; then
		die "$2 does not take $1: dmesg | tail says why (no interrupt line; Secure Boot's lockdown)"
	fi
	say "$1${iface:+ ($iface)} is bound to $2; before: ${old:-no driver}"
}

# user_of ADDRESS: a process that has the card open.
user_of() {
	local u file
	for u in "$SYS/bus/pci/devices/$1"/uio/*; do
		if [ -e "$u" ]; then file=/dev/${u##*/}; fi
	done
	if [ -e "$SYS/bus/pci/devices/$1/iommu_group" ]; then
		file=/dev/vfio/$(basename "$(readlink "$SYS/bus/pci/devices/$1/iommu_group")")
	fi
	[ -n "${file-}" ] || return 0
	find "$PROC"/[0-9]*/fd -lname "$file" 2>/dev/null | sed -n "1s,^$PROC/\([0-9]*\)/.*,\1,p" || true
}

# give ADDRESS: the card's old driver gets it back.
give() {
	local old pid
	if [ ! -e "$STATE/nic/$1" ]; then
		say "$1 was not taken by this script"
		return
	fi
	pid=$(user_of "$1")
	[ -z "$pid" ] || die "process $pid ($(value "$PROC/$pid/comm")) uses $1: stop it first: systemctl stop fastpath"
	old=$(recorded driver "$1")
	if [ ! -e "$SYS/bus/pci/devices/$1" ]; then
		say "$1 is gone"
	elif is_user_driver "${old:-none}"; then
		move "$1" "$old" || die "$old does not take $1 back: dmesg | tail"
	else
		if [ -n "$old" ] && [ ! -e "$SYS/bus/pci/drivers/$old" ]; then modprobe -q "$old" || true; fi
		move "$1" "" || true
		if [ -n "$old" ] && [ "$(driver_of "$1")" != "$old" ]; then
			poke "$1" "$SYS/bus/pci/drivers/$old/bind" || die "$old does not take $1 back: dmesg | tail"
		fi
	fi
	rm -f "$STATE/nic/$1"
	say "$1 is ${old:-no driver}'s again"
}

# rollback gives back what this run took, if it fails.
taken=()
rollback() {
	local rc=$? a
	trap - EXIT
	[ $rc = 0 ] || for a in "${taken[@]}"; do
		(give "$a") || true
	done
	exit $rc
}

bind() {
	local driver='' force='' nics=() addrs=() nic addr d
	while [ $# -gt 0 ]; do
		case $1 in
		--driver)
			driver=${2-}
			[ "$driver" = auto ] && driver=
			[ -z "$driver" ] || is_user_driver "$driver" || die "--driver: $driver is none of ${drivers[*]} auto"
			shift
			;;
		--force) force=1 ;;
		-*) die "bind has no option $1" ;;
		*) nics+=("$1") ;;
		esac
		shift
	done
	[ ${#nics[@]} -gt 0 ] || die "bind: which cards? nic.sh status lists them"
	need_root bind "${nics[@]}"
	for nic in "${nics[@]}"; do # nothing is touched before all are found fit
		addr=$(device "$nic")
		case $(driver_of "$addr") in
		mlx4_core | mlx5_core | mana) say "$addr: DPDK works beside $(driver_of "$addr"), nothing to bind" ;;
		*) addrs+=("$addr") ;;
		esac
	done
	for addr in "${addrs[@]}"; do
		d=${driver:-$(choose "$addr")}
		check_take "$addr" "$d" "$force" "${addrs[@]}"
		load "$d"
	done
	trap rollback EXIT
	for addr in "${addrs[@]}"; do take "$addr" "${driver:-$(choose "$addr")}"; done
}

unbind() {
	local addrs=() nic f a
	[ $# -gt 0 ] || die "unbind: which cards? or --all"
	need_root unbind "$@"
	for nic in "$@"; do
		if [ "$nic" = --all ]; then
			for f in "$STATE"/nic/*; do
				if [ -e "$f" ]; then addrs+=("${f##*/}"); fi
			done
		else
			a=$(device "$nic")
			addrs+=("$a")
		fi
	done
	for nic in "${addrs[@]}"; do give "$nic"; done
}

status() {
	local dev addr iface mac
	for dev in "$SYS"/bus/pci/devices/*; do
		[[ $(value "$dev/class") == 0x02* ]] || continue
		addr=${dev##*/}
		iface=$(interfaces "$addr" | head -n 1)
		if [ -n "$iface" ]; then mac=$(value "$SYS/class/net/$iface/address"); else mac=$(recorded mac "$addr"); fi
		printf '%s  %-16s %-12s %s\n' "$addr" "$(driver_of "$addr" | grep . || echo -)" "${iface:--}" "${mac:--}"
	done
}

case ${1-} in
bind | unbind) "$@" ;;
status) status ;;
address) device "${2:?which card?}" ;;
*)
	usage
	[ "${1-}" = --help ] || exit 2
	;;
esac
