//go:build dpdk

package mempool

/*
#cgo pkg-config: libdpdk
#include <stdlib.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

// rte_errno belongs to the thread, so it is read before the call returns to Go.
static struct rte_mempool *pool_create(const char *name, unsigned n, unsigned cache, uint16_t priv, uint16_t room, int socket, int *err)
{
	struct rte_mempool *mp = rte_pktmbuf_pool_create(name, n, cache, priv, room, socket);

	*err = mp == NULL ? rte_errno : 0;
	return mp;
}

static struct rte_mempool_cache *cache_create(unsigned size, int socket, int *err)
{
	struct rte_mempool_cache *c = rte_mempool_cache_create(size, socket);

	*err = c == NULL ? rte_errno : 0;
	return c;
}

// The function is inline in DPDK's header.
static void cache_flush(struct rte_mempool_cache *c, struct rte_mempool *mp)
{
	rte_mempool_cache_flush(c, mp);
}
*/
import "C"

import (
	"syscall"
	"unsafe"
)

// Mempool is a pool of objects of one size.
type Mempool C.struct_rte_mempool

// Option is a choice for a new pool or cache.
type Option struct {
	set func(*options)
}

type options struct {
	cache, private uint32
	socket         int
}

func collect(opts []Option) options {
	o := options{socket: C.SOCKET_ID_ANY}
	for _, opt := range opts {
		opt.set(&o)
	}
	return o
}

// OptCacheSize is the number of objects that a cache holds: that of each EAL thread for a pool, 0 for none, or that of a
// user-owned cache.
func OptCacheSize(size uint32) Option { return Option{func(o *options) { o.cache = size }} }

// OptPrivateDataSize is the number of bytes between an mbuf and its data that belong to the application, a multiple of 8.
func OptPrivateDataSize(size uint32) Option { return Option{func(o *options) { o.private = size }} }

// OptSocket is the NUMA socket of the memory. Without it the memory may be anywhere.
func OptSocket(socket int) Option { return Option{func(o *options) { o.socket = socket }} }

// CreateMbufPool makes a pool of n mbufs with dataRoomSize bytes of data each, headroom included. The errors are syscall.Errno:
// EEXIST for a name in use, ENOMEM, EINVAL for a cache or private size that does not fit.
func CreateMbufPool(name string, n uint32, dataRoomSize uint16, opts ...Option) (*Mempool, error) {
	o := collect(opts)
	if o.private > 1<<16-8 {
		return nil, syscall.EINVAL
	}
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	var errno C.int
	mp := C.pool_create(cname, C.uint(n), C.uint(o.cache), C.uint16_t(o.private), C.uint16_t(dataRoomSize), C.int(o.socket), &errno)
	if mp == nil {
		return nil, syscall.Errno(errno)
	}
	return (*Mempool)(mp), nil
}

// Free gives back the pool's memory. No object of it may be in use.
func (mp *Mempool) Free() { C.rte_mempool_free((*C.struct_rte_mempool)(mp)) }

// Cache holds objects of one pool for one user that is no EAL thread.
type Cache C.struct_rte_mempool_cache

// CreateCache makes a cache. Of the options it heeds OptCacheSize and OptSocket.
func CreateCache(opts ...Option) (*Cache, error) {
	o := collect(opts)
	var errno C.int
	c := C.cache_create(C.uint(o.cache), C.int(o.socket), &errno)
	if c == nil {
		return nil, syscall.Errno(errno)
	}
	return (*Cache)(c), nil
}

// Flush returns the cached objects to their pool.
func (c *Cache) Flush(mp *Mempool) {
	C.cache_flush((*C.struct_rte_mempool_cache)(c), (*C.struct_rte_mempool)(mp))
}

// Free ends the cache, which must be empty.
func (c *Cache) Free() { C.rte_mempool_cache_free((*C.struct_rte_mempool_cache)(c)) }
