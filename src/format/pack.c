// SPDX-License-Identifier: Apache-2.0
/*
 * Rows to and from the canonical form. A row goes in chunks of groups through a small buffer:
 * elements move as bits of their own dtype, and only the stored ones are converted.
 */
#include <string.h>

#include "format/element.h"

enum { CHUNK = 64 }; /* groups */

static void put_code(uint8_t *indices, int64_t group, unsigned code)
{
    if (group & 1)
        indices[group >> 1] = (uint8_t)(indices[group >> 1] | code << 4);
    else
        indices[group >> 1] = (uint8_t)code;
}

/* `groups` groups from `first` on: their codes, and the stored elements, unconverted. keep, if not
   NULL, names what may be stored; src and keep point to the first of the groups. */
static inline void gather(void *stored, uint8_t *indices, int64_t first, int64_t groups,
                          const void *src, size_t bytes, uint32_t magnitude, const uint8_t *keep)
{
    for (int64_t g = 0; g < groups; g++) {
        const char *group = (const char *)src + (size_t)(4 * g) * bytes;
        unsigned mask = 0;
        if (keep)
            for (int i = 0; i < 4; i++)
                mask |= (unsigned)(keep[4 * g + i] != 0) << i;
        else
            mask = s24i_group_nonzeros(group, bytes, magnitude);
        unsigned code = s24i_code_of_mask(mask), a = code & 3u, b = code >> 2;
        uint32_t low = s24i_element_bits(group, bytes, a);
        uint32_t high = s24i_element_bits(group, bytes, b);
        put_code(indices, first + g, code);
        s24i_element_put(stored, bytes, 2 * g, keep && !(mask >> a & 1) ? 0 : low);
        s24i_element_put(stored, bytes, 2 * g + 1, keep && !(mask >> b & 1) ? 0 : high);
    }
}

void s24i_pack_row_mask(void *values, s24_dtype dst_dtype, uint8_t *indices, const void *src,
                        s24_dtype src_dtype, const uint8_t *keep, int64_t k)
{
    uint32_t stored[2 * CHUNK];
    s24i_element e = s24i_element_of(src_dtype);
    size_t dst_bytes = s24_dtype_bytes(dst_dtype);
    for (int64_t g = 0; g < k / 4; g += CHUNK) {
        int64_t n = k / 4 - g < CHUNK ? k / 4 - g : CHUNK;
        const char *from = (const char *)src + (size_t)(4 * g) * e.bytes;
        const uint8_t *kept = keep ? keep + 4 * g : NULL;
        if (e.bytes == 4)
            gather(stored, indices, g, n, from, 4, e.magnitude, kept);
        else if (e.bytes == 2)
            gather(stored, indices, g, n, from, 2, e.magnitude, kept);
        else
            gather(stored, indices, g, n, from, 1, e.magnitude, kept);
        s24_convert((char *)values + (size_t)(2 * g) * dst_bytes, dst_dtype, stored, src_dtype,
                    2 * n);
    }
}

void s24i_pack_row(void *values, s24_dtype dst_dtype, uint8_t *indices, const void *src,
                   s24_dtype src_dtype, int64_t k)
{
    s24i_pack_row_mask(values, dst_dtype, indices, src, src_dtype, NULL, k);
}

static inline void scatter(void *dst, const void *stored, const uint8_t *indices, int64_t first,
                           int64_t groups, size_t bytes)
{
    for (int64_t g = 0; g < groups; g++) {
        unsigned code = s24i_code(indices, first + g);
        char *group = (char *)dst + (size_t)(4 * g) * bytes;
        memset(group, 0, 4 * bytes);
        s24i_element_put(group, bytes, code & 3u, s24i_element_bits(stored, bytes, 2 * g));
        s24i_element_put(group, bytes, code >> 2, s24i_element_bits(stored, bytes, 2 * g + 1));
    }
}

void s24i_unpack_row(void *dst, s24_dtype dst_dtype, const void *values, s24_dtype dtype,
                     const uint8_t *indices, int64_t k)
{
    uint32_t stored[2 * CHUNK];
    size_t bytes = s24_dtype_bytes(dtype), dst_bytes = s24_dtype_bytes(dst_dtype);
    for (int64_t g = 0; g < k / 4; g += CHUNK) {
        int64_t n = k / 4 - g < CHUNK ? k / 4 - g : CHUNK;
        char *to = (char *)dst + (size_t)(4 * g) * dst_bytes;
        s24_convert(stored, dst_dtype, (const char *)values + (size_t)(2 * g) * bytes, dtype,
                    2 * n);
        if (dst_bytes == 4)
            scatter(to, stored, indices, g, n, 4);
        else if (dst_bytes == 2)
            scatter(to, stored, indices, g, n, 2);
        else
            scatter(to, stored, indices, g, n, 1);
    }
}
