// SPDX-License-Identifier: Apache-2.0
/* The hash by which files say what they hold: XXH3 of 64 bits, as 16 hexadecimal digits. It finds
   damage; it keeps nobody from writing other data with their hash. */
#ifndef S24_IO_FILE_XXH3_H
#define S24_IO_FILE_XXH3_H

#include <stddef.h>
#include <stdint.h>

enum { S24I_HASH_DIGITS = 16 };
typedef struct s24i_digits {
    char text[S24I_HASH_DIGITS + 1];
} s24i_digits;

uint64_t s24i_xxh3(const void *data, size_t bytes);
/* The same of data that come in pieces: begin gives NULL where memory ends; end gives the hash and
   frees what begin made, which may be NULL. */
typedef struct s24i_xxh3_stream s24i_xxh3_stream;
s24i_xxh3_stream *s24i_xxh3_begin(void);
void s24i_xxh3_add(s24i_xxh3_stream *stream, const void *data, size_t bytes);
uint64_t s24i_xxh3_end(s24i_xxh3_stream *stream);
/* In lower case. */
s24i_digits s24i_xxh3_digits(uint64_t hash);

#endif
