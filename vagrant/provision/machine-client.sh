#!/usr/bin/env bash
# Provisions Vagrant's machine `client`, an ordinary host with the kernel's TCP. May run again. WAN_MAC, WAN_ADDRESS, WAN_SERVER and the same of
# LAN come from the Vagrantfile.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"

"$here/packages.sh" ip:iproute2 ethtool:ethtool curl:curl iperf3:iperf3 tcpdump:tcpdump
install -m 0755 "$here/netem.sh" /usr/local/sbin/netem

# link MAC: the interface with this Ethernet address.
link() {
	local n
	for n in /sys/class/net/*; do
		if [ -e "$n/device" ] && [ "$(value "$n/address")" = "$1" ]; then
			echo "${n##*/}"
			return
		fi
	done
	die "no interface has the address $1"
}

# The names wan and lan, and their addresses, are there at the next boot as well.
for net in wan lan; do
	mac=${net^^}_MAC address=${net^^}_ADDRESS
	printf '[Match]\nMACAddress=%s\n\n[Link]\nName=%s\n' "${!mac}" "$net" >"/etc/systemd/network/10-fastpath-$net.link"
	cat >"/etc/systemd/system/fastpath-$net.service" <<-EOT
		[Unit]
		Description=Network $net to fastpath
		After=sys-subsystem-net-devices-$net.device
		BindsTo=sys-subsystem-net-devices-$net.device

		[Service]
		Type=oneshot
		RemainAfterExit=yes
		ExecStart=ip addr replace ${!address}/24 dev $net
		ExecStart=ip link set $net up

		[Install]
		WantedBy=multi-user.target
	EOT
	now=$(link "${!mac}")
	if [ "$now" != "$net" ]; then
		ip link set "$now" down
		ip link set "$now" name "$net"
	fi
	ip addr replace "${!address}/24" dev "$net"
	ip link set "$net" up
	systemctl enable --quiet "fastpath-$net.service"
done
sed -i '/ # fastpath$/d' /etc/hosts
printf '%s fastpath fastpath-wan # fastpath\n%s fastpath-lan # fastpath\n' "$WAN_SERVER" "$LAN_SERVER" >>/etc/hosts
ip -br addr
