#!/usr/bin/env bash
# Says what keeps others off the cores of spinning workers ([[worker]] with poll = "spin"), and what is in place already. It changes nothing.
#
#   isolate.sh CORES [NIC...]     CORES as in isolcpus: 2,3 or 2-3; NIC is a PCI address or a MAC address
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"

[[ ${1-} =~ ^[0-9]+([,-][0-9]+)*$ ]] || {
	usage
	[ "${1-}" = --help ] || exit 2
	exit
}
cores=$1
shift

# each LIST: its numbers, one a line.
each() {
	local part
	for part in ${1//,/ }; do seq "${part%-*}" "${part#*-}"; done
}

# within LIST SET: whether all of LIST are in SET.
within() {
	local n
	for n in $(each "$1"); do
		each "${2:-x}" 2>/dev/null | grep -qx "$n" || return 1
	done
}

online=$(value "$SYS/devices/system/cpu/online")
within "$cores" "$online" || die "this machine has the cores $online, not all of $cores"
rest=$(comm -23 <(each "$online" | sort) <(each "$cores" | sort) | sort -n | paste -sd,)
[ -n "$rest" ] || die "no core is left for the kernel, the module processes and Go's own threads: give fewer than $online"

isolated=$(value "$SYS/devices/system/cpu/isolated") nohz=$(value "$SYS/devices/system/cpu/nohz_full")
if within "$cores" "$isolated" && within "$cores" "$nohz"; then
	echo "ok       the kernel keeps other tasks and its tick off $cores"
else
	echo "hint     on the kernel's command line (/etc/default/grub, update-grub, reboot):"
	echo "         isolcpus=managed_irq,domain,$cores nohz_full=$cores rcu_nocbs=$cores irqaffinity=$rest"
fi
busy=
for irq in "$PROC"/irq/[0-9]*; do
	[ -r "$irq/effective_affinity_list" ] || continue
	for c in $(each "$cores"); do
		if within "$c" "$(value "$irq/effective_affinity_list")"; then busy+=" ${irq##*/}"; fi
	done
done
if [ -z "$busy" ]; then
	echo "ok       no interrupts on $cores"
else
	echo "hint     interrupts on $cores:$busy; now: for i in$busy; do echo $rest >/proc/irq/\$i/smp_affinity_list; done; and no irqbalance: systemctl disable --now irqbalance"
fi
for c in $(each "$cores"); do
	governor=$(value "$SYS/devices/system/cpu/cpu$c/cpufreq/scaling_governor")
	case $governor in
	'' | performance) ;;
	*) echo "hint     core $c has the governor $governor: echo performance >/sys/devices/system/cpu/cpu$c/cpufreq/scaling_governor" ;;
	esac
	for s in $(each "$(value "$SYS/devices/system/cpu/cpu$c/topology/thread_siblings_list")"); do
		if ! within "$s" "$cores"; then echo "hint     core $c shares its execution units with $s, which is not isolated: take both, or neither"; fi
	done
done
for n in "$@"; do
	addr=$(device "$n")
	node=$(value "$SYS/bus/pci/devices/$addr/numa_node")
	local_cores=$(value "$SYS/bus/pci/devices/$addr/local_cpulist")
	if [ "${node:--1}" -lt 0 ] || within "$cores" "$local_cores"; then
		echo "ok       $addr is near $cores"
	else
		echo "hint     $addr is on NUMA node $node, near the cores $local_cores: take some of those"
	fi
done
