package pmdtest

import "time"

// Hurry shortens the suite's patience.
func Hurry() { patience = 100 * time.Millisecond }
