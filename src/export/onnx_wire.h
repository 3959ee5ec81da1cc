// SPDX-License-Identifier: Apache-2.0
/*
 * Messages of protocol buffers, written into memory: fields one after another, each with its
 * number. The first failure stays in `status`, and what comes after it is left out.
 */
#ifndef S24_EXPORT_ONNX_WIRE_H
#define S24_EXPORT_ONNX_WIRE_H

#include "io/file/io.h"

typedef struct s24i_wire {
    s24_ctx *ctx;
    uint8_t *bytes;
    int64_t count, room;
    s24_status status; /* OK or MEMORY */
} s24i_wire;

void s24i_wire_number(s24i_wire *wire, int field, int64_t value);
void s24i_wire_real(s24i_wire *wire, int field, float value);
void s24i_wire_bytes(s24i_wire *wire, int field, const void *bytes, int64_t count);
void s24i_wire_text(s24i_wire *wire, int field, const char *text);
/* What was put since count was `begin` becomes the message of a field; so do `following` bytes that
   the caller writes after it. */
void s24i_wire_end(s24i_wire *wire, int field, int64_t begin, int64_t following);
void s24i_wire_free(s24i_wire *wire);

#endif
