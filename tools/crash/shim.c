/* Count the calls of a process that change something below one path, and make one of them fail.
 *
 * shim.py builds this with the machine's compiler and loads it with LD_PRELOAD. Calls that do not fail are made
 * as plain system calls, under any name in the C library (open64, __openat64_2 ...).
 *
 * Nothing is counted before the process arms it with `shim_arm`, whose argument is lines of `name=value`:
 *
 *   under=PATH     only calls about this path, or below it, count
 *   calls=LIST     only these calls count, such as `write,sync`; or `all`
 *   at=N           strike the Nth of them; 0: only count
 *   lasting=1      and all after it
 *   act=fail       it fails with `error`, and has done nothing
 *   act=short      a write takes a part: `keep` is one, half, or most; the next write fails with `then`, if given
 *   act=before     the process is killed before it, as with kill -9
 *   act=after      the process is killed after it
 *   act=drop       a sync fails with `error`, and the bytes since the last good sync of that file are lost:
 *                  `lost` is nul, cut, or later (then the report says which, and its reader does it)
 *   spared=TEXT    of files with this in their path, later
 *   report=PATH    a file of sizeof(struct report) bytes, mapped: what it says survives the process
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define RANGES 64
#define FILES 1024

/* Read by shim.py, which knows this shape. */
struct report {
    uint64_t seen, fired;
    char call[32];
    char place[2048];
    uint64_t ranges;
    struct { uint64_t inode, begin, end; } lost[RANGES];
};

enum act { FAIL, SHORT, BEFORE, AFTER, DROP };

static struct {
    int armed, at, lasting, error, then;
    enum act act;
    char keep, lost;
    char under[PATH_MAX], calls[256], spared[256];
} plan;

static struct report nowhere, *report = &nowhere;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int reason_due;

/* How much of each file is on the disk: what was there when it was first written to, and what was synced. */
static struct { dev_t device; ino_t inode; off_t synced; } files[FILES];
static int known;

static long raw_path(int fd, char *into, size_t room)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, into, room - 1);
    into[length < 0 ? 0 : length] = 0;
    return length;
}

/* Return the path of a call, or that of its descriptor. */
static void where(int fd, const char *path, char *into, size_t room)
{
    size_t length = 0;
    into[0] = 0;
    if (path == NULL || path[0] != '/') {
        if (fd == AT_FDCWD)
            syscall(SYS_getcwd, into, room);
        else
            raw_path(fd, into, room);
        length = strlen(into);
    }
    if (path != NULL)
        snprintf(into + length, room - length, "%s%s", length ? "/" : "", path);
}

static int listed(const char *call)
{
    size_t length = strlen(call);
    if (strcmp(plan.calls, "all") == 0)
        return 1;
    for (const char *at = plan.calls; (at = strstr(at, call)) != NULL; at += length)
        if ((at == plan.calls || at[-1] == ',') && (at[length] == 0 || at[length] == ','))
            return 1;
    return 0;
}

static void die(void)
{
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;)
        pause();
}

/* Count a call, and return whether it is the one to fail. The process may be killed here. */
static int strikes(const char *call, int fd, const char *path)
{
    char place[PATH_MAX * 2];
    size_t length = strlen(plan.under);
    int hit;
    if (!plan.armed)
        return 0;
    where(fd, path, place, sizeof place);
    if (strncmp(place, plan.under, length) != 0 || (place[length] != 0 && place[length] != '/'))
        return 0;
    pthread_mutex_lock(&mutex);
    if (reason_due && strcmp(call, "write") == 0) {
        hit = 1;
    } else if (!listed(call)) {
        hit = 0;
    } else {
        uint64_t number = ++report->seen;
        hit = plan.at && (number == (uint64_t)plan.at || (plan.lasting && number > (uint64_t)plan.at));
    }
    if (hit && report->fired++ == 0) {
        snprintf(report->call, sizeof report->call, "%s", call);
        snprintf(report->place, sizeof report->place, "%.2000s", place + length);
    }
    pthread_mutex_unlock(&mutex);
    if (hit && plan.act == BEFORE)
        die();
    return hit;
}

/* Return the result of the chosen call: it fails, or it is made and the process is killed. */
#define STRUCK(made)                     \
    do {                                 \
        if (plan.act == AFTER) {         \
            (void)(made);                \
            die();                       \
        }                                \
        errno = plan.error;              \
        return -1;                       \
    } while (0)

static int track(int fd, struct stat *status)
{
    if (syscall(SYS_newfstatat, fd, "", status, AT_EMPTY_PATH) != 0 || !S_ISREG(status->st_mode))
        return -1;
    for (int number = 0; number < known; number++)
        if (files[number].device == status->st_dev && files[number].inode == status->st_ino)
            return number;
    if (known == FILES)
        return -1;
    files[known].device = status->st_dev;
    files[known].inode = status->st_ino;
    files[known].synced = status->st_size;
    return known++;
}

/* A file that is written to: what it holds by now counts as being on the disk, if it is seen for the first time. */
static void about_to_write(int fd)
{
    struct stat status;
    if (!plan.armed || plan.act != DROP)
        return;
    pthread_mutex_lock(&mutex);
    track(fd, &status);
    pthread_mutex_unlock(&mutex);
}

/* A new file has nothing on the disk, even if a file had its number before. */
static void made(int fd, int flags)
{
    struct stat status;
    if (fd < 0 || !plan.armed || plan.act != DROP || !(flags & O_CREAT))
        return;
    pthread_mutex_lock(&mutex);
    int number = track(fd, &status);
    if (number >= 0 && status.st_size == 0)
        files[number].synced = 0;
    pthread_mutex_unlock(&mutex);
}

static int synced(long call, int fd)
{
    struct stat status;
    int number = -1;
    off_t size = 0;
    if (plan.armed && plan.act == DROP) {
        pthread_mutex_lock(&mutex);
        /* What is written while the sync runs is not in it. */
        if ((number = track(fd, &status)) >= 0)
            size = status.st_size;
        pthread_mutex_unlock(&mutex);
    }
    int result = (int)syscall(call, fd);
    if (result == 0 && number >= 0) {
        pthread_mutex_lock(&mutex);
        if (files[number].synced < size)
            files[number].synced = size;
        pthread_mutex_unlock(&mutex);
    }
    return result;
}

/* The kernel calls the pages clean, and they are not on the disk: the next sync is a success. */
static void drop(int fd)
{
    static const char zeros[4096];
    char link[64];
    struct stat status;
    pthread_mutex_lock(&mutex);
    int number = track(fd, &status);
    if (number >= 0 && files[number].synced < status.st_size) {
        off_t begin = files[number].synced, end = status.st_size;
        char lost = plan.lost, place[PATH_MAX];
        raw_path(fd, place, sizeof place);
        /* SQLite reads back what it has just written, and the cache of a kernel would still show it. */
        if (plan.spared[0] && strstr(place, plan.spared))
            lost = 'l';
        files[number].synced = lost == 'c' ? begin : end;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (lost == 'l') {
            if (report->ranges < RANGES) {
                report->lost[report->ranges].inode = status.st_ino;
                report->lost[report->ranges].begin = (uint64_t)begin;
                report->lost[report->ranges].end = (uint64_t)end;
                report->ranges++;
            }
        } else {
            /* Opened again: what appends cannot write anywhere else. */
            int again = (int)syscall(SYS_openat, AT_FDCWD, link, O_RDWR | O_CLOEXEC, 0);
            if (again >= 0 && lost == 'c')
                syscall(SYS_ftruncate, again, begin);
            else if (again >= 0)
                while (begin < end) {
                    size_t step = end - begin < 4096 ? (size_t)(end - begin) : 4096;
                    if (syscall(SYS_pwrite64, again, zeros, step, begin) <= 0)
                        break;
                    begin += (off_t)step;
                }
            syscall(SYS_close, again);
        }
    }
    pthread_mutex_unlock(&mutex);
}

/* -- what is struck --------------------------------------------------------------------------- */

static ssize_t written(int fd, const struct iovec *parts, int count, off_t at, int positioned)
{
    struct iovec part = {0};
    size_t whole = 0, keep;
    /* The high half of the offset is for machines of 32 bits. */
#define WRITE(parts, count)                                                                  \
    (positioned ? syscall(SYS_pwritev, fd, parts, count, at, 0) : syscall(SYS_writev, fd, parts, count))
    about_to_write(fd);
    if (!strikes("write", fd, NULL))
        return WRITE(parts, count);
    if (plan.act != SHORT)
        STRUCK(WRITE(parts, count));
    if (reason_due) {
        reason_due = plan.lasting;
        errno = plan.then;
        return -1;
    }
    for (int number = 0; number < count; number++)
        whole += parts[number].iov_len;
    keep = plan.keep == 'o' ? 1 : plan.keep == 'h' ? whole / 2 : whole - 1;
    if (whole < 2)
        return WRITE(parts, count);
    reason_due = plan.then != 0;
    part = parts[0];
    if (part.iov_len > keep)
        part.iov_len = keep;
    return WRITE(&part, 1);
}

ssize_t write(int fd, const void *data, size_t size)
{
    struct iovec part = {(void *)data, size};
    return plan.armed ? written(fd, &part, 1, 0, 0) : syscall(SYS_write, fd, data, size);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t at)
{
    struct iovec part = {(void *)data, size};
    return plan.armed ? written(fd, &part, 1, at, 1) : syscall(SYS_pwrite64, fd, data, size, at);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }
ssize_t writev(int fd, const struct iovec *parts, int count) { return written(fd, parts, count, 0, 0); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return written(fd, parts, count, at, 1); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t at) { return written(fd, parts, count, at, 1); }

static int sync_file(long call, int fd)
{
    if (!strikes("sync", fd, NULL))
        return synced(call, fd);
    if (plan.act == DROP)
        drop(fd);
    STRUCK(synced(call, fd));
}

int fsync(int fd) { return sync_file(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_file(SYS_fdatasync, fd); }

int ftruncate64(int fd, off_t size)
{
    about_to_write(fd);
    if (strikes("truncate", fd, NULL))
        STRUCK(syscall(SYS_ftruncate, fd, size));
    return (int)syscall(SYS_ftruncate, fd, size);
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

static int opened(int directory, const char *path, int flags, mode_t mode)
{
    /* A directory or file that is only read is opened by another name: a campaign can leave it out. */
    const char *call = flags & (O_CREAT | O_WRONLY | O_RDWR) ? "open" : "look";
    if (strikes(call, directory, path))
        STRUCK(syscall(SYS_openat, directory, path, flags, mode));
    int fd = (int)syscall(SYS_openat, directory, path, flags, mode);
    made(fd, flags);
    return fd;
}

static mode_t mode_of(int flags, va_list arguments)
{
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

#define OPEN(name)                                         \
    int name(const char *path, int flags, ...)             \
    {                                                      \
        va_list arguments;                                 \
        va_start(arguments, flags);                        \
        mode_t mode = mode_of(flags, arguments);           \
        va_end(arguments);                                 \
        return opened(AT_FDCWD, path, flags, mode);        \
    }

#define OPENAT(name)                                       \
    int name(int directory, const char *path, int flags, ...) \
    {                                                      \
        va_list arguments;                                 \
        va_start(arguments, flags);                        \
        mode_t mode = mode_of(flags, arguments);           \
        va_end(arguments);                                 \
        return opened(directory, path, flags, mode);       \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

/* The names that programs built with _FORTIFY_SOURCE use. */
int __open_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __openat_2(int directory, const char *path, int flags) { return opened(directory, path, flags, 0); }
int __openat64_2(int directory, const char *path, int flags) { return opened(directory, path, flags, 0); }

int renameat2(int from, const char *name, int to, const char *path, unsigned flags)
{
    if (strikes("rename", to, path))
        STRUCK(syscall(SYS_renameat2, from, name, to, path, flags));
    return (int)syscall(SYS_renameat2, from, name, to, path, flags);
}

int renameat(int from, const char *name, int to, const char *path) { return renameat2(from, name, to, path, 0); }
int rename(const char *name, const char *path) { return renameat2(AT_FDCWD, name, AT_FDCWD, path, 0); }

int linkat(int from, const char *name, int to, const char *path, int flags)
{
    if (strikes("link", to, path))
        STRUCK(syscall(SYS_linkat, from, name, to, path, flags));
    return (int)syscall(SYS_linkat, from, name, to, path, flags);
}

int link(const char *name, const char *path) { return linkat(AT_FDCWD, name, AT_FDCWD, path, 0); }

int unlinkat(int directory, const char *path, int flags)
{
    if (strikes("unlink", directory, path))
        STRUCK(syscall(SYS_unlinkat, directory, path, flags));
    return (int)syscall(SYS_unlinkat, directory, path, flags);
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int directory, const char *path, mode_t mode)
{
    if (strikes("mkdir", directory, path))
        STRUCK(syscall(SYS_mkdirat, directory, path, mode));
    return (int)syscall(SYS_mkdirat, directory, path, mode);
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int flock(int fd, int operation)
{
    if (strikes(operation & LOCK_UN ? "unlock" : "flock", fd, NULL))
        STRUCK(syscall(SYS_flock, fd, operation));
    return (int)syscall(SYS_flock, fd, operation);
}

int futimens(int fd, const struct timespec times[2])
{
    if (strikes("touch", fd, NULL))
        STRUCK(syscall(SYS_utimensat, fd, NULL, times, 0));
    return (int)syscall(SYS_utimensat, fd, NULL, times, 0);
}

/* -- what the process itself calls ------------------------------------------------------------- */

static void set(const char *name, const char *value)
{
    if (strcmp(name, "under") == 0)
        snprintf(plan.under, sizeof plan.under, "%s", value);
    else if (strcmp(name, "calls") == 0)
        snprintf(plan.calls, sizeof plan.calls, "%s", value);
    else if (strcmp(name, "spared") == 0)
        snprintf(plan.spared, sizeof plan.spared, "%s", value);
    else if (strcmp(name, "at") == 0)
        plan.at = atoi(value);
    else if (strcmp(name, "lasting") == 0)
        plan.lasting = atoi(value);
    else if (strcmp(name, "error") == 0)
        plan.error = atoi(value);
    else if (strcmp(name, "then") == 0)
        plan.then = atoi(value);
    else if (strcmp(name, "keep") == 0)
        plan.keep = value[0];
    else if (strcmp(name, "lost") == 0)
        plan.lost = value[0];
    else if (strcmp(name, "act") == 0)
        plan.act = value[0] == 'f' ? FAIL : value[0] == 's' ? SHORT : value[0] == 'b' ? BEFORE
                 : value[0] == 'a' ? AFTER : DROP;
    else if (strcmp(name, "report") == 0) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, value, O_RDWR | O_CLOEXEC, 0);
        void *shared = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        syscall(SYS_close, fd);
        if (shared != MAP_FAILED)
            report = shared;
    }
}

/* Begin to count, as the lines say. Returns 0, or -1 if the report cannot be written. */
int shim_arm(const char *lines)
{
    char copy[2 * PATH_MAX], *rest = copy, *line;
    snprintf(copy, sizeof copy, "%s", lines);
    while ((line = strsep(&rest, "\n")) != NULL) {
        char *value = strchr(line, '=');
        if (value != NULL) {
            *value = 0;
            set(line, value + 1);
        }
    }
    plan.armed = report != &nowhere;
    return plan.armed ? 0 : -1;
}

/* Strike no call from now on. */
void shim_disarm(void) { plan.armed = 0; }

/* The size that shim.py must know the report by. */
size_t shim_report_size(void) { return sizeof(struct report); }
