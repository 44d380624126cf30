// The burst path of package dpdk: one call per turn of a queue.
#ifndef FASTPATH_DPDK_SHIM_H
#define FASTPATH_DPDK_SHIM_H

#include <stddef.h>
#include <stdint.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

enum {
	FP_BURST = 64, // most frames that one call offers to the PMD or asks it for
	FP_XFER = 128, // most buffers that one call moves between the pool and the mempool, each way
	FP_PARTS = 1024, // most buffers of large frames behind their first, in one call
	FP_CACHE = 32, // size of a queue's own mempool cache
};

// How a PMD is asked to free what it has sent.
enum {
	FP_TELLS_NOT,
	FP_TELLS_ASKED, // by rte_eth_tx_done_cleanup
	FP_TELLS_FULL,  // by a frame for which the ring can have no room: the PMD makes what it can, and refuses it
};

// The flags of pmd.Buf; queue.go checks that they agree.
enum {
	FP_RX_CSUM_GOOD = 1 << 0,
	FP_RX_CSUM_BAD = 1 << 1,
	FP_RX_HASH = 1 << 2,
	FP_RX_PARTIAL = 1 << 3,
	FP_TX_IP_CSUM = 1 << 4,
	FP_TX_TCP_CSUM = 1 << 5,
};

// A frame to send.
struct fp_tx {
	uintptr_t m;       // the mbuf: pmd.Buf.Handle
	uint16_t off, len; // of the frame in the buffer
	uint16_t seg_size;
	uint16_t flags;
	uint16_t more;     // buffers in which it goes on: the next of the queue's parts
	uint8_t l2_len, l3_len, l4_len;
};

// A further buffer of a large frame.
struct fp_part {
	uintptr_t m;
	uint16_t off, len;
};

struct fp_queue;

// The private area of an mbuf.
struct fp_priv {
	uint32_t index; // in its pool
	uint32_t at;    // of a mark: value of the queue's sent when its frame is complete
	struct fp_queue *queue;
	struct rte_mbuf_ext_shared_info mark;
};

// A received frame.
struct fp_rx {
	uint32_t index; // of the buffer in its pool
	uint32_t hash;
	uint16_t off, len;
	uint16_t flags;
};

// One queue pair. It lives in C memory, so that Go and C share it without a copy. Go writes the arguments, C the results.
struct fp_queue {
	uint16_t port, qid;
	uint16_t burst;   // frames that the stage holds, at most FP_BURST
	uint8_t hw_ip;    // the device completes IPv4 header checksums
	uint8_t hw_hash;  // the hash of received frames is the one promised
	uint8_t tells;    // how the PMD is asked to free what it has sent, so that frames complete then: FP_TELLS_…
	int wait_fd;      // >= 0: offer frames only while this socket is writable
	struct rte_mempool *mp;
	struct rte_mempool_cache *cache;

	// Arguments.
	uint16_t ntx, rx_max, nspill, fill_max;
	// Results.
	uint16_t nrx, nfill, nstage;
	uint32_t avail; // buffers in the mempool
	uint32_t rx_errors, tx_errors; // of this call
	uint32_t staged, sent; // with tells: frames that were ever staged, and of these complete

	struct rte_mbuf *misfit; // with FP_TELLS_FULL: the frame

	struct fp_tx tx[FP_BURST];
	struct fp_part part[FP_PARTS];
	struct fp_rx rx[FP_BURST];
	uintptr_t spill[FP_XFER];  // mbufs
	uint32_t fill[FP_XFER]; // indexes

	struct rte_mbuf *stage[FP_BURST]; // accepted, not yet taken by the PMD
};

// fp_queue_new returns a zeroed queue, or NULL.
struct fp_queue *fp_queue_new(void);
void fp_queue_free(struct fp_queue *q);

// fp_poll runs one turn: it stages tx[0..ntx), offers the stage to the PMD, puts spill[0..nspill) into the mempool, receives up
// to rx_max frames, and takes up to fill_max buffers from the mempool. The caller keeps ntx + nstage within burst.
void fp_poll(struct fp_queue *q);

// fp_tells asks a started port whether it has rte_eth_tx_done_cleanup.
int fp_tells(uint16_t port);

// fp_misfit makes the queue's frame for FP_TELLS_FULL. It returns 0, or -1 without memory.
int fp_misfit(struct fp_queue *q);

// fp_drop_stage frees what the PMD has not taken, and empties the cache.
void fp_drop_stage(struct fp_queue *q);

// fp_index numbers the mbufs of the pool in their private area and stores them in table, which holds n.
void fp_index(struct rte_mempool *mp, struct rte_mbuf **table, uint32_t n);

// fp_buf_len is the size of the mbuf's memory. The field lies in an anonymous union of the C structure.
static inline uint16_t fp_buf_len(const struct rte_mbuf *m) { return m->buf_len; }
static inline void *fp_buf_addr(const struct rte_mbuf *m) { return m->buf_addr; }

// fp_log_open makes DPDK's log go to a ring in memory. It returns 0 or -1.
int fp_log_open(void);
// fp_log_mark returns the number of bytes logged so far.
uint64_t fp_log_mark(void);
// fp_log_since copies what was logged since mark, as far as the ring still has it, and returns its size, at most n.
size_t fp_log_since(uint64_t mark, char *dst, size_t n);

#endif
