package wire

import "time"

// The user timeout option (RFC 5482, 3.3): 15 bits that count seconds, or minutes if the bit above them is set. 0 is reserved (3.4).

const utoMinutes = 1 << 15

// UserTimeout returns the option's value for d, rounded up: at least a second, at most 32767 minutes.
func UserTimeout(d time.Duration) uint16 {
	if s := (d + time.Second - 1) / time.Second; s < utoMinutes {
		return uint16(max(s, 1))
	}
	return utoMinutes | uint16(min((d+time.Minute-1)/time.Minute, utoMinutes-1))
}

// UserTimeoutOf is the inverse of UserTimeout; 0 for a reserved value, which is to be ignored.
func UserTimeoutOf(v uint16) time.Duration {
	if v&utoMinutes != 0 {
		return time.Duration(v&^utoMinutes) * time.Minute
	}
	return time.Duration(v) * time.Second
}

// UserTimeoutLen is the length of the option.
const UserTimeoutLen = 4

// PutUserTimeout appends the user timeout option, 4 bytes.
func PutUserTimeout(b []byte, v uint16) []byte {
	return append(b, kindTimeout, UserTimeoutLen, byte(v>>8), byte(v))
}
