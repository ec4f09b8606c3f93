// SPDX-License-Identifier: MIT OR Apache-2.0
/* System calls past all that the library could see. */
/* Not inlined: where a function returns twice, GCC warns of the registers that a call goes in. */
static __attribute__((noinline)) long bare6(long nr, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall" : "=a"(result)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = nr, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c, x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e, x5 __asm__("x5") = f;

	__asm__ volatile("svc 0" : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
#else
#error write down how this processor makes a system call
#endif
}

#define bare(nr, ...) bare_(nr, ##__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define bare_(nr, a, b, c, d, e, f, ...) \
	bare6(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
