//go:build dpdk

#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __x86_64__

// DPDK's libraries are compiled for Intel's Nehalem and later (-march=corei7), and use its instructions before main, where the process
// would die of an illegal one without a word. This runs before all of their constructors, and uses none of them.
__attribute__((target("no-ssse3,no-popcnt"))) static void check_cpu(void)
{
	static const char why[] = ", which DPDK needs; a virtual machine has it with QEMU's -cpu host, or -cpu max without KVM, "
				  "or with libvirt's <cpu mode='host-passthrough'/>\n";
	char line[512] = "fastpath: the processor lacks ";
	size_t start = strlen(line);

	__builtin_cpu_init();
	if (!__builtin_cpu_supports("ssse3"))
		strcat(line, "ssse3, ");
	if (!__builtin_cpu_supports("sse4.1"))
		strcat(line, "sse4_1, ");
	if (!__builtin_cpu_supports("sse4.2"))
		strcat(line, "sse4_2, ");
	if (!__builtin_cpu_supports("popcnt"))
		strcat(line, "popcnt, ");
	if (line[start] == '\0')
		return;
	line[strlen(line) - 2] = '\0';
	strcat(line, why);
	_exit(write(STDERR_FILENO, line, strlen(line)) < 0 ? 2 : 1);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = check_cpu;

#endif
