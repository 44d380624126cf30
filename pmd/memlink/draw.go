package memlink

import (
	"slices"

	"github.com/fastpath-tcp/fastpath/pmd/internal/chance"
)

// draws are seeded generators, one for each impairment, so that turning one on does not change what another draws.
type draws struct {
	loss, burst, gilbert, dup, reorder, jitter, corrupt chance.RNG
}

func newDraws(seed, direction uint64) *draws {
	stream := direction << 8
	next := func() chance.RNG {
		stream++
		return chance.New(seed, stream)
	}
	return &draws{next(), next(), next(), next(), next(), next(), next()}
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
	lost := d.loss.Hit(m.Random)
	if len(m.Frames) > 0 && m.Frames[0] == m.frame {
		lost = true
		m.skip()
	}
	if m.left == 0 && d.burst.Hit(m.Burst) {
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
		if d.gilbert.Hit(loss) {
			lost = true
		}
		if d.gilbert.Hit(move) {
			m.bad = !m.bad
		}
	}
	return lost
}
