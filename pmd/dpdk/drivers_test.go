//go:build dpdk

package dpdk

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/pmdtest"
)

func TestMemif(t *testing.T) {
	pmdtest.Run(t, func(t *testing.T) (a, b pmd.Port) {
		args := "id=0,socket-abstract=no,socket=" + filepath.Join(t.TempDir(), "memif.sock")
		return open(t, Config{Vdev: "net_memif0,role=server," + args}), open(t, Config{Vdev: "net_memif1,role=client," + args})
	}, pmdtest.Options{TxRing: 64})
}

func TestVirtio(t *testing.T) {
	pmdtest.Run(t, func(t *testing.T) (a, b pmd.Port) {
		sock := filepath.Join(t.TempDir(), "vhost.sock")
		a = open(t, Config{Vdev: "net_vhost0,queues=1,iface=" + sock})
		b = open(t, Config{Vdev: fmt.Sprintf("net_virtio_user0,queues=1,path=%s", sock)})
		t.Logf("%+v\n%+v", a.Info(), b.Info())
		return a, b
	}, pmdtest.Options{TxRing: 64})
}
