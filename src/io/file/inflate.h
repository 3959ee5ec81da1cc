// SPDX-License-Identifier: Apache-2.0
/* Bytes that "deflate" packed (RFC 1951), as zip archives have them. */
#ifndef S24_IO_FILE_INFLATE_H
#define S24_IO_FILE_INFLATE_H

#include <stddef.h>
#include <stdint.h>

/* 1: the stream is whole and gives exactly out_bytes; 0: it is none. */
int s24i_inflate(uint8_t *out, size_t out_bytes, const uint8_t *in, size_t in_bytes);
/* The most bytes that so many may become. */
#define S24I_INFLATE_MOST(in_bytes) ((uint64_t)(in_bytes)*1032)

#endif
