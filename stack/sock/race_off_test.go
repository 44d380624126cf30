//go:build !race

package sock_test

const underRace = false
