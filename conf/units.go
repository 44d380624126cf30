package conf

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net"
	"strconv"
	"strings"
	"time"
)

// Duration is a length of time: "10ms", "1m30s". It is not negative.
type Duration time.Duration

// D returns d as a time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is not a duration; write it as \"10ms\" or \"1m30s\"", b)
	}
	if v < 0 {
		return fmt.Errorf("%q is negative", b)
	}
	*d = Duration(v)
	return nil
}

// Size is a number of bytes: "64MiB", "1500B", "1GB".
type Size int64

// Binary units of Size.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
)

var sizeUnits = []unit{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1},
}

func (s Size) String() string {
	for _, u := range sizeUnits[:4] {
		if v := int64(s); v != 0 && v%u.factor == 0 {
			return strconv.FormatInt(v/u.factor, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// MarshalText implements encoding.TextMarshaler.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(b []byte) error {
	v, err := parseUnit(string(b), sizeUnits, 1)
	if err != nil {
		return fmt.Errorf("%q is not a size; write it as \"64MiB\", \"1500B\" or \"1GB\": %w", b, err)
	}
	*s = Size(v)
	return nil
}

// ParseSize reads a size in text form.
func ParseSize(text string) (Size, error) {
	var s Size
	err := s.UnmarshalText([]byte(text))
	return s, err
}

// Rate is a data rate in bytes per second, written in bits, "10Gbit/s", or bytes, "100MB/s".
type Rate uint64

var rateUnits = []unit{ // factors in bits per second
	{"Tbit/s", 1e12}, {"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}, {"bit/s", 1},
	{"GiB/s", 8 << 30}, {"MiB/s", 8 << 20}, {"KiB/s", 8 << 10}, {"GB/s", 8e9}, {"MB/s", 8e6}, {"kB/s", 8e3}, {"B/s", 8},
}

// Bits returns r in bits per second.
func (r Rate) Bits() uint64 { return uint64(r) * 8 }

func (r Rate) String() string {
	for _, u := range rateUnits[:5] {
		if v := r.Bits(); v != 0 && v%uint64(u.factor) == 0 {
			return strconv.FormatUint(v/uint64(u.factor), 10) + u.name
		}
	}
	return "0bit/s"
}

// MarshalText implements encoding.TextMarshaler.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rate) UnmarshalText(b []byte) error {
	v, err := parseUnit(string(b), rateUnits, 8)
	if err != nil {
		return fmt.Errorf("%q is not a rate; write it as \"10Gbit/s\" or \"100MB/s\": %w", b, err)
	}
	*r = Rate(v)
	return nil
}

type unit struct {
	name   string
	factor int64
}

// parseUnit reads a decimal number and a unit and returns number*factor/div, which must be a whole number that fits.
func parseUnit(text string, units []unit, div int64) (int64, error) {
	for _, u := range units {
		num, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		num = strings.TrimRight(num, " ")
		if num == "" || len(num) > 32 || strings.Trim(num, "0123456789.") != "" {
			return 0, fmt.Errorf("%q is not a number", num)
		}
		v, ok := new(big.Rat).SetString(num)
		if !ok {
			return 0, fmt.Errorf("%q is not a number", num)
		}
		v.Mul(v, big.NewRat(u.factor, div))
		if !v.IsInt() {
			return 0, errors.New("not a whole number of bytes")
		}
		// Rates are read back in bits, so that eight times the value must fit too.
		if !v.Num().IsInt64() || v.Num().Int64() > math.MaxInt64/8 {
			return 0, errors.New("too large")
		}
		return v.Num().Int64(), nil
	}
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = u.name
	}
	return 0, fmt.Errorf("the unit is missing (one of %s)", strings.Join(names, ", "))
}

// MAC is an Ethernet address: "02:00:00:00:00:01".
type MAC net.HardwareAddr

func (m MAC) String() string { return net.HardwareAddr(m).String() }

// MarshalText implements encoding.TextMarshaler.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *MAC) UnmarshalText(b []byte) error {
	a, err := net.ParseMAC(string(b))
	if err != nil || len(a) != 6 {
		return fmt.Errorf("%q is not an Ethernet address; write it as \"02:00:00:00:00:01\"", b)
	}
	if a[0]&1 != 0 {
		return fmt.Errorf("%s is a group address", a)
	}
	if a.String() == "00:00:00:00:00:00" {
		return errors.New("the address is zero")
	}
	*m = MAC(a)
	return nil
}

// PortRange is a range of TCP ports, both ends included: "32768-60999".
type PortRange struct{ Min, Max uint16 }

func (p PortRange) String() string { return fmt.Sprintf("%d-%d", p.Min, p.Max) }

// MarshalText implements encoding.TextMarshaler.
func (p PortRange) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *PortRange) UnmarshalText(b []byte) error {
	lo, hi, ok := strings.Cut(string(b), "-")
	l, err1 := strconv.ParseUint(strings.TrimSpace(lo), 10, 16)
	h, err2 := strconv.ParseUint(strings.TrimSpace(hi), 10, 16)
	if !ok || err1 != nil || err2 != nil || l == 0 || l > h {
		return fmt.Errorf("%q is not a range of ports; write it as \"32768-60999\"", b)
	}
	*p = PortRange{uint16(l), uint16(h)}
	return nil
}

// SHA256 is a checksum as 64 hexadecimal digits; empty if there is none.
type SHA256 string

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *SHA256) UnmarshalText(b []byte) error {
	if sum, err := hex.DecodeString(string(b)); err != nil || len(sum) != 32 {
		return errors.New("a SHA-256 checksum has 64 hexadecimal digits")
	}
	*s = SHA256(strings.ToLower(string(b)))
	return nil
}
