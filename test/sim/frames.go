package sim

import "time"

// flowOf finds the flow that a frame belongs to, nil if it belongs to none.
func (r *runner) flowOf(frame []byte) *flow {
	const ethHeader, ipv4, addrs = 14, 0x0800, 12
	if len(frame) < ethHeader+20 || int(frame[12])<<8|int(frame[13]) != ipv4 || frame[ethHeader+9] != 6 {
		return nil
	}
	tcpAt := ethHeader + int(frame[ethHeader]&15)*4
	if len(frame) < tcpAt+4 {
		return nil
	}
	src, dst := uint16(frame[tcpAt])<<8|uint16(frame[tcpAt+1]), uint16(frame[tcpAt+2])<<8|uint16(frame[tcpAt+3])
	client, addr := src, frame[ethHeader+addrs:ethHeader+addrs+4]
	if dst != listenPort {
		client, addr = dst, frame[ethHeader+addrs+4:ethHeader+addrs+8]
	}
	h := r.hosts[0]
	if a := h.addr.As4(); string(addr) != string(a[:]) {
		h = r.hosts[1]
	}
	return h.byPort[client]
}

// dropped counts a frame that the link dropped for its flow.
func (r *runner) dropped(_ bool, frame []byte) {
	if f := r.flowOf(frame); f != nil {
		f.drops++
	}
}

// extra is the delay that a frame's flow adds to the path's.
func (r *runner) extra(frame []byte) time.Duration {
	if f := r.flowOf(frame); f != nil {
		return f.cfg.Delay.D()
	}
	return 0
}
