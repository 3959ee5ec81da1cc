// SPDX-License-Identifier: Apache-2.0
/* The plan of faults, whose call it is, and the record of changes. */
#define _GNU_SOURCE /* dladdr, dl_iterate_phdr */
#include "faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MOST_PARTS = 256 };

typedef struct part {
    uintptr_t begin, end;
    int who;
} part;

static fault_plan *plan; /* NULL: the process has not begun, or nothing is asked for */
static part parts[MOST_PARTS];
static atomic_int part_count;
static int log_fd = -1;

void fault_find(void *function, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, sizeof found);
}

/* ---- whose ----------------------------------------------------------------------------------- */

static int whose(const char *path)
{
    static const char *const small[] = {"libjansson", "libyaml", "libutf8proc", "libjpeg",
                                        "libmicrohttpd"};
    static const char *const system[] = {"/libc.so", "/libm.so", "linux-vdso"};
    const char *name = strrchr(path, '/');
    if (!*path || strstr(name ? name : path, "sparse24")) return FAULT_OURS; /* "": the program */
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        if (strstr(path, small[i])) return FAULT_SMALL;
    for (size_t i = 0; i < sizeof system / sizeof *system; i++)
        if (strstr(path, system[i])) return FAULT_SYSTEM;
    return FAULT_OTHERS;
}

static int add_library(struct dl_phdr_info *info, size_t size, void *user)
{
    int *count = user;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum && *count < MOST_PARTS; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X)) continue;
        const uintptr_t begin = info->dlpi_addr + segment->p_vaddr;
        parts[(*count)++] = (part){begin, begin + segment->p_memsz, whose(info->dlpi_name)};
    }
    return 0;
}

void fault_libraries(void)
{
    int count = 0;
    dl_iterate_phdr(add_library, &count);
    atomic_store(&part_count, count);
}

static int who_calls(const void *caller)
{
    const uintptr_t at = (uintptr_t)caller;
    if (!caller) return FAULT_OURS;
    for (int i = 0; i < atomic_load(&part_count); i++)
        if (at >= parts[i].begin && at < parts[i].end) return parts[i].who;
    return FAULT_OTHERS;
}

/* ---- the plan -------------------------------------------------------------------------------- */

static void write_where(const void *caller)
{
    Dl_info info;
    if (!dladdr(caller, &info)) return;
    snprintf(plan->where, sizeof plan->where, "%s(%s)", info.dli_fname,
             info.dli_sname ? info.dli_sname : "");
}

/* Counts a call; 1 where it is the one. */
static int is_chosen(enum fault_kind kind)
{
    const int64_t n = atomic_fetch_add(&plan->counts[kind], 1) + 1;
    return kind == plan->kind && (n == plan->at || (plan->all && n > plan->at));
}

int fault_now(enum fault_kind kind, const void *caller)
{
    if (!plan || !(plan->who & who_calls(caller)) || !is_chosen(kind)) return 0;
    if (atomic_fetch_add(&plan->hits, 1) == 0) write_where(caller);
    return (int)plan->action;
}

size_t fault_disk(int fd, size_t bytes)
{
    struct stat info;
    if (!plan || plan->disk < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return bytes;
    const int64_t left = plan->disk - atomic_fetch_add(&plan->used, (int64_t)bytes);
    if (left >= (int64_t)bytes) return bytes;
    atomic_fetch_add(&plan->hits, 1);
    return left > 0 ? (size_t)left : 0;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* A record's head; two names and the data follow. */
typedef struct head {
    int64_t what, process, fd, flags, offset, path, other, bytes;
} head;

static void record(const fault_change *c)
{
    const char *path = c->path ? c->path : "", *other = c->other ? c->other : "";
    const head h = {c->what,
                    getpid(),
                    c->fd,
                    c->flags,
                    c->offset,
                    (int64_t)strlen(path),
                    (int64_t)strlen(other),
                    (int64_t)c->bytes};
    const struct iovec all[] = {{(void *)(uintptr_t)&h, sizeof h},
                                {(void *)(uintptr_t)path, (size_t)h.path},
                                {(void *)(uintptr_t)other, (size_t)h.other},
                                {(void *)(uintptr_t)c->data, c->bytes}};
    if (writev(log_fd, all, 4) < 0) abort();
}

void fault_changed(const fault_change *change)
{
    if (!plan) return;
    const int before = errno;
    if (log_fd >= 0) record(change);
    const int only_tells = change->what == 'c' || (change->what == 'o' && !change->flags);
    if (!only_tells && is_chosen(FAULT_CHANGE) && plan->action == FAULT_KILL)
        syscall(SYS_kill, getpid(), SIGKILL);
    errno = before;
}

/* ---- the process ----------------------------------------------------------------------------- */

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("S24_FAULTS"), *log = getenv("S24_FAULT_LOG");
    const long fd = path ? syscall(SYS_open, path, O_RDWR | O_CLOEXEC, 0) : -1;
    if (fd < 0) return;
    fault_begin();
    if (log) log_fd = (int)syscall(SYS_open, log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    fault_streams_begin();
    fault_libraries();
    void *pages = mmap(NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd, 0);
    syscall(SYS_close, fd);
    if (pages == MAP_FAILED) abort();
    plan = pages; /* from here on */
}
