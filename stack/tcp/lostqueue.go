package tcp

import (
	"sort"

	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// lostQueue holds ranges that hold lost segments, in order of sequence. The marks in the log are the truth; a range here may hold
// segments that were SACKed or sent again since.
//
// Ranges go to the end as they are found lost, and from the front as they are sent again; what is lost a second time goes back to the
// front. So they lie in a slice with room at both ends, where each of these costs no more than it touches.
type lostQueue struct {
	all  []seq.Range
	head int // all[:head] is room
}

func (q *lostQueue) empty() bool { return q.head == len(q.all) }

// first is the lowest range. There is one.
func (q *lostQueue) first() seq.Range { return q.all[q.head] }

func (q *lostQueue) clear() { q.all, q.head = q.all[:0], 0 }

// large reports whether it holds much memory.
func (q *lostQueue) large() bool { return cap(q.all) > 64 }

// add inserts r, joined with what it touches.
func (q *lostQueue) add(r seq.Range) {
	l := q.all[q.head:]
	n := len(l)
	if n > 0 && seq.AfterEq(r.Start, l[n-1].Start) { // the usual case: at the end
		if last := &l[n-1]; seq.BeforeEq(r.Start, last.End) {
			last.End = seq.Max(last.End, r.End)
			return
		}
		q.append(r)
		return
	}
	i := sort.Search(n, func(i int) bool { return seq.AfterEq(l[i].End, r.Start) })
	j := i
	for j < n && seq.BeforeEq(l[j].Start, r.End) {
		r.Start, r.End = seq.Min(r.Start, l[j].Start), seq.Max(r.End, l[j].End)
		j++
	}
	if i == j {
		q.insert(i, r)
		return
	}
	l[i] = r
	q.remove(i+1, j)
}

// append puts r at the end.
func (q *lostQueue) append(r seq.Range) {
	if len(q.all) == cap(q.all) {
		q.makeRoom()
	}
	q.all = append(q.all, r)
}

// makeRoom makes room at both ends, for half as many ranges as there are at least, so that what moves has been paid for.
func (q *lostQueue) makeRoom() {
	l := q.all[q.head:]
	to := q.all[:cap(q.all)]
	if len(to) < 2*len(l)+2 {
		to = make([]seq.Range, 3*len(l)+8)
	}
	head := (len(to) - len(l)) / 2
	q.all = to[:head+copy(to[head:], l)]
	q.head = head
}

// insert puts r before the i-th range, where the shorter side moves.
func (q *lostQueue) insert(i int, r seq.Range) {
	if q.head == 0 {
		q.makeRoom()
	}
	if l := q.all[q.head:]; i <= len(l)/2 {
		q.head--
		l = q.all[q.head:]
		copy(l[:i], l[1:i+1])
		l[i] = r
		return
	}
	q.append(r)
	l := q.all[q.head:]
	copy(l[i+1:], l[i:])
	l[i] = r
}

// remove takes the i-th to the (j-1)-th range out, where the shorter side moves.
func (q *lostQueue) remove(i, j int) {
	l := q.all[q.head:]
	if i < len(l)-j {
		copy(l[j-i:j], l[:i])
		q.head += j - i
	} else {
		q.all = append(q.all[:q.head+i], l[j:]...)
	}
}

// trim drops everything before s. It does not write to an empty queue, which idle connections share.
func (q *lostQueue) trim(s uint32) {
	if q.empty() {
		return
	}
	for q.head < len(q.all) && seq.BeforeEq(q.all[q.head].End, s) {
		q.head++
	}
	if q.head == len(q.all) {
		q.clear()
	} else if f := &q.all[q.head]; seq.Before(f.Start, s) {
		f.Start = s
	}
}
