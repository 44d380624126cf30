package frag

// links chain a datagram into one list.
type links struct{ prev, next *datagram }

// list is a doubly linked list of datagrams, oldest first. sel says which links it uses.
type list struct {
	first, last *datagram
	sel         func(*datagram) *links
}

func byAge(g *datagram) *links { return &g.age }
func byOwn(g *datagram) *links { return &g.own }

func (l *list) push(g *datagram) {
	*l.sel(g) = links{prev: l.last}
	if l.last == nil {
		l.first = g
	} else {
		l.sel(l.last).next = g
	}
	l.last = g
}

func (l *list) remove(g *datagram) {
	k := l.sel(g)
	if k.prev == nil {
		l.first = k.next
	} else {
		l.sel(k.prev).next = k.next
	}
	if k.next == nil {
		l.last = k.prev
	} else {
		l.sel(k.next).prev = k.prev
	}
	*k = links{}
}
