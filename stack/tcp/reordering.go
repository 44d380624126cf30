package tcp

// reordering is what the path has done to the order of a connection's segments, as far as selective acknowledgements tell (Linux
// tcp_check_sack_reordering): the modules decide by their own view of it, this is for users.
type reordering struct {
	event  uint64 // id of the rtx event that told of the last one
	seen   uint32 // acknowledgements that told of one
	degree uint32 // segments that the furthest was overtaken by
}

// As in Linux (tcp_reordering, tcp_max_reordering).
const (
	reorderingDefault = 3
	reorderingMax     = 300
)

// reordered notes that a segment was overtaken by what lies up to n bytes behind it; event is the acknowledgement that says so, which
// counts once.
func (c *Conn) reordered(n uint32, event uint64) {
	r := &c.more().reordering
	if r.event != event {
		r.event = event
		r.seen++
	}
	r.degree = max(r.degree, min((n+c.mss-1)/max(c.mss, 1), reorderingMax))
}
