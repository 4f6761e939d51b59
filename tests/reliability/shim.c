/* Stands between SQLite and the kernel: fails chosen calls, or records what is written to the database.
 *
 * Preloaded into a server. It looks only at the file SHIM_DATABASE and its -wal.
 *   SHIM_FAIL=N:ERRNO    the Nth write, truncation or sync fails once; a short write where ERRNO is 0
 *   SHIM_ONLY=KINDS      of which file and kind the calls are that SHIM_FAIL counts: "0s" the database's syncs
 *   SHIM_FIRED=PATH      that file is made when the call of SHIM_FAIL fails
 *   SHIM_TRIGGER=PATH    the next sync of the -wal fails with EIO once that file is there (it is removed)
 *   SHIM_RECORD=PATH     every write, truncation and sync is appended there, after it succeeded
 * A record is kind, file (0 database, 1 -wal), length, offset and the bytes written; see power.py.
 *
 * A process that is its own disk (tests/simulation) calls shim_watch, shim_fail, shim_cut and shim_happened.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

struct record {
    char kind;
    char file;
    char pad[2];
    uint32_t length;
    uint64_t offset;
};

static int ready, trace = -1, watched, happened, dark;
static long fail_at, fail_errno, calls, dark_after;
static const char *database, *trigger, *only = "01wts";

#define REAL(name, type) static type real; if (!real) real = (type)dlsym(RTLD_NEXT, name)

static void prepare(void)
{
    const char *text;
    ready = 1;
    database = getenv("SHIM_DATABASE");
    trigger = getenv("SHIM_TRIGGER");
    if ((text = getenv("SHIM_ONLY")))
        only = text;
    if ((text = getenv("SHIM_FAIL")))
        sscanf(text, "%ld:%ld", &fail_at, &fail_errno);
    if ((text = getenv("SHIM_RECORD")))
        trace = open(text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* What a descriptor was found to be, where one process is watched for long: looking is slow. */
#define KNOWN 1024
#define UNKNOWN 9
static signed char known[KNOWN];

static int look_for_file_of(int fd);

/* Which file this is: 0 the database, 1 its -wal, -1 neither. */
static int file_of(int fd)
{
    int file;
    if (!ready) {
        if (!getenv("SHIM_DATABASE"))
            return -1; /* the launcher itself; a forked server looks anew */
        prepare();
    }
    if (!database)
        return -1;
    if (watched && fd < KNOWN && known[fd] != UNKNOWN)
        return known[fd];
    file = look_for_file_of(fd);
    if (watched && fd < KNOWN)
        known[fd] = (signed char)file;
    return file;
}

static int look_for_file_of(int fd)
{
    char link[64], path[4096];
    ssize_t length;
    size_t known;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return -1;
    path[length] = 0;
    known = strlen(database);
    if (strncmp(path, database, known))
        return -1;
    if (!path[known])
        return 0;
    return strcmp(path + known, "-wal") ? -1 : 1;
}

static int fails(int file, char kind)
{
    const char *fired = getenv("SHIM_FIRED");
    if (!fail_at || !strchr(only, '0' + file) || !strchr(only, kind) || ++calls != fail_at)
        return 0;
    if (fired)
        close(creat(fired, 0600));
    happened |= 1;
    return 1;
}

static void note(char kind, int file, const void *data, uint32_t length, uint64_t offset)
{
    struct record record = {kind, (char)file, {0, 0}, length, offset};
    struct iovec parts[2] = {{&record, sizeof record}, {(void *)data, data ? length : 0}};
    int before = errno;
    if (dark_after && !--dark_after) {
        dark = 1;
        happened |= 2;
    }
    if (trace >= 0 && !dark && writev(trace, parts, 2) < 0)
        abort();
    errno = before;
}

typedef ssize_t (*pwrite_type)(int, const void *, size_t, off64_t);

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset)
{
    int file = file_of(fd);
    ssize_t done;
    REAL("pwrite64", pwrite_type);
    if (file >= 0 && fails(file, 'w')) {
        if (fail_errno) {
            errno = (int)fail_errno;
            return -1;
        }
        length = length > 1 ? length / 2 : length;
    }
    done = real(fd, data, length, offset);
    if (file >= 0 && done > 0)
        note('w', file, data, (uint32_t)done, (uint64_t)offset);
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset)
{
    return pwrite64(fd, data, length, offset);
}

typedef int (*truncate_type)(int, off64_t);

int ftruncate64(int fd, off64_t length)
{
    int file = file_of(fd), done;
    REAL("ftruncate64", truncate_type);
    if (file >= 0 && fails(file, 't')) {
        errno = fail_errno ? (int)fail_errno : EIO;
        return -1;
    }
    done = real(fd, length);
    if (file >= 0 && done == 0)
        note('t', file, NULL, 0, (uint64_t)length);
    return done;
}

int ftruncate(int fd, off_t length)
{
    return ftruncate64(fd, length);
}

typedef int (*sync_type)(int);

static int sync_or_fail(int fd, sync_type real)
{
    int file = file_of(fd), done;
    if (file >= 0 && fails(file, 's')) {
        errno = fail_errno ? (int)fail_errno : EIO;
        return -1;
    }
    if (file == 1 && trigger && unlink(trigger) == 0) {
        errno = EIO;
        return -1;
    }
    done = watched && file >= 0 ? 0 : real(fd); /* what a sync means is decided where the disk is rebuilt */
    if (file >= 0 && done == 0)
        note('s', file, NULL, 0, 0);
    return done;
}

int fsync(int fd)
{
    REAL("fsync", sync_type);
    return sync_or_fail(fd, real);
}

int fdatasync(int fd)
{
    REAL("fdatasync", sync_type);
    return sync_or_fail(fd, real);
}

ssize_t pread64(int fd, void *data, size_t length, off64_t offset)
{
    typedef ssize_t (*pread_type)(int, void *, size_t, off64_t);
    REAL("pread64", pread_type);
    int file = watched ? file_of(fd) : -1;
    if (file >= 0 && fails(file, 'r')) {
        if (fail_errno) {
            errno = (int)fail_errno;
            return -1;
        }
        length /= 2;
    }
    return real(fd, data, length, offset);
}

ssize_t pread(int fd, void *data, size_t length, off_t offset)
{
    return pread64(fd, data, length, offset);
}

int close(int fd)
{
    typedef int (*close_type)(int);
    REAL("close", close_type);
    if (fd >= 0 && fd < KNOWN)
        known[fd] = UNKNOWN;
    return real(fd);
}

/* From now on this is the database, and its changes are recorded in a new file; no path: none is. */
void shim_watch(const char *path, const char *record)
{
    static char kept[4096];
    ready = watched = 1;
    happened = dark = 0;
    fail_at = dark_after = 0;
    if (trace >= 0)
        close(trace);
    trace = -1;
    memset(known, UNKNOWN, sizeof known);
    database = NULL;
    if (path) {
        snprintf(kept, sizeof kept, "%s", path);
        database = kept;
        trace = open(record, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    }
}

/* The nth call of these files and kinds fails from here on, once, as SHIM_FAIL and SHIM_ONLY say. */
void shim_fail(long nth, long number, const char *kinds)
{
    static char kept[16];
    snprintf(kept, sizeof kept, "%s", kinds);
    only = kept;
    calls = 0;
    fail_at = nth;
    fail_errno = number;
}

/* The nth change from here on, and all that follow, do not reach the disk: its power is gone. */
void shim_cut(long nth)
{
    dark_after = nth;
}

/* What happened of that: 1 a call failed, 2 the power is gone. */
int shim_happened(void)
{
    return happened;
}
