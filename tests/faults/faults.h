// SPDX-License-Identifier: Apache-2.0
/*
 * A library to be preloaded, in whose hands is every call of the process that may fail: it counts
 * them by kind and makes one of them fail, or ends the process after it. What is asked of it, and
 * what it counted, stands in a file that all processes of a run map (S24_FAULTS names it;
 * fault_run.py writes it). S24_FAULT_LOG names a file to which all that changes files is written.
 */
#ifndef S24_TEST_FAULTS_H
#define S24_TEST_FAULTS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The kinds; fault_run.py has them in this order. CHANGE counts all that changes files, after it
   was done. */
enum fault_kind {
    FAULT_ALLOC,
    FAULT_MAP,
    FAULT_OPEN,
    FAULT_READ,
    FAULT_WRITE,
    FAULT_SYNC,
    FAULT_CLOSE,
    FAULT_RENAME,
    FAULT_UNLINK,
    FAULT_MKDIR,
    FAULT_STAT,
    FAULT_MODE,
    FAULT_LOCK,
    FAULT_THREAD,
    FAULT_FORK,
    FAULT_CHANGE,
    FAULT_KINDS
};

/* Whose a call is, a bit each: that of the program and its libraries, of the small C libraries that
   these use, of the C library, of others (oneDNN, a C++ runtime …). */
enum { FAULT_OURS = 1, FAULT_SMALL = 2, FAULT_SYSTEM = 4, FAULT_OTHERS = 8 };

/* What happens in place of a call's errno. */
enum { FAULT_KILL = -1 /* SIGKILL after it */, FAULT_SHORT = -2 /* it does half of its bytes */ };

/* The file: 64-bit numbers, then text. */
typedef struct fault_plan {
    int64_t kind, at, all; /* the at-th call of the kind, from 1; all: and all later ones */
    int64_t action;        /* an errno, or one of those above */
    int64_t who;           /* calls of these count */
    int64_t disk;          /* bytes that files may be given; negative: as many as they like */
    _Atomic int64_t used;  /* of these */
    _Atomic int64_t hits;  /* faults that there were */
    _Atomic int64_t counts[FAULT_KINDS];
    char where[256]; /* who got the first one: "library(function)" */
} fault_plan;

/* To be called at the beginning of every function that stands for another. */
void fault_begin(void);
/* What a call of that kind from `caller` (NULL: the program) is to do: 0, an errno or
   FAULT_SHORT. */
int fault_now(enum fault_kind kind, const void *caller);
/* How many of these bytes a write to an open file may have: fewer, or none, on a full disk. */
size_t fault_disk(int fd, size_t bytes);
/* Looks again at which libraries there are. */
void fault_libraries(void);

/* A change of files that was made, or that tells which file is meant. */
typedef struct fault_change {
    char what; /* o open, w write, s sync, c close, r rename, x exchange, u unlink, m mkdir */
    int fd, flags;
    int64_t offset; /* −1: where the file stands */
    const char *path, *other;
    const void *data;
    size_t bytes;
} fault_change;
void fault_changed(const fault_change *change);

/* The calls themselves, for the streams of fault_streams.c. */
int fault_open(const char *path, int flags, mode_t mode, const void *caller);
ssize_t fault_read(int fd, void *data, size_t bytes, const void *caller);
ssize_t fault_write(int fd, const void *data, size_t bytes, const void *caller);
int fault_close(int fd, const void *caller);
/* In place of the program's standard output, whose writes no other library sees. */
void fault_streams_begin(void);

/* The function of that name that would have been called. */
void fault_find(void *function, const char *name);

#define CALLER __builtin_return_address(0)

#endif
