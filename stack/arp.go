package stack

import (
	"github.com/fastpath-tcp/fastpath/stack/neigh"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

func (w *Worker) arpInput(p *wire.Packet) wire.Drop {
	a, d := wire.ParseARP(p.Payload)
	if d != wire.DropNone {
		return d
	}
	out, send, ready := w.neigh.Input(w.now, &a)
	if send && w.index == 0 { // every worker hears the request; one answers
		w.sendARP(&out)
	}
	w.sendReady(&ready)
	return wire.DropNone
}

func (w *Worker) sendARP(o *neigh.Output) {
	b := w.pool.Get()
	if b == nil {
		w.Stats.NoBuffers++
		return
	}
	b.SetLen(wire.EthMinLen)
	f := b.Bytes()
	wire.PutEthernet(f, o.Dst, w.stack.mac, wire.EtherTypeARP)
	wire.PutARP(f[wire.EthLen:], &o.ARP)
	clear(f[wire.EthLen+wire.ARPLen:])
	w.send(b)
}
