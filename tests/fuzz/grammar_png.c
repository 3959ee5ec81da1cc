// SPDX-License-Identifier: Apache-2.0
/*
 * PNG: what changes is a chunk's bytes, or the rows of an IDAT that zlib holds in one stored block.
 * Lengths and sums stay right, without which a reader looks no further.
 */
#include <stdlib.h>
#include <string.h>

#include "grammar.h"

enum { SIGNATURE = 8, HEAD = 8, SUM = 4, CHUNKS = 32, ZLIB = 2, STORED = 5, ROWS = 0xffff };

typedef struct chunk {
    size_t head, begin, end; /* of the input: length and type, data, which its sum follows */
} chunk;

static uint32_t number_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_number(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint32_t crc_of(const uint8_t *bytes, size_t count)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

static uint32_t adler_of(const uint8_t *bytes, size_t count)
{
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < count; i++) {
        a = (a + bytes[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

static int chunks_of(chunk *out, const grammar_input *in)
{
    int count = 0;
    size_t at = SIGNATURE;
    while (count < CHUNKS && in->bytes > at && in->bytes - at >= HEAD + SUM) {
        const size_t bytes = number_at(in->data + at);
        if (bytes > in->bytes - at - HEAD - SUM) break;
        out[count++] = (chunk){at, at + HEAD, at + HEAD + bytes};
        at += HEAD + bytes + SUM;
    }
    return count;
}

/* Rows as zlib stores them; returns how many bytes that are. */
static size_t store(uint8_t *to, const uint8_t *rows, size_t count)
{
    const uint8_t head[ZLIB + STORED] = {
        0x78, 1, 1, (uint8_t)count, (uint8_t)(count >> 8), (uint8_t)~count, (uint8_t)(~count >> 8)};
    memcpy(to, head, sizeof head);
    memcpy(to + sizeof head, rows, count);
    put_number(to + sizeof head + count, adler_of(rows, count));
    return sizeof head + count + SUM;
}

/* Changes the data of a chunk, `bytes` of at most `most`; returns how many there are then. */
static size_t change(grammar_input *in, const uint8_t *type, uint8_t *data, size_t bytes,
                     size_t most)
{
    static uint8_t rows[ROWS];
    const size_t more = ZLIB + STORED + SUM;
    grammar_input part = {.data = data, .bytes = bytes, .most = most, .random = in->random};
    const int is_stored = !memcmp(type, "IDAT", 4) && bytes > more && data[ZLIB] == 1;
    if (is_stored && bytes - more <= ROWS && most > more && grammar_random(&part, 8)) {
        part.data = rows;
        part.bytes = bytes - more;
        part.most = most - more < ROWS ? most - more : ROWS;
        memcpy(rows, data + ZLIB + STORED, part.bytes);
        grammar_bytes(&part);
        part.bytes = store(data, rows, part.bytes);
    } else {
        grammar_bytes(&part);
    }
    in->random = part.random;
    return part.bytes;
}

void grammar_png(grammar_input *in)
{
    enum { ROOM = 1 << 16 };
    static uint8_t data[HEAD + ROOM + SUM];
    chunk chunks[CHUNKS];
    const int is_png = in->bytes > SIGNATURE && !memcmp(in->data, "\x89PNG\r\n\x1a\n", SIGNATURE);
    const int count = is_png ? chunks_of(chunks, in) : 0;
    if (!count || grammar_random(in, 16) == 0) {
        grammar_bytes(in);
        return;
    }
    const chunk *c = &chunks[grammar_random(in, (size_t)count)];
    const size_t bytes = c->end - c->begin, rest = in->bytes - bytes;
    if (bytes > ROOM || rest >= in->most) return;
    const size_t most = in->most - rest < ROOM ? in->most - rest : ROOM;
    memcpy(data, in->data + c->head, HEAD + bytes);
    const size_t now = change(in, data + 4, data + HEAD, bytes, most);
    put_number(data, (uint32_t)now);
    put_number(data + HEAD + now, crc_of(data + 4, 4 + now));
    (void)grammar_splice(in, c->head, c->end + SUM, data, HEAD + now + SUM);
}
