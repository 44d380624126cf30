package memlink

import (
	"math/bits"
	"math/rand/v2"
	"slices"
)

// draws are seeded generators, one for each impairment, so that turning one on does not change what another draws.
type draws struct {
	loss, burst, gilbert, dup, reorder, jitter, corrupt rng
}

func newDraws(seed, direction uint64) *draws {
	stream := direction << 8
	next := func() rng {
		stream++
		return rng{*rand.NewPCG(seed, stream)}
	}
	return &draws{next(), next(), next(), next(), next(), next(), next()}
}

type rng struct{ pcg rand.PCG }

// below draws from 0 … n-1.
func (r *rng) below(n uint64) uint64 {
	hi, _ := bits.Mul64(r.pcg.Uint64(), n)
	return hi
}

// hit reports true with probability p. It draws only if p is neither 0 nor certain.
func (r *rng) hit(p PPB) bool {
	if p == 0 || p >= Always {
		return p != 0
	}
	return PPB(r.below(uint64(Always))) < p
}

// lossModel decides which frames are lost.
type lossModel struct {
	Loss
	frame uint64 // number of the current frame
	left  int    // of the current burst
	bad   bool   // state of the Gilbert-Elliott chain
}

// set changes the models; the frame number goes on.
func (m *lossModel) set(l Loss) {
	l.Frames = slices.Clone(l.Frames)
	slices.Sort(l.Frames)
	m.Loss, m.left, m.bad = l, 0, false
	m.skip()
}

// skip drops the numbers of frames that have passed.
func (m *lossModel) skip() {
	for len(m.Frames) > 0 && m.Frames[0] <= m.frame {
		m.Frames = m.Frames[1:]
	}
}

// lost decides about the next frame. Every model sees every frame.
func (m *lossModel) lost(d *draws) bool {
	m.frame++
	lost := d.loss.hit(m.Random)
	if len(m.Frames) > 0 && m.Frames[0] == m.frame {
		lost = true
		m.skip()
	}
	if m.left == 0 && d.burst.hit(m.Burst) {
		m.left = m.BurstLen
	}
	if m.left > 0 {
		m.left--
		lost = true
	}
	if g := &m.Gilbert; *g != (Gilbert{}) {
		loss, move := g.Good, g.ToBad
		if m.bad {
			loss, move = g.Bad, g.ToGood
		}
		if d.gilbert.hit(loss) {
			lost = true
		}
		if d.gilbert.hit(move) {
			m.bad = !m.bad
		}
	}
	return lost
}

// corrupt inverts a burst of 1 to longest bits of frame, behind its first from bytes. It reports whether there was room.
func corrupt(frame []byte, from, longest int, r *rng) bool {
	if len(frame) <= from {
		return false
	}
	room := (len(frame) - from) * 8
	n := min(1+int(r.below(uint64(longest))), room)
	at := from*8 + int(r.below(uint64(room-n+1)))
	between := r.pcg.Uint64()
	for i := range n {
		if i == 0 || i == n-1 || between>>i&1 != 0 {
			frame[(at+i)/8] ^= 0x80 >> ((at + i) % 8)
		}
	}
	return true
}
