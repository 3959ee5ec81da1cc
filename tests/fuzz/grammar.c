// SPDX-License-Identifier: Apache-2.0
/* The grammars but JSON's, and what libFuzzer calls. The row of a target says which one it has. */
#include "grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed);

enum { SCRATCH = 1 << 20, LENGTH = 8 };

size_t grammar_random(grammar_input *in, size_t below)
{
    in->random = in->random * 1664525u + 1013904223u;
    return (in->random >> 8) % below;
}

int grammar_splice(grammar_input *in, size_t begin, size_t end, const void *from, size_t count)
{
    static uint8_t scratch[SCRATCH];
    if (count > sizeof scratch || in->bytes - (end - begin) + count > in->most) return 0;
    memcpy(scratch, from, count); /* which may lie in the input */
    memmove(in->data + begin + count, in->data + end, in->bytes - end);
    memcpy(in->data + begin, scratch, count);
    in->bytes = in->bytes - (end - begin) + count;
    return 1;
}

void grammar_bytes(grammar_input *in)
{
    in->bytes = LLVMFuzzerMutate(in->data, in->bytes, in->most);
}

/* Changes the part from begin up to end by another grammar, and puts it back. */
static void change_part(grammar_input *in, size_t begin, size_t end, void (*how)(grammar_input *))
{
    const size_t rest = in->most - (in->bytes - (end - begin));
    grammar_input part = *in;
    part.bytes = end - begin;
    part.most = rest < SCRATCH ? rest : SCRATCH;
    if (part.bytes > part.most || !(part.data = malloc(part.most + 1))) return;
    memcpy(part.data, in->data + begin, part.bytes);
    how(&part);
    in->random = part.random;
    (void)grammar_splice(in, begin, end, part.data, part.bytes);
    free(part.data);
}

void grammar_tensors(grammar_input *in)
{
    uint64_t length;
    size_t end = in->bytes;
    if (in->bytes <= LENGTH || grammar_random(in, 16) == 0) {
        grammar_bytes(in);
        return;
    }
    memcpy(&length, in->data, LENGTH);
    if (length <= in->bytes - LENGTH)
        end = LENGTH + (size_t)length;
    else
        while (end > LENGTH && in->data[end - 1] != '}')
            end--;
    if (end == in->bytes || grammar_random(in, 3)) {
        const size_t after = in->bytes - end;
        change_part(in, LENGTH, end, grammar_json);
        length = in->bytes - after - LENGTH;
    } else { /* of data the bytes change, not their number, which the header gives */
        static uint8_t room[SCRATCH];
        const size_t count = in->bytes - end < SCRATCH ? in->bytes - end : SCRATCH;
        memcpy(room, in->data + end, count);
        (void)LLVMFuzzerMutate(room, count, count);
        memcpy(in->data + end, room, count);
        length = end - LENGTH;
    }
    if (grammar_random(in, 16)) memcpy(in->data, &length, LENGTH);
}

static int ends_with(const char *name, const char *end)
{
    const size_t bytes = strlen(name), count = strlen(end);
    return bytes >= count && !strcmp(name + bytes - count, end);
}

/* "NAME BYTES\n", then so many bytes, and the next. */
void grammar_parts(grammar_input *in)
{
    enum { MOST = 16 };
    struct {
        size_t head, begin, end;
        char name[64];
    } parts[MOST];
    size_t count = 0, at = 0, length;
    int used;
    char head[96];
    while (count < MOST && at < in->bytes) {
        const size_t left = in->bytes - at < sizeof head - 1 ? in->bytes - at : sizeof head - 1;
        memcpy(head, in->data + at, left);
        head[left] = '\0';
        used = 0;
        if (sscanf(head, "%63s %zu%n", parts[count].name, &length, &used) != 2 || !used) break;
        parts[count].head = at;
        parts[count].begin = at + (size_t)used + 1;
        if (head[used] != '\n' || length > in->bytes - parts[count].begin) break;
        at = parts[count].end = parts[count].begin + length;
        count++;
    }
    if (!count || grammar_random(in, 32) == 0) {
        grammar_tensors(in);
        return;
    }
    const size_t which = grammar_random(in, count);
    const char *name = parts[which].name;
    const size_t before = in->bytes;
    change_part(in, parts[which].begin, parts[which].end,
                ends_with(name, ".json")          ? grammar_json
                : ends_with(name, ".safetensors") ? grammar_tensors
                                                  : grammar_bytes);
    length = parts[which].end - parts[which].begin + in->bytes - before;
    used = snprintf(head, sizeof head, "%s %zu\n", name, length);
    (void)grammar_splice(in, parts[which].head, parts[which].begin, head, (size_t)used);
}

/* The input before this one is the other, of which parts are taken now and then. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed)
{
    static uint8_t last[1 << 16], before[sizeof last];
    static size_t last_bytes;
    grammar_input in = {.data = data, .bytes = bytes, .most = most, .random = seed};
    if (last_bytes && grammar_random(&in, 4) == 0) {
        memcpy(before, last, last_bytes);
        in.other = before;
        in.other_bytes = last_bytes;
    }
    last_bytes = bytes < sizeof last ? bytes : 0;
    memcpy(last, data, last_bytes);
    FUZZ_GRAMMAR(&in);
    return in.bytes;
}
