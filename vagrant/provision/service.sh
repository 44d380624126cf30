#!/usr/bin/env bash
# What fastpath.service does before it starts and after it has ended: `service.sh start | stop`, with the settings of
# /etc/fastpath/fastpath.env in the environment.
#
#   FASTPATH_HUGEPAGES  MiB to reserve; empty: none
#   FASTPATH_NICS       cards to take from the kernel, by PCI address or MAC address; empty: none
#   FASTPATH_DRIVER     vfio-pci, uio_pci_generic or auto (the default)
#   FASTPATH_FORCE      1: take a card even if the default route leaves through it
set -euo pipefail
dir=$(dirname "$(readlink -f "$0")")

case ${1-} in
start)
	if [ -n "${FASTPATH_HUGEPAGES-}" ]; then "$dir/hugepages.sh" reserve "$FASTPATH_HUGEPAGES"; fi
	if [ -n "${FASTPATH_NICS-}" ]; then
		read -ra nics <<<"$FASTPATH_NICS"
		"$dir/nic.sh" bind --driver "${FASTPATH_DRIVER:-auto}" ${FASTPATH_FORCE:+--force} "${nics[@]}"
	fi
	;;
stop)
	rc=0
	"$dir/nic.sh" unbind --all || rc=1
	"$dir/hugepages.sh" release || rc=1
	exit $rc
	;;
*)
	sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"
	exit 2
	;;
esac
