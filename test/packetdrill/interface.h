/* The interface by which packetdrill reaches a stack in a shared object: the object exports packetdrill_interface_init, which fills the table.
 * Every function gets the table's userdata first, and otherwise works as the system call of its name does. */
#ifndef FASTPATH_PACKETDRILL_H
#define FASTPATH_PACKETDRILL_H

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct packetdrill_interface {
	void *userdata;
	void (*free)(void *userdata);
	int (*socket)(void *, int domain, int type, int protocol);
	int (*bind)(void *, int fd, const struct sockaddr *addr, socklen_t len);
	int (*listen)(void *, int fd, int backlog);
	int (*accept)(void *, int fd, struct sockaddr *addr, socklen_t *len);
	int (*connect)(void *, int fd, const struct sockaddr *addr, socklen_t len);
	ssize_t (*read)(void *, int fd, void *buf, size_t n);
	ssize_t (*readv)(void *, int fd, const struct iovec *iov, int n);
	ssize_t (*recv)(void *, int fd, void *buf, size_t n, int flags);
	ssize_t (*recvfrom)(void *, int fd, void *buf, size_t n, int flags, struct sockaddr *addr, socklen_t *len);
	ssize_t (*recvmsg)(void *, int fd, struct msghdr *msg, int flags);
	ssize_t (*write)(void *, int fd, const void *buf, size_t n);
	ssize_t (*writev)(void *, int fd, const struct iovec *iov, int n);
	ssize_t (*send)(void *, int fd, const void *buf, size_t n, int flags);
	ssize_t (*sendto)(void *, int fd, const void *buf, size_t n, int flags, const struct sockaddr *addr, socklen_t len);
	ssize_t (*sendmsg)(void *, int fd, const struct msghdr *msg, int flags);
	int (*fcntl)(void *, int fd, int cmd, ...);
	int (*ioctl)(void *, int fd, unsigned long request, ...);
	int (*close)(void *, int fd);
	int (*shutdown)(void *, int fd, int how);
	int (*getsockopt)(void *, int fd, int level, int name, void *val, socklen_t *len);
	int (*setsockopt)(void *, int fd, int level, int name, const void *val, socklen_t len);
	int (*poll)(void *, struct pollfd *fds, nfds_t n, int timeout);
	/* netdev_send lets the stack receive an IP packet. 0, or -1 on error. */
	int (*netdev_send)(void *, const void *buf, size_t n);
	/* netdev_receive waits for the next IP packet of the stack. n is the room in buf, and is set to the length of the packet, or to 0 if
	 * none will come; usecs is set to the time at which it was sent. 0, or -1 on error. */
	int (*netdev_receive)(void *, void *buf, size_t *n, long long *usecs);
	int (*usleep)(void *, useconds_t usecs);
	int (*gettimeofday)(void *, struct timeval *tv, struct timezone *tz);
	int (*epoll_create)(void *, int size);
	int (*epoll_ctl)(void *, int epfd, int op, int fd, struct epoll_event *ev);
	int (*epoll_wait)(void *, int epfd, struct epoll_event *evs, int n, int timeout);
	int (*pipe)(void *, int fds[2]);
	int (*splice)(void *, int in, loff_t *off_in, int out, loff_t *off_out, size_t n, unsigned int flags);
};

typedef void packetdrill_init_t(const char *flags, struct packetdrill_interface *table);

/* On failure userdata is NULL, and a line on stderr says why. */
void packetdrill_interface_init(const char *flags, struct packetdrill_interface *table);

#endif
