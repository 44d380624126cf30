package host

import "github.com/fastpath-tcp/fastpath/stack/seq"

func seqRange(start, end uint32) seq.Range { return seq.Range{Start: start, End: end} }
