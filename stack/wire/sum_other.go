//go:build !amd64

package wire

const (
	vectorMin = 256
	useVector = false
)

func sumVector([]byte) uint64 { panic("wire: no vector code") }

func sumCopyVector(_, _ []byte) uint64 { panic("wire: no vector code") }
