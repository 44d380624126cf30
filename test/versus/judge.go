package versus

import "testing"

const (
	attempts = 3
	quiet    = 0.02 // a machine that is late for a larger share of the time has other work to do
)

// Judge compares up to three times. What is bad each time is an error if the machine was quiet at least once, and in any case if it was
// hopeless each time: other work on the machine makes a run bad now and then, and long ones may all be; a fault of ours makes each
// one bad. Else it is no verdict, which is said.
func Judge(t testing.TB, what string, compare func() (good, hopeless bool, late float64)) {
	t.Helper()
	least, lost := 1.0, true
	for range attempts {
		good, hopeless, late := compare()
		if good {
			return
		}
		least, lost = min(least, late), lost && hopeless
	}
	switch {
	case least < quiet || lost:
		t.Errorf("%s: bad %d times, the machine late for at least %.1f %% of the time", what, attempts, least*100)
	default:
		t.Logf("%s: no verdict: bad %d times, but the machine was late for at least %.1f %% of the time", what, attempts, least*100)
	}
}

// AsGood reports whether ours has at least two thirds of the other's goodput, and sends at most twice the share again, or 3 % more.
func AsGood(other, ours Result) bool {
	return ours.Goodput >= other.Goodput*2/3 && (ours.Again <= 2*other.Again || ours.Again <= other.Again+3)
}
