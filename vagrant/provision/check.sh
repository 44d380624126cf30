#!/usr/bin/env bash
# Says what this machine lacks for fastpath on DPDK ports, each with the command that mends it.
#
#   check.sh [--hugepages MIB] [NIC...]     NIC is a PCI address or a MAC address
#
# The exit code is 1 if something is missing; lines that begin with "note" are advice.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"

bad=0
ok() { echo "ok       $*"; }
note() { echo "note     $*"; }
missing() {
	echo "MISSING  $*"
	bad=1
}

# DPDK's libraries are built for SSE4.2: without it they end with an illegal instruction, before any message.
cpu() {
	case $(uname -m) in
	x86_64)
		if grep -qw sse4_2 "$PROC/cpuinfo"; then
			ok "CPU has SSE4.2"
		else
			missing "CPU flag sse4_2: in a virtual machine choose another CPU model: -cpu host or -cpu max; libvirt: <cpu mode='host-passthrough'/>"
		fi
		;;
	esac
	if grep -qw constant_tsc "$PROC/cpuinfo" || [ "$(uname -m)" != x86_64 ]; then return; fi
	note "CPU has no constant_tsc: times are coarser"
}

hugepages() {
	local dir=$SYS/kernel/mm/hugepages/hugepages-2048kB free
	free=$(value "$dir/free_hugepages")
	if [ ! -d "$dir" ]; then
		missing "the kernel has no hugepages of 2 MiB (CONFIG_HUGETLBFS)"
	elif [ $((free * 2)) -ge "$1" ]; then
		ok "$free free hugepages of 2 MiB"
	else
		missing "hugepages: $free of 2 MiB are free, $(($1 / 2)) are wanted: $(dirname "$0")/hugepages.sh reserve $1"
	fi
}

iommu() {
	if [ -n "$(ls -A "$SYS/kernel/iommu_groups" 2>/dev/null)" ]; then
		ok "IOMMU is on: cards go to vfio-pci"
		kernel_module vfio-pci
	else
		note "IOMMU is off: cards go to uio_pci_generic, and can write anywhere in memory. To turn it on: intel_iommu=on iommu=pt on the kernel's command line (AMD: in the firmware)"
		kernel_module uio_pci_generic
	fi
	case $(value "$SYS/kernel/security/lockdown") in
	*'[none]'* | '') ;;
	*) note "the kernel is locked down (Secure Boot): uio_pci_generic does not work, only vfio-pci does" ;;
	esac
}

kernel_module() {
	if [ -e "$SYS/bus/pci/drivers/$1" ] || modprobe -qn "$1" 2>/dev/null; then
		ok "kernel module $1"
	else
		missing "kernel module $1: install the kernel's full package (Debian: linux-image-amd64; Ubuntu: linux-modules-extra-$(uname -r))"
	fi
}

nic() {
	local addr driver i node rx
	if ! addr=$(device "$1" 2>&1); then
		missing "$1: ${addr#*: }"
		return
	fi
	driver=$(driver_of "$addr")
	i=$(interfaces "$addr" | head -n 1)
	if [ -z "$i" ]; then
		if [ -n "$driver" ]; then ok "$addr is bound to $driver"; else missing "$addr has no driver: $(dirname "$0")/nic.sh bind $addr"; fi
	elif [[ $driver == mlx[45]_core || $driver == mana ]]; then
		ok "$addr ($i): DPDK works beside $driver"
	elif default_route "$i"; then
		missing "$addr ($i) has the default route, and stays the kernel's: choose another card, or move the route: ip route"
	else
		missing "$addr ($i) is bound to the kernel's driver $driver: $(dirname "$0")/nic.sh bind $addr"
	fi
	if [ -n "$i" ]; then
		rx=$(find "$SYS/class/net/$i/queues" -name 'rx-*' 2>/dev/null | wc -l)
		if [ "$rx" -le 1 ]; then note "$addr ($i) has one receive queue, so no RSS: with several workers, fastpath spreads connections in software"; fi
	fi
	node=$(value "$SYS/bus/pci/devices/$addr/numa_node")
	if [ "${node:--1}" -gt 0 ]; then note "$addr is on NUMA node $node: take cores and hugepages from there"; fi
}

want=256 nics=()
while [ $# -gt 0 ]; do
	case $1 in
	--hugepages)
		want=${2-}
		[[ $want =~ ^[0-9]+$ ]] || die "--hugepages: how many MiB?"
		shift
		;;
	--help)
		usage
		exit
		;;
	-*) die "there is no option $1" ;;
	*) nics+=("$1") ;;
	esac
	shift
done
cpu
hugepages "$want"
iommu
for n in "${nics[@]}"; do nic "$n"; done
exit $bad
