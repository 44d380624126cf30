/* Drives the stack through packetdrill's table, as packetdrill does: calls that may block on a thread of their own, packets and time on this
 * one. It prints nothing and ends with 0 if all is as it should be. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "../interface.h"

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "line %d: %s (errno %d: %s)\n", __LINE__, #x, errno, strerror(errno)); exit(1); } } while (0)

static struct packetdrill_interface t;
static unsigned int stack_isn;

static unsigned int sum(const void *p, int n, unsigned int s)
{
	const unsigned char *b = p;
	for (; n > 1; n -= 2, b += 2)
		s += b[0] << 8 | b[1];
	if (n)
		s += b[0] << 8;
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return s;
}

struct packet {
	struct iphdr ip;
	struct tcphdr tcp;
	unsigned char rest[9000];
};

/* peer sends a segment to the stack; seq counts from our initial one, 5000, and ack from the stack's. */
static void peer(const char *flags, unsigned int seq, unsigned int ack, int len)
{
	struct packet p = { .ip = { .version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_TCP } };
	int opts = strchr(flags, 'S') ? 4 : 0, n = sizeof(p.ip) + sizeof(p.tcp) + opts + len;
	struct { unsigned int s, d; unsigned short zero_proto, len; } pseudo;

	p.ip.tot_len = htons(n);
	p.ip.saddr = inet_addr("192.0.2.1");
	p.ip.daddr = inet_addr("192.168.0.2");
	p.ip.check = htons(~sum(&p.ip, sizeof(p.ip), 0));
	p.tcp.source = htons(4000);
	p.tcp.dest = htons(8080);
	p.tcp.seq = htonl(5000 + seq);
	p.tcp.syn = strchr(flags, 'S') != NULL;
	p.tcp.fin = strchr(flags, 'F') != NULL;
	p.tcp.psh = strchr(flags, 'P') != NULL;
	p.tcp.rst = strchr(flags, 'R') != NULL;
	p.tcp.ack = strchr(flags, '.') != NULL;
	if (p.tcp.ack)
		p.tcp.ack_seq = htonl(stack_isn + ack);
	p.tcp.window = htons(30000);
	p.tcp.doff = 5 + opts / 4;
	if (opts)
		memcpy(p.rest, "\2\4\3\xe8", 4); /* MSS 1000 */
	for (int i = 0; i < len; i++)
		p.rest[opts + i] = seq + i;
	pseudo.s = p.ip.saddr;
	pseudo.d = p.ip.daddr;
	pseudo.zero_proto = htons(IPPROTO_TCP);
	pseudo.len = htons(n - sizeof(p.ip));
	p.tcp.check = htons(~sum(&p.tcp, n - sizeof(p.ip), sum(&pseudo, sizeof(pseudo), 0)));
	CHECK(t.netdev_send(t.userdata, &p, n) == 0);
}

/* expect receives the stack's next packet and returns when it was sent, in µs. */
static long long expect(const char *flags, unsigned int seq, unsigned int ack, int len)
{
	struct packet p;
	size_t n = sizeof(p);
	long long at = 0;

	CHECK(t.netdev_receive(t.userdata, &p, &n, &at) == 0);
	CHECK(n >= sizeof(p.ip) + sizeof(p.tcp));
	CHECK(p.ip.version == 4 && ntohs(p.ip.tot_len) == n && p.ip.saddr == inet_addr("192.168.0.2"));
	if (p.tcp.syn)
		stack_isn = ntohl(p.tcp.seq);
	CHECK(p.tcp.syn == (strchr(flags, 'S') != NULL));
	CHECK(p.tcp.fin == (strchr(flags, 'F') != NULL));
	CHECK(p.tcp.psh == (strchr(flags, 'P') != NULL));
	CHECK(p.tcp.ack == (strchr(flags, '.') != NULL));
	CHECK(ntohl(p.tcp.seq) - stack_isn == seq);
	CHECK(ntohl(p.tcp.ack_seq) - 5000 == ack);
	CHECK((int)n - (int)sizeof(p.ip) - 4 * p.tcp.doff == len);
	return at;
}

static long long now(void)
{
	struct timeval tv;
	CHECK(t.gettimeofday(t.userdata, &tv, NULL) == 0);
	return tv.tv_sec * 1000000LL + tv.tv_usec;
}

static int listener, conn;
static long long returned;

static void *accepting(void *arg)
{
	struct sockaddr_in peer_addr;
	socklen_t len = sizeof(peer_addr);

	(void)arg;
	conn = t.accept(t.userdata, listener, (struct sockaddr *)&peer_addr, &len);
	returned = now();
	CHECK(len == sizeof(peer_addr) && peer_addr.sin_port == htons(4000) && peer_addr.sin_addr.s_addr == inet_addr("192.0.2.1"));
	return NULL;
}

static void *reading(void *arg)
{
	CHECK(t.read(t.userdata, conn, arg, 100) == 100);
	returned = now();
	return NULL;
}

static void serve(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(8080), .sin_addr.s_addr = inet_addr("192.168.0.2") };
	unsigned char buf[3000];
	struct iovec iov[2] = { { buf, 1000 }, { buf + 1000, 1500 } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
	struct tcp_info info;
	struct linger linger;
	struct pollfd pfd;
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 0x123456789abcdefULL };
	socklen_t len;
	pthread_t thread;
	long long start, at;
	int v, ep;

	listener = t.socket(t.userdata, AF_INET, SOCK_STREAM, IPPROTO_TCP);
	CHECK(listener >= 0);
	v = 1;
	CHECK(t.setsockopt(t.userdata, listener, SOL_SOCKET, SO_REUSEADDR, &v, sizeof(v)) == 0);
	CHECK(t.bind(t.userdata, listener, (struct sockaddr *)&a, sizeof(a)) == 0);
	CHECK(t.listen(t.userdata, listener, 1) == 0);
	CHECK(t.fcntl(t.userdata, listener, F_SETFL, O_NONBLOCK) == 0);
	CHECK(t.accept(t.userdata, listener, NULL, NULL) == -1 && errno == EAGAIN);
	CHECK(t.fcntl(t.userdata, listener, F_GETFL) == (O_RDWR | O_NONBLOCK));
	CHECK(t.fcntl(t.userdata, listener, F_SETFL, 0) == 0);

	/* A call that blocks returns at the time of the packet that ends it. */
	start = now();
	CHECK(pthread_create(&thread, NULL, accepting, NULL) == 0);
	peer("S", 0, 0, 0);
	CHECK(expect("S.", 0, 1, 0) == start);
	CHECK(t.usleep(t.userdata, 100000) == 0);
	CHECK(now() == start + 100000);
	peer(".", 1, 1, 0);
	CHECK(pthread_join(thread, NULL) == 0 && conn >= 0);
	CHECK(returned == start + 100000);

	CHECK(pthread_create(&thread, NULL, reading, buf) == 0);
	peer("P.", 1, 1, 100);
	expect(".", 1, 101, 0);
	CHECK(pthread_join(thread, NULL) == 0);
	for (v = 0; v < 100; v++)
		CHECK(buf[v] == (unsigned char)(1 + v));

	/* What is not acknowledged is sent again after the timeout: srtt + 200 ms. */
	memset(buf, 'x', sizeof(buf));
	CHECK(t.sendmsg(t.userdata, conn, &msg, 0) == 2500);
	at = expect(".", 1, 101, 1000);
	expect(".", 1001, 101, 1000);
	expect("P.", 2001, 101, 500);
	CHECK(t.ioctl(t.userdata, conn, TIOCOUTQ, &v) == 0 && v == 2500);
	CHECK(expect(".", 1, 101, 1000) == at + 300000);
	CHECK(now() == at + 300000);
	peer(".", 101, 2501, 0);
	CHECK(t.ioctl(t.userdata, conn, TIOCOUTQ, &v) == 0 && v == 0);

	len = sizeof(info);
	CHECK(t.getsockopt(t.userdata, conn, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && len > 100);
	CHECK(info.tcpi_state == TCP_ESTABLISHED && info.tcpi_snd_mss == 1000 && info.tcpi_rtt == 100000 && info.tcpi_total_retrans == 1);
	len = sizeof(v);
	CHECK(t.getsockopt(t.userdata, conn, IPPROTO_TCP, TCP_MAXSEG, &v, &len) == 0 && v == 1000);
	CHECK(t.setsockopt(t.userdata, conn, IPPROTO_TCP, 12345, &v, sizeof(v)) == -1 && errno == ENOPROTOOPT);
	len = sizeof(linger);
	CHECK(t.getsockopt(t.userdata, conn, SOL_SOCKET, SO_LINGER, &linger, &len) == 0 && len == sizeof(linger) && !linger.l_onoff);

	ep = t.epoll_create(t.userdata, 1);
	CHECK(ep >= 0 && t.epoll_ctl(t.userdata, ep, EPOLL_CTL_ADD, conn, &ev) == 0);
	CHECK(t.epoll_wait(t.userdata, ep, &ev, 1, 0) == 0);
	peer("F.", 101, 2501, 0);
	expect(".", 2501, 102, 0);
	memset(&ev, 0, sizeof(ev));
	CHECK(t.epoll_wait(t.userdata, ep, &ev, 1, 0) == 1 && ev.events == EPOLLIN && ev.data.u64 == 0x123456789abcdefULL);
	pfd = (struct pollfd){ .fd = conn, .events = POLLIN | POLLOUT };
	CHECK(t.poll(t.userdata, &pfd, 1, 0) == 1 && pfd.revents == (POLLIN | POLLOUT));
	CHECK(t.recv(t.userdata, conn, buf, sizeof(buf), 0) == 0);
	CHECK(t.shutdown(t.userdata, conn, SHUT_WR) == 0);
	expect("F.", 2501, 102, 0);
	CHECK(t.send(t.userdata, conn, buf, 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
	peer(".", 102, 2502, 0);
	CHECK(t.close(t.userdata, conn) == 0 && t.close(t.userdata, conn) == -1 && errno == EBADF);
	CHECK(t.close(t.userdata, listener) == 0);
	CHECK(t.splice(t.userdata, 0, NULL, 0, NULL, 0, 0) == -1 && errno == ENOSYS);
	CHECK(t.free != NULL);
}

int main(int argc, char **argv)
{
	void *lib;
	packetdrill_init_t *init;

	assert(argc == 2);
	lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	init = (packetdrill_init_t *)dlsym(lib, "packetdrill_interface_init");
	CHECK(init != NULL);
	init("frob=1", &t);
	CHECK(t.userdata == NULL); /* and a line on stderr */
	init("cong=reno,mtu=1500", &t);
	CHECK(t.userdata != NULL);
	serve();
	t.free(t.userdata);

	/* A second world; nothing is left to be sent in it. */
	size_t n = 100;
	unsigned char buf[100];
	init(NULL, &t);
	CHECK(t.userdata != NULL);
	CHECK(t.usleep(t.userdata, 60000000) == 0);
	CHECK(t.netdev_receive(t.userdata, buf, &n, NULL) == 0 && n == 0);
	t.free(t.userdata);
	return 0;
}
