package bbr

// maxFilter is Kathleen Nichols' windowed maximum: the best three samples, each later than the one before, tell the maximum
// over the window in constant space.
type maxFilter struct{ s [3]maxSample }

type maxSample struct {
	at uint32 // round
	v  uint64
}

func (f *maxFilter) get() uint64 { return f.s[0].v }

func (f *maxFilter) reset(at uint32, v uint64) {
	n := maxSample{at, v}
	f.s = [3]maxSample{n, n, n}
}

// add takes in value v of round at; samples older than win rounds fall out.
func (f *maxFilter) add(win, at uint32, v uint64) {
	n := maxSample{at, v}
	if v >= f.s[0].v || at-f.s[2].at > win {
		f.reset(at, v)
		return
	}
	if v >= f.s[1].v {
		f.s[1], f.s[2] = n, n
	} else if v >= f.s[2].v {
		f.s[2] = n
	}
	f.age(win, n)
}

// age moves the second and third choices up when the first is too old, and spreads them over the window when they are not
// of different quarters and halves.
func (f *maxFilter) age(win uint32, n maxSample) {
	dt := n.at - f.s[0].at
	switch {
	case dt > win:
		f.s[0], f.s[1], f.s[2] = f.s[1], f.s[2], n
		if n.at-f.s[0].at > win {
			f.s[0], f.s[1] = f.s[1], f.s[2]
		}
	case f.s[1].at == f.s[0].at && dt > win/4:
		f.s[1], f.s[2] = n, n
	case f.s[2].at == f.s[1].at && dt > win/2:
		f.s[2] = n
	}
}
