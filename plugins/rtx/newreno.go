package rtx

// NewReno (RFC 6582, as Linux does it) is for peers without SACK: each duplicate acknowledgement stands for a segment that has left the
// network; sackedOut and sackedPkts count them.

// countDuplicate takes a duplicate acknowledgement.
func (m *module) countDuplicate(f *flow, b *batch, a *ackState) {
	if !a.dup || !f.has(flowNoSACK) || f.q.head == nil {
		return
	}
	// Duplicates cannot stand for more than what is not lost, less one hole (Linux tcp_limit_reno_sacked).
	limit := f.flight() - max(f.lostOut, min(f.mss, f.flight()))
	n := min(f.mss, limit-min(limit, f.sackedOut))
	if n == 0 {
		// More than there can be: the network has reordered. Needs more duplicates from now on.
		f.reordering = uint16(min(max(uint32(f.reordering), f.flight()/f.mss+1), maxReordering))
		return
	}
	f.sackedOut += n
	f.sackedPkts++
	f.dupCounted += n
	f.deliver(b, a.now, n)
}

// resetDuplicates forgets duplicate acknowledgements.
func (m *module) resetDuplicates(f *flow) { f.sackedOut, f.sackedPkts = 0, 0 }

// newReno marks the head as lost: when enough duplicates have come (RFC 5681, 3.2), and at each partial acknowledgement in recovery.
func (m *module) newReno(f *flow, b *batch, a *ackState) {
	q := f.q
	if q.head == nil || q.head.waiting() {
		return
	}
	if !(f.ca < CARecovery && f.sackedPkts >= uint32(f.reordering) || f.ca == CARecovery && a.advanced) {
		return
	}
	if u := uint32(q.head.unit); q.head.len() > u {
		q.split(&m.pool, q.head, q.head.seq+u)
	}
	m.markLost(f, b, q.head)
	f.sackedOut = min(f.sackedOut, f.flight()-f.lostOut)
}
