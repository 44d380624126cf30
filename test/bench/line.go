package bench

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// A lineMeter compares what leaves with the line that it should follow.
type lineMeter struct {
	line  pace.Line
	piece int          // bytes that leave at one departure time, at the most
	apart plugins.Time // what leaves closer together is one piece: the port may take it in two parts
	skip  int          // pieces at the start, until the flow is at its rate
	clk   pace.Clock   // the line's own: what the sender's should be
	at    plugins.Time
	n     int // bytes of the piece that is leaving

	pieces      int
	first, last plugins.Time // departures of the first piece measured, of the last
	bytes       uint64       // measured, the last piece's not counted
	lastBytes   int
	errors      []int64 // how late each piece left, ns
	ahead       float64 // the most that was sent ahead of the line, in pieces
}

// newLineMeter measures against a rate of payload bytes per second; credit is a percentage.
func newLineMeter(rate uint64, credit int, piece, skip, expect int) *lineMeter {
	return &lineMeter{line: pace.Line{Rate: rate, Horizon: 10e9, Credit: uint32(credit) * pace.CreditOne / 100}, piece: piece, skip: skip,
		apart: plugins.Time(float64(piece) / float64(rate) * 1e9 / 4), errors: make([]int64, 0, expect)}
}

// sent is told what leaves.
func (m *lineMeter) sent(at plugins.Time, n int) {
	for n > 0 {
		if m.n > 0 && (at-m.at > m.apart || m.n >= m.piece) {
			m.end()
		}
		if m.n == 0 {
			m.at = at
		}
		k := min(n, m.piece-m.n)
		m.n += k
		n -= k
	}
}

// end ends a piece.
func (m *lineMeter) end() {
	defer func() { m.n = 0 }()
	if m.pieces++; m.pieces <= m.skip {
		return
	}
	if m.pieces == m.skip+1 {
		m.first = m.at
		m.clk = pace.Clock{}
		m.clk.Sent(&pace.Line{Rate: m.line.Rate}, m.at, m.n) // on time, by definition
	} else {
		m.errors = append(m.errors, int64(m.at-m.clk.Depart(&m.line, 0)))
		m.bytes += uint64(m.lastBytes)
		m.clk.Sent(&m.line, m.at, m.n)
	}
	m.last, m.lastBytes = m.at, m.n
	hi, lo := bits.Mul64(uint64(m.at-m.first), m.line.Rate)
	allowed, _ := bits.Div64(hi, lo, 1e9)
	m.ahead = max(m.ahead, (float64(m.bytes)+float64(m.n)-float64(allowed))/float64(m.piece))
}

// due is the departure of the next piece, if the one that is leaving is complete.
func (m *lineMeter) due() plugins.Time {
	c := m.clk
	c.Sent(&m.line, m.at, m.n)
	return c.Depart(&m.line, 0)
}

// reset begins anew.
func (m *lineMeter) reset() {
	m.pieces, m.bytes, m.lastBytes, m.n, m.ahead, m.errors = 0, 0, 0, 0, 0, m.errors[:0]
}

// bps is the mean rate between the first departure that was measured and the last, in bits of payload per second.
func (m *lineMeter) bps() float64 {
	if m.last <= m.first {
		return 0
	}
	return float64(m.bytes) * 8 / m.last.Sub(m.first).Seconds()
}

// late is a quantile of how late pieces left, ns.
func (m *lineMeter) late(q float64) float64 {
	if len(m.errors) == 0 {
		return 0
	}
	s := slices.Clone(m.errors)
	slices.Sort(s)
	return float64(s[int(q*float64(len(s)-1))])
}

// virtualClock is a clock that the benchmark sets.
type virtualClock struct{ now plugins.Time }

func (c *virtualClock) Now() plugins.Time  { return c.now }
func (c *virtualClock) last() plugins.Time { return c.now }

// loopClock is the machine's, for a stack whose turns the benchmark runs.
type loopClock struct {
	stack.Monotonic
	at plugins.Time
}

func (c *loopClock) Now() plugins.Time {
	c.at = c.Monotonic.Now()
	return c.at
}

func (c *loopClock) last() plugins.Time { return c.at }

// pacedSender is a stack with one connection, to a sink, that has always something to send.
type pacedSender struct {
	stack *stack.Stack
	conn  *tcp.Conn
	sink  *sink
	block []byte
}

// newPacedSender opens the connection, which is held to rate payload bytes per second; credit is a percentage.
func newPacedSender(s *sink, clock turnClock, advance func(), rate uint64, credit int) (_ *pacedSender, err error) {
	budget, err := mem.NewBudget(mem.Limits{})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	cfg := stack.Config{Port: s, Clock: clock, Seed: 1, Arena: mem.NewArena(budget), Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")},
		TCP: tcp.Config{InitialWindow: 2000, NoTimestamps: true, NoSACK: true}}
	cfg.Modules[plugins.Rtx].Name, cfg.Modules[plugins.Cong].Name = "btree", "reno"
	cfg.Modules[plugins.Pace] = stack.ModuleConfig{Name: "edt", Params: plugins.Params{"credit": fmt.Sprint(credit), "window_pacing": "false"}}
	p := &pacedSender{sink: s, block: make([]byte, 64<<10)}
	if p.stack, err = stack.New(cfg); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if p.conn, err = p.stack.Connect(netip.AddrPort{}, netip.MustParseAddrPort("10.0.0.2:80")); err != nil {
		return nil, errors.Join(err, p.stack.Close())
	}
	p.conn.SetMaxRate(rate)
	for range 1_000_000 {
		if p.conn.Up() {
			return p, nil
		}
		if !p.stack.Turn() && !s.waiting() {
			advance()
		}
	}
	return nil, errors.Join(errors.New("bench: the connection to the sink was not established"), p.stack.Close())
}

// turn writes what fits and runs a turn.
func (p *pacedSender) turn() (busy bool) {
	for p.conn.WriteRoom() >= len(p.block) {
		if n, err := p.conn.TryWrite(p.block); n == 0 || err != nil {
			break
		}
	}
	busy = p.stack.Turn()
	return p.sink.waiting() || busy
}

func (p *pacedSender) close() error { return p.stack.Close() }

var _ pmd.Queue = (*sink)(nil)
