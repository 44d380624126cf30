package pmdtest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/fault"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/pmd/pmdtest"
)

const variable = "PMDTEST_BROKEN"

// broken are drivers with one fault each, and the test of the suite that must find it.
var broken = map[string]struct {
	test string
	wrap func(p pmd.Port) pmd.Port
	link memlink.Config
}{
	"loss":         {test: "Sizes", wrap: faulty(fault.Config{Tx: fault.Frames{Loss: fault.Percent}})},
	"corruption":   {test: "Sizes", wrap: faulty(fault.Config{Rx: fault.Frames{Corrupt: fault.Percent}})},
	"duplication":  {test: "Sizes", wrap: faulty(fault.Config{Tx: fault.Frames{Duplicate: fault.Percent}})},
	"reordering":   {test: "Both", link: reordering()},
	"bad mac":      {test: "Info", wrap: info(func(i *pmd.Info) { i.MAC[0] |= 1 })},
	"no name":      {test: "Info", wrap: info(func(i *pmd.Info) { i.Name = "" })},
	"tso":          {test: "Info", wrap: info(func(i *pmd.Info) { i.Caps |= pmd.TSO })},
	"no room":      {test: "Burst", wrap: poll(func(q pmd.Queue, tx, rx []*pmd.Buf) (int, int) { return q.Poll(nil, rx) })},
	"lying room":   {test: "Room", wrap: poll(oneByOne)},
	"touches":      {test: "Burst", wrap: poll(touch)},
	"never full":   {test: "Burst", wrap: stats(func(s *pmd.Stats) { s.TxFull = 0 })},
	"no echo":      {test: "Echo", wrap: poll(onlyOwn)},
	"uncounted":    {test: "Exhaustion", wrap: poll(dropFull())},
	"no remote":    {test: "RemoteFree", wrap: poll(hoard)},
	"cuts short":   {test: "Large", link: memlink.Config{TSO: 65000}, wrap: poll(cutShort)},
	"half counted": {test: "Stats", wrap: stats(func(s *pmd.Stats) { s.RxBytes /= 2 })},
	"allocates":    {test: "Allocs", wrap: poll(allocate)},
	"sleeps":       {test: "Wake", wrap: func(p pmd.Port) pmd.Port { return &deaf{p} }},
	"no leak":      {test: "Leak", wrap: func(p pmd.Port) pmd.Port { return &careless{Port: p} }},
	"closes twice": {test: "CloseTwice", wrap: func(p pmd.Port) pmd.Port { return &patient{Port: p} }},
}

func reordering() memlink.Config {
	p := memlink.Path{Reorder: memlink.Percent, ReorderDelay: 3}
	var now plugins.Time
	return memlink.Config{AtoB: p, Virtual: true, Now: func() plugins.Time { now++; return now }}
}

// TestSuiteFindsFaults runs the suite on each broken driver, in a process of its own, and wants it to fail.
func TestSuiteFindsFaults(t *testing.T) {
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestBroken$/^"+b.test+"$", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), variable+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestBroken/"+b.test) {
				t.Errorf("the suite does not fail in %s: %v\n%s", b.test, err, out)
			}
		})
	}
}

// TestBroken is run by TestSuiteFindsFaults.
func TestBroken(t *testing.T) {
	b, ok := broken[os.Getenv(variable)]
	if !ok {
		t.Skip("run by TestSuiteFindsFaults")
	}
	pmdtest.Hurry()
	pmdtest.Run(t, func(t *testing.T) (pmd.Port, pmd.Port) {
		c := b.link
		c.Ring, c.Bufs = 64, 256
		p, q, err := memlink.New(c)
		if err != nil {
			t.Fatal(err)
		}
		if b.wrap == nil {
			return p, q
		}
		return b.wrap(p), b.wrap(q)
	}, pmdtest.Options{TxRing: 64})
}

// cutShort cuts large frames into pieces that are too small.
func cutShort(q pmd.Queue, tx, rx []*pmd.Buf) (int, int) {
	for _, b := range tx {
		if b.Large() {
			b.SegSize--
		}
	}
	return q.Poll(tx, rx)
}

func faulty(c fault.Config) func(pmd.Port) pmd.Port {
	return func(p pmd.Port) pmd.Port {
		f, err := fault.New(p, c)
		if err != nil {
			panic(err)
		}
		return f
	}
}

type infoPort struct {
	pmd.Port
	change func(*pmd.Info)
}

func info(change func(*pmd.Info)) func(pmd.Port) pmd.Port {
	return func(p pmd.Port) pmd.Port { return &infoPort{p, change} }
}

func (p *infoPort) Info() pmd.Info {
	i := p.Port.Info()
	p.change(&i)
	return i
}

type statsPort struct {
	pmd.Port
	change func(*pmd.Stats)
}

func stats(change func(*pmd.Stats)) func(pmd.Port) pmd.Port {
	return func(p pmd.Port) pmd.Port { return &statsPort{p, change} }
}

func (p *statsPort) Stats() pmd.Stats {
	s := p.Port.Stats()
	p.change(&s)
	return s
}

type poller func(q pmd.Queue, tx, rx []*pmd.Buf) (int, int)

type pollPort struct {
	pmd.Port
	queue pollQueue
}

type pollQueue struct {
	pmd.Queue
	poll poller
}

func poll(f poller) func(pmd.Port) pmd.Port {
	return func(p pmd.Port) pmd.Port { return &pollPort{p, pollQueue{p.Queue(0), f}} }
}

func (p *pollPort) Queue(int) pmd.Queue { return &p.queue }

func (q *pollQueue) Poll(tx, rx []*pmd.Buf) (int, int) { return q.poll(q.Queue, tx, rx) }

func oneByOne(q pmd.Queue, tx, rx []*pmd.Buf) (int, int) { return q.Poll(tx[:min(len(tx), 1)], rx) }

// touch changes a frame that it refuses.
func touch(q pmd.Queue, tx, rx []*pmd.Buf) (int, int) {
	n, k := q.Poll(tx, rx)
	if n < len(tx) {
		tx[n].Bytes()[30]++
	}
	return n, k
}

// onlyOwn takes frames of its own pool only.
func onlyOwn(q pmd.Queue, tx, rx []*pmd.Buf) (int, int) {
	n := 0
	for n < len(tx) && tx[n].Pool() == q.Pool() {
		n++
	}
	return q.Poll(tx[:n], rx)
}

// dropFull loses what it receives while the pool is empty, without counting it.
func dropFull() poller {
	return func(q pmd.Queue, tx, rx []*pmd.Buf) (int, int) {
		n, k := q.Poll(tx, rx)
		if q.Pool().Free() == 0 {
			pmd.FreeAll(rx[:k])
			k = 0
		}
		return n, k
	}
}

// hoard keeps a buffer for each frame that it receives.
func hoard(q pmd.Queue, tx, rx []*pmd.Buf) (int, int) {
	n, k := q.Poll(tx, rx)
	for range k {
		q.Pool().Get()
	}
	return n, k
}

var sink []byte

func allocate(q pmd.Queue, tx, rx []*pmd.Buf) (int, int) {
	sink = make([]byte, 100)
	return q.Poll(tx, rx)
}

// deaf is a port that is never parked.
type deaf struct{ pmd.Port }

type deafQueue struct{ pmd.Queue }

func (p *deaf) Queue(i int) pmd.Queue { return &deafQueue{p.Port.Queue(i)} }

// careless is a port that does not report leaks.
type careless struct{ pmd.Port }

func (p *careless) Close() error { _ = p.Port.Close(); return nil }

// patient is a port that can be closed again and again.
type patient struct{ pmd.Port }

func (p *patient) Close() error {
	if err := p.Port.Close(); err != pmd.ErrClosed {
		return err
	}
	return nil
}
