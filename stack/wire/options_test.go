package wire

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// Known, unknown and malformed options, at any place (RFC 9293, MUST-4, MUST-6, MUST-64).
func TestParseOptions(t *testing.T) {
	for _, c := range []struct {
		name, in string
		ok       bool
		want     Options
	}{
		{"none", "", true, Options{}},
		{"linux SYN", "\x02\x04\x05\xb4\x04\x02\x08\x0a\x00\x00\x00\x07\x00\x00\x00\x00\x01\x03\x03\x07", true,
			Options{Set: OptMSS | OptSACKPerm | OptTS | OptWScale, MSS: 1460, TSVal: 7, WScale: 7}},
		{"timestamps", "\x01\x01\x08\x0a\x00\x00\x00\x01\x00\x00\x00\x02", true, Options{Set: OptTS, TSVal: 1, TSEcr: 2}},
		{"timestamps and SACK", "\x01\x01\x08\x0a\x00\x00\x00\x01\x00\x00\x00\x02\x01\x01\x05\x0a\x00\x00\x00\x05\x00\x00\x00\x09", true,
			Options{Set: OptTS | OptSACK, TSVal: 1, TSEcr: 2, NSack: 1, Sack: [4]seq.Range{{Start: 5, End: 9}}}},
		{"unaligned timestamps", "\x08\x0a\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00", true, Options{Set: OptTS, TSVal: 1, TSEcr: 2}},
		{"end of list", "\x00\x02\x04\x05\xb4", true, Options{}},
		{"unknown skipped", "\xfe\x04ab\x02\x04\x05\xb4", true, Options{Set: OptMSS, MSS: 1460}},
		{"wrong length skipped", "\x02\x03\x05\x03\x03\x02", true, Options{Set: OptWScale, WScale: 2}},
		{"large shift", "\x03\x03\xff", true, Options{Set: OptWScale, WScale: 14}}, // RFC 7323, 2.3
		{"SACK of 9 bytes", "\x05\x09abcdefg", true, Options{}},
		{"SACK without blocks", "\x05\x02", true, Options{}},
		{"length 0", "\x03\x03\x02\xfe\x00\x02\x04\x05\xb4", false, Options{Set: OptWScale, WScale: 2}},
		{"length 1", "\x03\x03\x02\x02\x01", false, Options{Set: OptWScale, WScale: 2}},
		{"past the end", "\x03\x03\x02\x02\x04\x05", false, Options{Set: OptWScale, WScale: 2}},
		{"kind alone", "\x01\x02", false, Options{}},
		{"AccECN, order 0", "\xac\x0b\x00\x00\x01\x00\x00\x02\x01\x00\x03", true,
			Options{Set: OptAccECN, ECNSet: 1<<ECT0 | 1<<CE | 1<<ECT1, ECNBytes: [4]uint32{ECT0: 1, CE: 2, ECT1: 0x10003}}},
		{"AccECN, order 1, two counters", "\xae\x08\xff\xff\xff\x00\x00\x02", true,
			Options{Set: OptAccECN, ECNSet: 1<<CE | 1<<ECT1, ECNBytes: [4]uint32{CE: 2, ECT1: 0xffffff}}},
		{"AccECN, empty", "\xac\x02", true, Options{Set: OptAccECN}},
		{"AccECN of 6 bytes, of kind 173", "\xac\x06\x00\x00\x00\x00\xad\x05\x00\x00\x00", true, Options{}},
		{"Fast Open request", "\x22\x02", true, Options{Set: OptFastOpen}},
		{"Fast Open cookie", "\x22\x0a12345678", true, Options{Set: OptFastOpen, Cookie: [16]byte{'1', '2', '3', '4', '5', '6', '7', '8'}, NCookie: 8}},
		{"Fast Open, odd, short, long", "\x22\x0712345\x22\x0412\x22\x14123456789012345678", true, Options{}},
		{"user timeout", "\x1c\x04\x80\x05", true, Options{Set: OptUserTimeout, UserTimeout: 0x8005}},
		{"user timeout of 5 bytes", "\x1c\x05\x80\x05\x01", true, Options{}},
		{"unknown past the end", "\xfe\xff", false, Options{}},
	} {
		o := Options{Set: 0xff, NSack: 4, NCookie: 9, ECNSet: 8} // from the segment before
		ok := ParseOptions([]byte(c.in), &o)
		if ok != c.ok || o != c.want {
			t.Errorf("%s: %v, %+v; want %v, %+v", c.name, ok, o, c.ok, c.want)
		}
	}
}

// Each option has its length, and what is between is no-operation (RFC 9293, MUST-68 and MUST-69).
func TestPutOptions(t *testing.T) {
	for _, c := range []struct {
		o Options
		n int
	}{
		{Options{}, 0},
		{Options{Set: OptMSS | OptWScale | OptSACKPerm | OptTS, MSS: 1460, WScale: 9, TSVal: 1 << 31, TSEcr: 5}, 20},
		{Options{Set: OptMSS | OptSACKPerm, MSS: 536}, 8},
		{Options{Set: OptTS, TSVal: 1, TSEcr: 2}, 12},
		{Options{Set: OptSACK, NSack: 4, Sack: [4]seq.Range{{Start: 1, End: 2}, {Start: 3, End: 4}, {Start: 5, End: 6}, {Start: 0xfffffffe, End: 1}}}, 36},
		{Options{Set: OptTS | OptSACK, TSVal: 3, NSack: 3, Sack: [4]seq.Range{{Start: 1, End: 2}, {Start: 3, End: 4}, {Start: 5, End: 6}}}, 40},
		{Options{Set: OptFastOpen}, 4},
		{Options{Set: OptFastOpen, Cookie: [16]byte{1, 2, 3, 4, 5, 6, 7, 8}, NCookie: 8}, 12},
		{Options{Set: OptAccECN}, 4},
		{Options{Set: OptAccECN, ECNSet: 1 << ECT0, ECNBytes: [4]uint32{ECT0: 0x123456}}, 8},
		{Options{Set: OptAccECN, ECNSet: 1<<ECT0 | 1<<CE, ECNBytes: [4]uint32{ECT0: 1, CE: 2}}, 8},
		{Options{Set: OptTS | OptAccECN, ECNSet: 1<<ECT0 | 1<<CE | 1<<ECT1, ECNBytes: [4]uint32{ECT0: 1, CE: 2, ECT1: 3}}, 24},
	} {
		b := PutOptions(nil, &c.o)
		var o Options
		if ok := ParseOptions(b, &o); !ok || o != c.o || len(b) != c.n {
			t.Errorf("%+v became %x, and that %v, %+v", c.o, b, ok, o)
		}
	}
	var o Options
	if b := PutAccECN(nil, 1, 3, &[4]uint32{ECT1: 1, CE: 2, ECT0: 3}); !ParseOptions(b, &o) || o.ECNBytes != [4]uint32{ECT1: 1, CE: 2, ECT0: 3} || b[0] != 174 {
		t.Errorf("AccECN in order 1 is written as %x", b)
	}
	if b := PutSACK([]byte{7}, nil); len(b) != 1 {
		t.Errorf("no blocks are written as %x", b)
	}
}

// FuzzParseOptions compares with a parser that is written the plain way.
func FuzzParseOptions(f *testing.F) {
	f.Add([]byte("\x02\x04\x05\xb4\x04\x02\x08\x0a\x00\x00\x00\x07\x00\x00\x00\x00\x01\x03\x03\x07"))
	f.Add([]byte("\x01\x01\x08\x0a\x00\x00\x00\x01\x00\x00\x00\x02\x01\x01\x05\x0a\x00\x00\x00\x05\x00\x00\x00\x09"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var o, want Options
		ok := ParseOptions(b, &o)
		wantOK := true
		for i := 0; i < len(b) && b[i] != 0; {
			if b[i] == 1 {
				i++
				continue
			}
			if i+1 >= len(b) || b[i+1] < 2 || i+int(b[i+1]) > len(b) {
				wantOK = false
				break
			}
			want.parse(b[i : i+int(b[i+1])])
			i += int(b[i+1])
		}
		// Blocks and values without their bit don't count.
		for i := int(o.NSack); i < 4; i++ {
			o.Sack[i], want.Sack[i] = seq.Range{}, seq.Range{}
		}
		if ok != wantOK || o != want {
			t.Fatalf("%x: %v, %+v; want %v, %+v", b, ok, o, wantOK, want)
		}
		if o.NSack <= 3 {
			var again Options
			if !ParseOptions(PutOptions(nil, &o), &again) || again.Set != o.Set || again.NSack != o.NSack || again.MSS != o.MSS || again.TSVal != o.TSVal {
				t.Fatalf("%+v became %+v", o, again)
			}
		}
	})
}
