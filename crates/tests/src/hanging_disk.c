/* A disk that hangs: hanging_disk.rs compiles this library and preloads it into a server.
 *
 * HANGING_DISK_SWITCH names a switch file. While it exists and contains the word "sync", fsync and fdatasync don't return;
 * while it contains the word "write", writes to files named *.aof don't return. The real call runs once the file is removed.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Returns true if calls of this name hang now. Uses system calls only, since write itself calls it. */
static int hangs(const char *word) {
    const char *path = getenv("HANGING_DISK_SWITCH");
    char text[64];
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0) : -1;
    if (fd < 0) return 0;
    long count = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    text[count > 0 ? count : 0] = 0;
    return strstr(text, word) != NULL;
}

static void hang_while(const char *word) {
    struct timespec pause = {0, 2000000};
    while (hangs(word)) nanosleep(&pause, NULL);
}

static int is_append_only_file(int fd) {
    char link[64], name[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name);
    return length > 4 && memcmp(name + length - 4, ".aof", 4) == 0;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    if (hangs("write") && is_append_only_file(fd)) hang_while("write");
    return syscall(SYS_write, fd, bytes, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    if (hangs("write") && is_append_only_file(fd)) hang_while("write");
    return syscall(SYS_pwrite64, fd, bytes, count, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t at) {
    return pwrite(fd, bytes, count, at);
}

int fsync(int fd) {
    hang_while("sync");
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
    hang_while("sync");
    return (int)syscall(SYS_fdatasync, fd);
}
