// Package chaos swaps, starts, stops, hangs, corrupts and kills module processes while connections carry data over a lossy link: every
// byte must arrive, and nothing may be left behind. `make chaos` runs it for hours.
package chaos
