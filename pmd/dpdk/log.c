//go:build dpdk

#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <rte_log.h>
#include "shim.h"

// The last bytes that DPDK logged. Its threads write here too.
static struct {
	pthread_mutex_t mu;
	uint64_t total;
	char ring[32 << 10];
} logged = {.mu = PTHREAD_MUTEX_INITIALIZER};

static ssize_t log_write(void *cookie, const char *buf, size_t n)
{
	size_t i;

	(void)cookie;
	pthread_mutex_lock(&logged.mu);
	for (i = 0; i < n; i++)
		logged.ring[(logged.total + i) % sizeof(logged.ring)] = buf[i];
	logged.total += n;
	pthread_mutex_unlock(&logged.mu);
	return n;
}

int fp_log_open(void)
{
	cookie_io_functions_t fns = {.write = log_write};
	FILE *f = fopencookie(NULL, "w", fns);

	return f ? rte_openlog_stream(f) : -1;
}

uint64_t fp_log_mark(void)
{
	uint64_t n;

	pthread_mutex_lock(&logged.mu);
	n = logged.total;
	pthread_mutex_unlock(&logged.mu);
	return n;
}

size_t fp_log_since(uint64_t mark, char *dst, size_t n)
{
	size_t i, have;

	pthread_mutex_lock(&logged.mu);
	have = logged.total - mark;
	if (have > sizeof(logged.ring))
		have = sizeof(logged.ring);
	if (have > n)
		have = n;
	for (i = 0; i < have; i++)
		dst[i] = logged.ring[(logged.total - have + i) % sizeof(logged.ring)];
	pthread_mutex_unlock(&logged.mu);
	return have;
}
