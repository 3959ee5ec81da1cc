// SPDX-License-Identifier: Apache-2.0
/*
 * What a fuzz target defines, and files for the readers that take a path. A target returns 0, and
 * aborts when a promise is broken; a sanitizer or a crash finds the rest. targets.txt lists the
 * targets, tools/fuzz runs them, docs/fuzzing.md says how to add one.
 *
 * What is found goes, made small with -minimize_crash=1, into corpus/fuzz_NAME/ under a name that
 * says what it is, and is replayed by the suite from then on.
 */
#ifndef S24_FUZZ_H
#define S24_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "sparse24/nn.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) abort();                                                                 \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A folder of this process's own in memory (tmpfs, where the system has one), removed at its end
   with all that fuzz_put made. TMPDIR, where it is set, says where. */
const char *fuzz_folder(void);
/* Writes a file there in place of what it held and returns its path, which stays valid. A name may
   lie in folders, which are made. */
const char *fuzz_put(const char *name, const void *data, size_t bytes);
/* The path of a file or folder there that the code under test makes: it must be gone at the end. */
const char *fuzz_path(const char *name);
/* Removes a file that fuzz_put wrote, if it is there. */
void fuzz_remove(const char *name);
/* Removes a file or a folder that the code under test made, with all in it; 0: there is none. */
int fuzz_remove_tree(const char *name);
/*
 * A folder's files in one input, each as "NAME BYTES\n" and its bytes: those of `names` [count] are
 * put in the folder, those of them that are not there are removed, others are left out. Returns
 * how many were put.
 */
int fuzz_put_parts(const uint8_t *data, size_t bytes, const char *const *names, int count);
/* A context of one thread, made once. */
s24_ctx *fuzz_ctx(void);

#endif
