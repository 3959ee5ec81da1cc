// SPDX-License-Identifier: Apache-2.0
/* Fields of protocol buffers as their encoding has them: a tag, then a number of seven bits a byte,
   four bytes, or a length and bytes. */
#include "export/onnx_wire.h"

#include <string.h>

enum { WIRE_NUMBER = 0, WIRE_BYTES = 2, WIRE_FOUR = 5, MOST_BYTES = 10 };

static void put(s24i_wire *wire, const void *bytes, int64_t count)
{
    if (wire->status == S24_OK)
        wire->status = s24i_reserve_elems(&wire->bytes, &wire->room, wire->ctx, wire->count + count,
                                          1, "a message of a model.onnx");
    if (wire->status != S24_OK || !count) return;
    memcpy(wire->bytes + wire->count, bytes, (size_t)count);
    wire->count += count;
}

/* Seven bits in each byte, the lowest first; how many bytes it takes. */
static int spell(uint8_t to[MOST_BYTES], uint64_t value)
{
    int count = 0;
    for (; value > 127; value >>= 7)
        to[count++] = (uint8_t)(value | 128);
    to[count++] = (uint8_t)value;
    return count;
}

static void put_number(s24i_wire *wire, uint64_t value)
{
    uint8_t bytes[MOST_BYTES];
    put(wire, bytes, spell(bytes, value));
}

static void put_tag(s24i_wire *wire, int field, int type)
{
    put_number(wire, (uint64_t)field << 3 | (uint64_t)type);
}

void s24i_wire_number(s24i_wire *wire, int field, int64_t value)
{
    put_tag(wire, field, WIRE_NUMBER);
    put_number(wire, (uint64_t)value);
}

void s24i_wire_real(s24i_wire *wire, int field, float value)
{
    put_tag(wire, field, WIRE_FOUR);
    put(wire, &value, sizeof value);
}

void s24i_wire_bytes(s24i_wire *wire, int field, const void *bytes, int64_t count)
{
    put_tag(wire, field, WIRE_BYTES);
    put_number(wire, (uint64_t)count);
    put(wire, bytes, count);
}

void s24i_wire_text(s24i_wire *wire, int field, const char *text)
{
    s24i_wire_bytes(wire, field, text, (int64_t)strlen(text));
}

void s24i_wire_end(s24i_wire *wire, int field, int64_t begin, int64_t following)
{
    uint8_t head[2 * MOST_BYTES];
    if (wire->status != S24_OK) return;
    const int64_t bytes = wire->count - begin;
    int count = spell(head, (uint64_t)field << 3 | WIRE_BYTES);
    count += spell(head + count, (uint64_t)(bytes + following));
    put(wire, head, count); /* room; then what was put makes way */
    if (wire->status != S24_OK) return;
    memmove(wire->bytes + begin + count, wire->bytes + begin, (size_t)bytes);
    memcpy(wire->bytes + begin, head, (size_t)count);
}

void s24i_wire_free(s24i_wire *wire)
{
    s24_ctx_free(wire->ctx, wire->bytes);
    *wire = (s24i_wire){.ctx = wire->ctx};
}
