package conf

import "testing"

func TestUnits(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Size
		str  string
	}{
		{"64MiB", 64 << 20, "64MiB"}, {"1.5KiB", 1536, "1536B"}, {"1500 B", 1500, "1500B"}, {"1GB", 1e9, "1000000000B"},
		{"0B", 0, "0B"}, {"2TiB", 2 << 40, "2TiB"},
	} {
		s, err := ParseSize(tt.text)
		if err != nil || s != tt.want || s.String() != tt.str {
			t.Errorf("%q = %d %q, %v; want %d %q", tt.text, s, s, err, tt.want, tt.str)
		}
	}
	for _, tt := range []struct {
		text string
		want Rate // bytes/s
		str  string
	}{
		{"10Gbit/s", 1.25e9, "10Gbit/s"}, {"100MB/s", 1e8, "800Mbit/s"}, {"0.5Mbit/s", 62500, "500kbit/s"}, {"8bit/s", 1, "8bit/s"},
		{"1KiB/s", 1024, "8192bit/s"}, {"0B/s", 0, "0bit/s"},
	} {
		var r Rate
		err := r.UnmarshalText([]byte(tt.text))
		if err != nil || r != tt.want || r.String() != tt.str {
			t.Errorf("%q = %d %q, %v; want %d %q", tt.text, uint64(r), r, err, tt.want, tt.str)
		}
	}
	for _, bad := range []string{"", "10", "MiB", "-1B", "1e3B", "0x10B", "1/2B", "1.2.3B", "0.1B", "9000000TiB", "1 000B", "10Mb"} {
		if s, err := ParseSize(bad); err == nil {
			t.Errorf("size %q = %d", bad, s)
		}
	}
	for _, bad := range []string{"1bit/s", "10Gb/s", "10G", "10B", "-8bit/s"} {
		if err := new(Rate).UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("rate %q was accepted", bad)
		}
	}
}
