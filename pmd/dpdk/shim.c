//go:build dpdk

#define _GNU_SOURCE
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <rte_ip.h>
#include <rte_tcp.h>
#include "shim.h"

struct fp_queue *fp_queue_new(void)
{
	return calloc(1, sizeof(struct fp_queue));
}

void fp_queue_free(struct fp_queue *q)
{
	free(q->misfit);
	free(q);
}

static inline uint32_t buf_index(struct rte_mbuf *m)
{
	return ((struct fp_priv *)rte_mbuf_to_priv(m))->index;
}

struct index_arg {
	struct rte_mbuf **table;
	uint32_t n;
};

static void index_one(struct rte_mempool *mp, void *opaque, void *obj, unsigned idx)
{
	struct index_arg *a = opaque;

	(void)mp;
	if (idx >= a->n)
		return;
	a->table[idx] = obj;
	((struct fp_priv *)rte_mbuf_to_priv(obj))->index = idx;
}

void fp_index(struct rte_mempool *mp, struct rte_mbuf **table, uint32_t n)
{
	struct index_arg a = {table, n};

	rte_mempool_obj_iter(mp, index_one, &a);
}

// offload translates the checksum and segmentation requests of a frame. The IPv4 header's sum is 20 bytes of work: where the
// device does only TCP's (virtio), it is done here.
static void offload(const struct fp_queue *q, const struct fp_tx *t, struct rte_mbuf *m)
{
	uint8_t *l3 = rte_pktmbuf_mtod_offset(m, uint8_t *, t->l2_len);
	struct rte_ipv4_hdr *ip4 = (struct rte_ipv4_hdr *)l3;
	bool v4 = l3[0] >> 4 == 4;
	uint64_t ol = v4 ? RTE_MBUF_F_TX_IPV4 : RTE_MBUF_F_TX_IPV6;

	m->tx_offload = 0;
	m->l2_len = t->l2_len;
	m->l3_len = t->l3_len;
	m->l4_len = t->l4_len;
	if (t->flags & FP_TX_TCP_CSUM)
		ol |= RTE_MBUF_F_TX_TCP_CKSUM;
	if (v4 && (t->flags & FP_TX_IP_CSUM)) {
		ip4->hdr_checksum = 0;
		if (q->hw_ip)
			ol |= RTE_MBUF_F_TX_IP_CKSUM;
		else
			ip4->hdr_checksum = rte_ipv4_cksum(ip4);
	}
	if (t->seg_size) {
		struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)(l3 + t->l3_len);

		ol |= RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_TCP_CKSUM;
		m->tso_segsz = t->seg_size;
		// With TSO the pseudo-header's sum leaves out the length (rte_mbuf_core.h, RTE_MBUF_F_TX_TCP_SEG).
		tcp->cksum = v4 ? rte_ipv4_phdr_cksum(ip4, ol) : rte_ipv6_phdr_cksum((struct rte_ipv6_hdr *)l3, ol);
	}
	m->ol_flags = ol;
}

// chain appends the buffers in which a large frame goes on.
static const struct fp_part *chain(struct rte_mbuf *m, const struct fp_part *p, uint16_t n)
{
	struct rte_mbuf *last = m;

	for (m->nb_segs += n; n--; p++) {
		struct rte_mbuf *s = (struct rte_mbuf *)p->m;

		s->data_off = p->off;
		s->data_len = p->len;
		s->ol_flags = 0;
		m->pkt_len += p->len;
		last->next = s;
		last = s;
	}
	return p;
}

static void complete(void *addr, void *opaque)
{
	const struct fp_priv *p = opaque;

	(void)addr;
	if ((int32_t)(p->at - p->queue->sent) > 0)
		p->queue->sent = p->at;
}

// mark makes DPDK tell when it frees a frame: DPDK reports no completions, but calls back for an external buffer. The mbuf's own memory
// is declared to be one; when it is freed, it becomes the mbuf's again. A PMD treats such frames a little worse (virtio's cannot put its
// header before them), and sends in order, so that a burst's last frame speaks for all.
static void mark(struct fp_queue *q, struct rte_mbuf *m)
{
	struct fp_priv *p;

	while (m->next)
		m = m->next;
	p = rte_mbuf_to_priv(m);
	p->at = q->staged;
	p->queue = q;
	p->mark.free_cb = complete;
	p->mark.fcb_opaque = p;
	rte_mbuf_ext_refcnt_set(&p->mark, 1);
	m->shinfo = &p->mark;
	m->ol_flags |= RTE_MBUF_F_EXTERNAL;
}

// stage appends the frames of the turn to the stage.
static void stage(struct fp_queue *q)
{
	struct rte_mbuf **new = q->stage + q->nstage;
	const struct fp_part *part = q->part;
	bool prepare = false;
	uint16_t i, n = q->ntx, kept = 0;

	for (i = 0; i < n; i++) {
		const struct fp_tx *t = &q->tx[i];
		struct rte_mbuf *m = (struct rte_mbuf *)t->m;

		m->data_off = t->off;
		m->data_len = t->len;
		m->pkt_len = t->len;
		m->ol_flags = 0;
		if (t->more)
			part = chain(m, part, t->more);
		if (t->flags | t->seg_size) {
			offload(q, t, m);
			prepare = true;
		}
		new[i] = m;
	}
	if (prepare) {
		// The driver adjusts headers to its hardware's wishes. A frame that it refuses is lost; the rest goes on.
		for (i = 0; i < n;) {
			uint16_t ok = rte_eth_tx_prepare(q->port, q->qid, new + i, n - i);

			memmove(new + kept, new + i, ok * sizeof(*new));
			kept += ok;
			i += ok;
			if (i < n) {
				rte_pktmbuf_free(new[i++]);
				q->tx_errors++;
			}
		}
		n = kept;
	}
	q->nstage += n;
	if (!q->tells || !n)
		return;
	q->staged += n;
	mark(q, new[n - 1]);
}

int fp_tells(uint16_t port)
{
	return rte_eth_tx_done_cleanup(port, 0, 0) >= 0;
}

int fp_misfit(struct fp_queue *q)
{
	struct rte_mbuf *m = aligned_alloc(RTE_CACHE_LINE_SIZE, sizeof(*m));

	if (!m)
		return -1;
	memset(m, 0, sizeof(*m));
	rte_mbuf_refcnt_set(m, 1);
	m->nb_segs = 48 << 10; // a virtio ring has 32768 descriptors at most (virtio 1.2, 2.7)
	q->misfit = m;
	return 0;
}

// reclaim has the PMD free what it has sent. net_virtio frees nothing by itself while its ring has room, and does not know
// rte_eth_tx_done_cleanup: but before it refuses a frame for want of descriptors, it takes back all that the device has used.
static void reclaim(struct fp_queue *q)
{
	switch (q->tells) {
	case FP_TELLS_ASKED:
		rte_eth_tx_done_cleanup(q->port, q->qid, 0);
		break;
	case FP_TELLS_FULL:
		rte_eth_tx_burst(q->port, q->qid, &q->misfit, 1);
		break;
	}
}

// may_send reports whether the PMD will not block: net_af_packet waits in poll(2) without a time limit while its ring is full
// and its socket not writable. Between this check and the end of the burst the socket stays writable, since the PMD hands
// frames to the kernel only at the burst's end.
static inline bool may_send(const struct fp_queue *q)
{
	struct pollfd p = {.fd = q->wait_fd, .events = POLLOUT};

	return q->wait_fd < 0 || poll(&p, 1, 0) > 0;
}

static void transmit(struct fp_queue *q)
{
	uint16_t n;

	if (q->staged != q->sent)
		reclaim(q);
	if (q->ntx)
		stage(q);
	if (!q->nstage || !may_send(q))
		return;
	n = rte_eth_tx_burst(q->port, q->qid, q->stage, q->nstage);
	q->nstage -= n;
	if (q->nstage && n)
		memmove(q->stage, q->stage + n, q->nstage * sizeof(*q->stage));
}

// ip_ok verifies what a device leaves out that checks only TCP's sum (virtio): the IPv4 header's. IPv6 has none.
static bool ip_ok(struct rte_mbuf *m)
{
	const uint8_t *p = rte_pktmbuf_mtod(m, const uint8_t *);
	uint32_t len = m->data_len, at = 14, ihl;
	uint16_t type;

	if (len < at + 20)
		return false;
	type = p[12] << 8 | p[13];
	if (type == RTE_ETHER_TYPE_VLAN) {
		type = p[16] << 8 | p[17];
		at += 4;
	}
	if (type == RTE_ETHER_TYPE_IPV6)
		return true;
	if (type != RTE_ETHER_TYPE_IPV4 || len < at + 20)
		return false;
	ihl = (p[at] & 15) * 4;
	return ihl >= 20 && len >= at + ihl && rte_raw_cksum(p + at, ihl) == 0xffff;
}

static inline uint16_t rx_flags(const struct fp_queue *q, struct rte_mbuf *m)
{
	uint64_t ol = m->ol_flags;
	uint64_t ip = ol & RTE_MBUF_F_RX_IP_CKSUM_MASK, l4 = ol & RTE_MBUF_F_RX_L4_CKSUM_MASK;
	uint16_t f = 0;

	if (ip == RTE_MBUF_F_RX_IP_CKSUM_BAD || l4 == RTE_MBUF_F_RX_L4_CKSUM_BAD)
		f |= FP_RX_CSUM_BAD;
	else if (l4 == RTE_MBUF_F_RX_L4_CKSUM_NONE)
		f |= FP_RX_PARTIAL; // "not correct in the packet data, but the integrity of the packet is verified"
	else if (l4 == RTE_MBUF_F_RX_L4_CKSUM_GOOD && (ip == RTE_MBUF_F_RX_IP_CKSUM_GOOD || ip_ok(m)))
		f |= FP_RX_CSUM_GOOD;
	if (q->hw_hash && (ol & RTE_MBUF_F_RX_RSS_HASH))
		f |= FP_RX_HASH;
	return f;
}

static void receive(struct fp_queue *q)
{
	struct rte_mbuf *ms[FP_BURST];
	uint16_t i, n, k = 0;

	n = rte_eth_rx_burst(q->port, q->qid, ms, q->rx_max);
	for (i = 0; i < n; i++) {
		struct rte_mbuf *m = ms[i];
		struct fp_rx *r = &q->rx[k];

		if (i + 2 < n)
			rte_prefetch0(rte_mbuf_to_priv(ms[i + 2]));
		// A frame in several segments is larger than the MTU allows. Memory of others has no Buf.
		if (unlikely(m->nb_segs != 1 || m->pool != q->mp || !RTE_MBUF_DIRECT(m))) {
			rte_pktmbuf_free(m);
			q->rx_errors++;
			continue;
		}
		r->index = buf_index(m);
		r->off = m->data_off;
		r->len = m->data_len;
		r->flags = m->ol_flags ? rx_flags(q, m) : 0;
		r->hash = m->hash.rss;
		k++;
	}
	q->nrx = k;
}

static void fill(struct fp_queue *q)
{
	void *ms[FP_XFER];
	uint16_t i, n = RTE_MIN(q->fill_max, q->avail / 2);

	// The other half is for reception. The mempool gives all or nothing.
	if (!n || rte_mempool_generic_get(q->mp, ms, n, q->cache) < 0)
		return;
	for (i = 0; i < n; i++)
		q->fill[i] = buf_index(ms[i]);
	q->nfill = n;
}

void fp_poll(struct fp_queue *q)
{
	q->rx_errors = q->tx_errors = 0;
	q->nrx = q->nfill = 0;
	transmit(q);
	if (q->nspill)
		rte_mempool_generic_put(q->mp, (void *const *)q->spill, q->nspill, q->cache);
	if (q->rx_max)
		receive(q);
	q->avail = rte_mempool_avail_count(q->mp);
	if (q->fill_max)
		fill(q);
}

void fp_drop_stage(struct fp_queue *q)
{
	rte_pktmbuf_free_bulk(q->stage, q->nstage);
	q->nstage = 0;
	rte_mempool_cache_flush(q->cache, q->mp);
}
