#!/usr/bin/env bash
# Reserves hugepages for DPDK, and gives them back.
#
#   hugepages.sh reserve [--node N] MIB   so that so many MiB in pages of 2 MiB are free, on NUMA node N
#   hugepages.sh release                  as many as before
#   hugepages.sh status
#
# What is free already is enough; nothing is reserved twice. If the kernel cannot give that many, none are kept and the exit code is 1.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"

page_mib=2

# pool NODE: the directory of the kernel's pool of pages, of all nodes without one.
pool() {
	if [ -n "$1" ]; then
		echo "$SYS/devices/system/node/node$1/hugepages/hugepages-2048kB"
	else
		echo "$SYS/kernel/mm/hugepages/hugepages-2048kB"
	fi
}

reserve() {
	local node='' mib='' dir want free total target
	while [ $# -gt 0 ]; do
		case $1 in
		--node)
			node=${2-}
			shift
			;;
		*) mib=$1 ;;
		esac
		shift
	done
	[[ $mib =~ ^[1-9][0-9]*$ ]] || die "reserve: how many MiB?"
	need_root reserve "$mib"
	dir=$(pool "$node")
	[ -d "$dir" ] || die "the kernel has no pages of 2 MiB${node:+ on node $node}: $dir is missing (CONFIG_HUGETLBFS; CPU flag pse)"
	want=$(((mib + page_mib - 1) / page_mib))
	free=$(value "$dir/free_hugepages") total=$(value "$dir/nr_hugepages")
	if [ "$free" -ge "$want" ]; then
		say "$free pages of 2 MiB are free, $want are wanted"
		return
	fi
	if [ -w "$PROC/sys/vm/compact_memory" ]; then poke 1 "$PROC/sys/vm/compact_memory" || true; fi
	target=$((total + want - free))
	poke $target "$dir/nr_hugepages" || true
	free=$(value "$dir/free_hugepages")
	if [ "$free" -lt "$want" ]; then
		poke "$total" "$dir/nr_hugepages" || true
		die "the kernel gives only $free free pages of 2 MiB, $want are wanted: memory is short or in pieces; reserve them at boot: hugepages=$target on the kernel's command line"
	fi
	mkdir -p "$STATE"
	[ -e "$STATE/hugepages" ] || echo "$dir $total" >"$STATE/hugepages"
	say "reserved: $free pages of 2 MiB are free${node:+ on node $node}"
}

release() {
	local dir total
	need_root release
	if [ ! -e "$STATE/hugepages" ]; then
		say "none were reserved"
		return
	fi
	read -r dir total <"$STATE/hugepages"
	poke "$total" "$dir/nr_hugepages" || die "the kernel keeps the pages"
	rm -f "$STATE/hugepages"
	say "$(value "$dir/nr_hugepages") pages of 2 MiB remain, as before"
}

status() {
	local dir
	for dir in "$SYS"/kernel/mm/hugepages/hugepages-* "$SYS"/devices/system/node/node*/hugepages/hugepages-*; do
		[ -d "$dir" ] || continue
		printf '%s: %s free of %s\n' "${dir#"$SYS"/}" "$(value "$dir/free_hugepages")" "$(value "$dir/nr_hugepages")"
	done
}

case ${1-} in
reserve | release | status) "$@" ;;
*)
	usage
	[ "${1-}" = --help ] || exit 2
	;;
esac
