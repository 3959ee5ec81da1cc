// SPDX-License-Identifier: Apache-2.0
/*
 * What a fuzz target defines. It returns 0, and aborts when a promise is broken; a sanitizer or a
 * crash finds the rest. Run one by hand (see also CONTRIBUTING.md):
 *
 *     cmake --preset fuzz && cmake --build --preset fuzz
 *     build/fuzz/tests/fuzz/fuzz_safetensors -max_len=4096 found tests/fuzz/corpus/fuzz_safetensors
 *
 * What it finds goes, made small with -minimize_crash=1, into corpus/<target>/ under a name that
 * says what it is, and is replayed by the suite from then on.
 */
#ifndef S24_FUZZ_H
#define S24_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) abort();                                                                 \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static inline void fuzz_write(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    CHECK(file);
    CHECK(fwrite(data, 1, bytes, file) == bytes);
    CHECK(fclose(file) == 0);
}

#endif
