/* A slow disk for one process: every sync takes at least SLOW_SYNC_US microseconds (5,000 if unset).
 *
 *     cc -shared -fPIC -O2 -o slow_sync.so slow_sync.c
 *     LD_PRELOAD=$PWD/slow_sync.so SLOW_SYNC_US=5000 valkey-server --appendonly yes --appendfsync always
 *
 * It stands before the C library's fsync, fdatasync, sync_file_range (if it is to wait) and msync (MS_SYNC). The real call
 * runs first; what is left of the time is slept. Writes are as fast as they are. A program that makes system calls itself
 * isn't slowed; neither Penstock nor Valkey does for these. bench/durable.py builds and uses it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static long long sync_ns(void) {
    const char *text = getenv("SLOW_SYNC_US");
    return 1000LL * (text ? atoll(text) : 5000);
}

/* Returns what the real call has returned, with its errno, once the time is over. */
static int slowed(long long began, int result) {
    int error = errno;
    long long until = began + sync_ns();
    struct timespec at = {until / 1000000000LL, until % 1000000000LL};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
    errno = error;
    return result;
}

int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    long long began = now_ns();
    return slowed(began, real(fd));
}

int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    long long began = now_ns();
    return slowed(began, real(fd));
}

int sync_file_range(int fd, off64_t offset, off64_t count, unsigned int flags) {
    int (*real)(int, off64_t, off64_t, unsigned int) =
        (int (*)(int, off64_t, off64_t, unsigned int))dlsym(RTLD_NEXT, "sync_file_range");
    long long began = now_ns();
    int result = real(fd, offset, count, flags);
    int waits = flags & (SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER);
    return waits ? slowed(began, result) : result;
}

int msync(void *start, size_t length, int flags) {
    int (*real)(void *, size_t, int) = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "msync");
    long long began = now_ns();
    int result = real(start, length, flags);
    return flags & MS_SYNC ? slowed(began, result) : result;
}
