// SPDX-License-Identifier: Apache-2.0
/* Streams: the C library reads and writes a FILE's file by calls that no other library sees, so
   that each stands over calls of this one. */
#define _GNU_SOURCE /* fopencookie */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"

enum { MOST = 64 };

/* Open streams and their files; the place of one is its cookie. */
typedef struct stream {
    _Atomic(FILE *) file;
    int fd;
    const void *caller;
} stream;

static stream streams[MOST];
static int (*real_fileno)(FILE *);

static ssize_t read_some(void *cookie, char *data, size_t bytes)
{
    const stream *s = cookie;
    return fault_read(s->fd, data, bytes, s->caller);
}

/* As the C library does it: after a short count it goes on. Fewer than all are an error here. */
static ssize_t write_all(void *cookie, const char *data, size_t bytes)
{
    const stream *s = cookie;
    size_t all = 0;
    while (all < bytes) {
        const ssize_t done = fault_write(s->fd, data + all, bytes - all, s->caller);
        if (done < 0) break;
        all += (size_t)done;
    }
    return (ssize_t)all;
}

static int seek_to(void *cookie, off64_t *offset, int whence)
{
    const stream *s = cookie;
    const off_t at = lseek(s->fd, (off_t)*offset, whence);
    if (at < 0) return -1;
    *offset = at;
    return 0;
}

static int close_it(void *cookie)
{
    stream *s = cookie;
    const int fd = s->fd;
    const void *caller = s->caller;
    atomic_store(&s->file, NULL);
    return fault_close(fd, caller);
}

static FILE *stream_over(int fd, const char *mode, const void *caller)
{
    static FILE *const taken = (FILE *)&streams;
    const cookie_io_functions_t calls = {read_some, write_all, seek_to, close_it};
    for (int i = 0; i < MOST; i++) {
        FILE *none = NULL;
        if (!atomic_compare_exchange_strong(&streams[i].file, &none, taken)) continue;
        streams[i].fd = fd;
        streams[i].caller = caller;
        FILE *file = fopencookie(&streams[i], mode, calls);
        atomic_store(&streams[i].file, file);
        return file;
    }
    errno = EMFILE;
    return NULL;
}

static int flags_of(const char *mode)
{
    const int both = strchr(mode, '+') != NULL;
    const int more = strchr(mode, 'x') ? O_EXCL : 0;
    if (*mode == 'r') return both ? O_RDWR : O_RDONLY;
    return (both ? O_RDWR : O_WRONLY) | O_CREAT | (*mode == 'a' ? O_APPEND : O_TRUNC) | more;
}

FILE *fopen(const char *restrict path, const char *restrict mode)
{
    const int fd = fault_open(path, flags_of(mode), 0666, CALLER);
    FILE *file = fd < 0 ? NULL : stream_over(fd, mode, CALLER);
    if (fd >= 0 && !file) fault_close(fd, CALLER);
    return file;
}

FILE *fdopen(int fd, const char *mode)
{
    return stream_over(fd, mode, CALLER);
}

int fileno(FILE *file)
{
    if (!real_fileno) fault_find(&real_fileno, "fileno");
    for (int i = 0; i < MOST; i++)
        if (atomic_load(&streams[i].file) == file) return streams[i].fd;
    return real_fileno(file);
}

void fault_streams_begin(void)
{
    FILE *out = stream_over(STDOUT_FILENO, "w", NULL);
    if (out) stdout = out;
}
