#!/usr/bin/env bash
# Provisions Vagrant's machine `fastpath`: `machine-fastpath.sh PROGRAM`. May run again. ACCEL (kvm, qemu), WAN_MAC,
# WAN_ADDRESS, LAN_MAC and LAN_ADDRESS come from the Vagrantfile.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")

"$here/packages.sh" ip:iproute2 lspci:pciutils modprobe:kmod iperf3:iperf3
"$here/install.sh" "$1"
lib=/usr/local/lib/fastpath

cat >/etc/fastpath/fastpath.env <<-EOT
	FASTPATH_HUGEPAGES=256
	FASTPATH_NICS="$WAN_MAC $LAN_MAC"
	FASTPATH_DRIVER=auto
EOT
# Under emulation a process may stand still for seconds, and is not dead.
start=10s late=0s dead=2s limit=2min
if [ "${ACCEL-}" = qemu ]; then start=4m late=5s dead=1m limit=10min; fi
sed -e "s/@START@/$start/;s/@LATE@/$late/;s/@DEAD@/$dead/" -e "s/@WAN_DEVICE@/$("$lib/nic.sh" address "$WAN_MAC")/" -e "s/@LAN_DEVICE@/$("$lib/nic.sh" address "$LAN_MAC")/" \
	-e "s/@WAN_ADDRESS@/$WAN_ADDRESS/" -e "s/@LAN_ADDRESS@/$LAN_ADDRESS/" "$here/machine-fastpath.toml" >/etc/fastpath/fastpath.toml

# iperf3 itself runs on the kernel's loopback; the daemon's proxy takes its connections on the data networks.
cat >/etc/systemd/system/iperf3.service <<-EOT
	[Unit]
	Description=iperf3 behind fastpath's proxy

	[Service]
	ExecStart=/usr/bin/iperf3 -s -B 127.0.0.1
	DynamicUser=yes
	Restart=always

	[Install]
	WantedBy=multi-user.target
EOT
mkdir -p /etc/systemd/system/fastpath.service.d
printf '[Service]\nTimeoutStartSec=%s\n' "$limit" >/etc/systemd/system/fastpath.service.d/machine.conf
systemctl daemon-reload
systemctl enable --quiet --now iperf3.service
systemctl enable --quiet fastpath.service
systemctl restart fastpath.service || {
	systemctl --no-pager status fastpath.service || true
	journalctl --no-pager -n 40 -u fastpath.service
	"$lib/check.sh" "$WAN_MAC" "$LAN_MAC" || true
	exit 1
}
fastpath ctl info
