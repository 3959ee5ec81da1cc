// SPDX-License-Identifier: Apache-2.0
/*
 * Reads what "deflate" packed: blocks that are stored, or of literals and earlier bytes in a fixed
 * code or in one of their own. Codes of up to FAST bits are looked up at once, longer ones are
 * found length by length. Nothing is read or written outside the two ranges, whatever they hold.
 *
 * Reference: Deutsch, "DEFLATE compressed data format specification", RFC 1951, 1996.
 */
#include "io/file/inflate.h"

#include <string.h>

enum { MOST_BITS = 15, FAST = 10, SYMBOLS = 288, DISTANCES = 30, END = 256, SHIFT = 9 };

typedef struct stream {
    const uint8_t *in, *in_end;
    uint8_t *out, *at, *out_end;
    uint64_t hold; /* bits that are read and not taken, the next one lowest */
    int held, bad;
} stream;

/* A code by its lengths: how many codes have each, and the symbols in their order. */
typedef struct code {
    uint16_t count[MOST_BITS + 1], symbol[SYMBOLS];
    uint16_t fast[1 << FAST]; /* length << SHIFT | symbol; 0: a longer code, or none */
} code;

static void fill(stream *s)
{
    while (s->held <= 56 && s->in < s->in_end) {
        s->hold |= (uint64_t)*s->in++ << s->held;
        s->held += 8;
    }
}

static void drop(stream *s, int bits)
{
    s->bad |= s->held < bits;
    s->hold >>= bits;
    s->held -= s->held < bits ? s->held : bits;
}

static int take(stream *s, int bits)
{
    fill(s);
    const int value = (int)(s->hold & ((1u << bits) - 1));
    drop(s, bits);
    return s->bad ? 0 : value;
}

/* All codes of up to FAST bits that end in what follows them, their bits turned. */
static void fill_fast(code *c, const uint8_t *lengths, int symbols)
{
    int next[MOST_BITS + 2] = {0};
    memset(c->fast, 0, sizeof c->fast);
    for (int bits = 1; bits <= MOST_BITS; bits++)
        next[bits + 1] = (next[bits] + c->count[bits]) << 1;
    for (int i = 0; i < symbols; i++) {
        const int bits = lengths[i];
        if (!bits) continue;
        const int value = next[bits]++;
        int turned = 0;
        for (int b = 0; b < bits; b++)
            turned |= (value >> b & 1) << (bits - 1 - b);
        for (; bits <= FAST && turned < 1 << FAST; turned += 1 << bits)
            c->fast[turned] = (uint16_t)(bits << SHIFT | i);
    }
}

/* 0: more codes than there can be, or too few; a single one may stand alone. */
static int make_code(code *c, const uint8_t *lengths, int symbols)
{
    int left = 1, places[MOST_BITS + 1] = {0}, used = 0;
    memset(c->count, 0, sizeof c->count);
    for (int i = 0; i < symbols; i++)
        c->count[lengths[i]]++;
    used = symbols - c->count[0];
    c->count[0] = 0;
    for (int bits = 1; bits <= MOST_BITS; bits++) {
        left = 2 * left - c->count[bits];
        if (left < 0) return 0;
        places[bits] = places[bits - 1] + c->count[bits - 1];
    }
    for (int i = 0; i < symbols; i++)
        if (lengths[i]) c->symbol[places[lengths[i]]++] = (uint16_t)i;
    fill_fast(c, lengths, symbols);
    return left == 0 || used <= 1;
}

static int decode(stream *s, const code *c)
{
    int value = 0, first = 0, index = 0;
    fill(s);
    const int entry = c->fast[s->hold & ((1 << FAST) - 1)];
    if (entry) {
        drop(s, entry >> SHIFT);
        return entry & ((1 << SHIFT) - 1);
    }
    for (int bits = 1; bits <= MOST_BITS; bits++) {
        value |= (int)(s->hold >> (bits - 1) & 1);
        if (value - first < c->count[bits]) {
            drop(s, bits);
            return c->symbol[index + value - first];
        }
        index += c->count[bits];
        first = (first + c->count[bits]) << 1;
        value <<= 1;
    }
    s->bad = 1;
    return 0;
}

static void copy_back(stream *s, int length, int distance)
{
    s->bad |= distance > s->at - s->out || length > s->out_end - s->at;
    for (; length > 0 && !s->bad; length--, s->at++)
        *s->at = s->at[-distance];
}

static void read_symbols(stream *s, const code *literals, const code *distances)
{
    static const uint16_t lengths[] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                       15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                       67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint16_t far[] = {1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                   33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                   1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    while (!s->bad) {
        const int symbol = decode(s, literals);
        if (symbol == END) return;
        if (symbol < END) {
            s->bad |= s->at == s->out_end;
            if (!s->bad) *s->at++ = (uint8_t)symbol;
            continue;
        }
        const int i = symbol - END - 1;
        if (i >= (int)(sizeof lengths / sizeof *lengths)) break;
        const int length = lengths[i] + take(s, i < 8 || i == 28 ? 0 : i / 4 - 1);
        const int d = decode(s, distances);
        if (d >= DISTANCES) break;
        copy_back(s, length, far[d] + take(s, d < 4 ? 0 : d / 2 - 1));
    }
    s->bad = 1;
}

static void read_stored(stream *s)
{
    drop(s, s->held % 8);
    int length = take(s, 16);
    const int turned = take(s, 16);
    s->bad |= length != (turned ^ 0xffff) || length > s->out_end - s->at;
    for (; length > 0 && !s->bad; length--)
        *s->at++ = (uint8_t)take(s, 8);
}

static void read_fixed(stream *s)
{
    uint8_t lengths[SYMBOLS];
    code literals, distances;
    for (int i = 0; i < SYMBOLS; i++)
        lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    make_code(&literals, lengths, SYMBOLS);
    memset(lengths, 5, DISTANCES);
    make_code(&distances, lengths, DISTANCES);
    read_symbols(s, &literals, &distances);
}

/* The lengths of both codes, which are in a code themselves. */
static void read_lengths(stream *s, uint8_t *lengths, int count, const code *c)
{
    for (int at = 0; at < count && !s->bad;) {
        const int symbol = decode(s, c);
        if (symbol < 16) {
            lengths[at++] = (uint8_t)symbol;
            continue;
        }
        const uint8_t value = symbol == 16 && at > 0 ? lengths[at - 1] : 0;
        int times = symbol == 16 ? 3 + take(s, 2) : symbol == 17 ? 3 + take(s, 3) : 11 + take(s, 7);
        s->bad |= (symbol == 16 && at == 0) || times > count - at;
        for (; times > 0 && !s->bad; times--)
            lengths[at++] = value;
    }
}

static void read_dynamic(stream *s)
{
    static const uint8_t order[] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                    11, 4,  12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[SYMBOLS + 32] = {0}, small[sizeof order] = {0};
    code literals, distances;
    const int symbols = 257 + take(s, 5), fars = 1 + take(s, 5), smalls = 4 + take(s, 4);
    for (int i = 0; i < smalls; i++)
        small[order[i]] = (uint8_t)take(s, 3);
    s->bad |= symbols > 286 || fars > DISTANCES || !make_code(&literals, small, sizeof small);
    if (s->bad) return;
    read_lengths(s, lengths, symbols + fars, &literals);
    s->bad |= !lengths[END];
    if (s->bad || !make_code(&literals, lengths, symbols) ||
        !make_code(&distances, lengths + symbols, fars))
        s->bad = 1;
    else
        read_symbols(s, &literals, &distances);
}

int s24i_inflate(uint8_t *out, size_t out_bytes, const uint8_t *in, size_t in_bytes)
{
    stream s = {
        .in = in, .in_end = in + in_bytes, .out = out, .at = out, .out_end = out + out_bytes};
    for (int last = 0; !last && !s.bad;) {
        last = take(&s, 1);
        const int kind = take(&s, 2);
        if (kind == 0)
            read_stored(&s);
        else if (kind == 1)
            read_fixed(&s);
        else if (kind == 2)
            read_dynamic(&s);
        else
            s.bad = 1;
    }
    return !s.bad && s.at == s.out_end;
}
