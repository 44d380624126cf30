#!/usr/bin/env bash
# Makes the path of an interface a bad one, with netem (tc-netem(8)).
#
#   netem DEV [down "delay 50ms loss 1%"] [up "delay 10ms"]   down: what arrives; up: what leaves; a direction that is not named is clean
#   netem DEV off
#   netem DEV show
#
# netem acts on what leaves an interface. What arrives is therefore sent through an ifb device first.
set -euo pipefail

die() {
	echo "netem: $*" >&2
	exit 1
}

usage() {
	sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"
	exit 2
}

[ $# -ge 2 ] || usage
dev=$1 ifb=ifb-$1
shift
ip link show dev "$dev" >/dev/null 2>&1 || die "there is no interface $dev: ip -br link"

show() {
	echo "down: $(tc qdisc show dev "$ifb" 2>/dev/null | grep netem || echo clean)"
	echo "up:   $(tc qdisc show dev "$dev" | grep netem || echo clean)"
}

if [ "$1" = show ]; then
	show
	exit
fi
[ "$(id -u)" = 0 ] || die "needs root: sudo netem $dev $*"
off() {
	tc qdisc del dev "$dev" root 2>/dev/null || true
	tc qdisc del dev "$dev" ingress 2>/dev/null || true
	ip link del "$ifb" 2>/dev/null || true
}
down='' up=''
while [ $# -gt 0 ]; do
	case $1 in
	off) ;;
	down) down=${2?"what down?"} && shift ;;
	up) up=${2?"what up?"} && shift ;;
	*) usage ;;
	esac
	shift
done
off
trap '[ $? = 0 ] || off' EXIT
# The queue holds a path of 100 Mbit/s and a second, so that only netem's own loss is seen.
limit=10000
if [ -n "$down" ]; then
	ethtool -K "$dev" gro off 2>/dev/null || true # each frame has its own luck
	ip link add "$ifb" type ifb 2>/dev/null || die "no ifb devices: modprobe ifb"
	ip link set "$ifb" up
	read -ra words <<<"$down"
	tc qdisc add dev "$ifb" root netem limit "$limit" "${words[@]}"
	tc qdisc add dev "$dev" handle ffff: ingress
	tc filter add dev "$dev" parent ffff: matchall action mirred egress redirect dev "$ifb"
fi
if [ -n "$up" ]; then
	read -ra words <<<"$up"
	tc qdisc add dev "$dev" root netem limit "$limit" "${words[@]}"
fi
show
