//go:build packetdrill

/* The functions of the table: they bring arguments into few forms, call Go, and set errno from its negative results. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>

#include "interface.h"
#include "_cgo_export.h"

static long long result(long long r)
{
	if (r >= 0)
		return r;
	errno = (int)-r;
	return -1;
}

static uintptr_t h(void *u) { return (uintptr_t)u; }

static void t_free(void *u) { pdFree(h(u)); }
static int t_socket(void *u, int domain, int type, int protocol) { return result(pdSocket(h(u), domain, type, protocol)); }
static int t_bind(void *u, int fd, const struct sockaddr *a, socklen_t n) { return result(pdBind(h(u), fd, (void *)a, n)); }
static int t_listen(void *u, int fd, int backlog) { return result(pdListen(h(u), fd, backlog)); }
static int t_accept(void *u, int fd, struct sockaddr *a, socklen_t *n) { return result(pdAccept(h(u), fd, a, n)); }
static int t_connect(void *u, int fd, const struct sockaddr *a, socklen_t n) { return result(pdConnect(h(u), fd, (void *)a, n)); }

static ssize_t t_recvmsg(void *u, int fd, struct msghdr *m, int flags)
{
	m->msg_controllen = 0;
	m->msg_flags = 0;
	return result(pdRead(h(u), fd, m->msg_iov, m->msg_iovlen, flags));
}

static ssize_t t_readv(void *u, int fd, const struct iovec *v, int n) { return result(pdRead(h(u), fd, (void *)v, n, 0)); }

static ssize_t t_recv(void *u, int fd, void *buf, size_t n, int flags)
{
	struct iovec v = { buf, n };
	return result(pdRead(h(u), fd, &v, 1, flags));
}

static ssize_t t_recvfrom(void *u, int fd, void *buf, size_t n, int flags, struct sockaddr *a, socklen_t *len)
{
	if (a && len)
		*len = 0; /* a stream has no addresses */
	return t_recv(u, fd, buf, n, flags);
}

static ssize_t t_read(void *u, int fd, void *buf, size_t n) { return t_recv(u, fd, buf, n, 0); }

static ssize_t t_writev(void *u, int fd, const struct iovec *v, int n) { return result(pdWrite(h(u), fd, (void *)v, n, 0)); }
static ssize_t t_sendmsg(void *u, int fd, const struct msghdr *m, int flags) { return result(pdWrite(h(u), fd, m->msg_iov, m->msg_iovlen, flags)); }

static ssize_t t_send(void *u, int fd, const void *buf, size_t n, int flags)
{
	struct iovec v = { (void *)buf, n };
	return result(pdWrite(h(u), fd, &v, 1, flags));
}

static ssize_t t_sendto(void *u, int fd, const void *buf, size_t n, int flags, const struct sockaddr *a, socklen_t len)
{
	(void)a; /* a connected stream ignores it */
	(void)len;
	return t_send(u, fd, buf, n, flags);
}

static ssize_t t_write(void *u, int fd, const void *buf, size_t n) { return t_send(u, fd, buf, n, 0); }

static int t_fcntl(void *u, int fd, int cmd, ...)
{
	va_list ap;
	int arg = 0;

	va_start(ap, cmd);
	if (cmd == F_SETFL || cmd == F_SETFD)
		arg = va_arg(ap, int);
	va_end(ap);
	return result(pdFcntl(h(u), fd, cmd, arg));
}

static int t_ioctl(void *u, int fd, unsigned long request, ...)
{
	va_list ap;
	int *arg;

	va_start(ap, request);
	arg = va_arg(ap, int *);
	va_end(ap);
	return result(pdIoctl(h(u), fd, request, arg));
}

static int t_close(void *u, int fd) { return result(pdClose(h(u), fd)); }
static int t_shutdown(void *u, int fd, int how) { return result(pdShutdown(h(u), fd, how)); }
static int t_getsockopt(void *u, int fd, int level, int name, void *v, socklen_t *n) { return result(pdGetsockopt(h(u), fd, level, name, v, n)); }
static int t_setsockopt(void *u, int fd, int level, int name, const void *v, socklen_t n) { return result(pdSetsockopt(h(u), fd, level, name, (void *)v, n)); }
static int t_poll(void *u, struct pollfd *f, nfds_t n, int timeout) { return result(pdPoll(h(u), f, n, timeout)); }
static int t_netdev_send(void *u, const void *buf, size_t n) { return result(pdSend(h(u), (void *)buf, n)); }
static int t_netdev_receive(void *u, void *buf, size_t *n, long long *usecs) { return result(pdReceive(h(u), buf, n, usecs)); }
static int t_usleep(void *u, useconds_t usecs) { return result(pdSleep(h(u), usecs)); }

static int t_gettimeofday(void *u, struct timeval *tv, struct timezone *tz)
{
	long long us = pdTime(h(u));

	if (tz)
		memset(tz, 0, sizeof(*tz));
	if (us < 0)
		return result(us);
	tv->tv_sec = us / 1000000;
	tv->tv_usec = us % 1000000;
	return 0;
}

static int t_epoll_create(void *u, int size)
{
	return size > 0 ? result(pdEpollCreate(h(u))) : result(-EINVAL);
}

static int t_epoll_ctl(void *u, int ep, int op, int fd, struct epoll_event *ev) { return result(pdEpollCtl(h(u), ep, op, fd, ev)); }
static int t_epoll_wait(void *u, int ep, struct epoll_event *ev, int n, int timeout) { return result(pdEpollWait(h(u), ep, ev, n, timeout)); }

/* The stack has neither pipes nor splice. */
static int t_pipe(void *u, int fds[2])
{
	(void)u;
	(void)fds;
	return result(-ENOSYS);
}

static int t_splice(void *u, int in, loff_t *oi, int out, loff_t *oo, size_t n, unsigned int flags)
{
	(void)u, (void)in, (void)oi, (void)out, (void)oo, (void)n, (void)flags;
	return result(-ENOSYS);
}

__attribute__((visibility("default"))) void packetdrill_interface_init(const char *flags, struct packetdrill_interface *t)
{
	*t = (struct packetdrill_interface){
		.userdata = (void *)pdNew((char *)flags), .free = t_free, .socket = t_socket, .bind = t_bind, .listen = t_listen,
		.accept = t_accept, .connect = t_connect, .read = t_read, .readv = t_readv, .recv = t_recv, .recvfrom = t_recvfrom,
		.recvmsg = t_recvmsg, .write = t_write, .writev = t_writev, .send = t_send, .sendto = t_sendto, .sendmsg = t_sendmsg,
		.fcntl = t_fcntl, .ioctl = t_ioctl, .close = t_close, .shutdown = t_shutdown, .getsockopt = t_getsockopt,
		.setsockopt = t_setsockopt, .poll = t_poll, .netdev_send = t_netdev_send, .netdev_receive = t_netdev_receive,
		.usleep = t_usleep, .gettimeofday = t_gettimeofday, .epoll_create = t_epoll_create, .epoll_ctl = t_epoll_ctl,
		.epoll_wait = t_epoll_wait, .pipe = t_pipe, .splice = t_splice,
	};
}
