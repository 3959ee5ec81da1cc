// SPDX-License-Identifier: Apache-2.0
/*
 * How inputs are changed: a grammar of targets.txt is a function grammar_NAME, which changes a
 * buffer of *bytes, at most `most`, with the random numbers that it is given.
 */
#ifndef S24_FUZZ_GRAMMAR_H
#define S24_FUZZ_GRAMMAR_H

#include <stddef.h>
#include <stdint.h>

typedef struct grammar_input {
    uint8_t *data;
    size_t bytes, most;
    uint32_t random; /* state */
    /* Another input, of which a part may be taken; NULL: none. */
    const uint8_t *other;
    size_t other_bytes;
} grammar_input;

/* libFuzzer's own changes. */
void grammar_bytes(grammar_input *in);
/* JSON, whatever stands before or after it: values are taken away, doubled, exchanged. */
void grammar_json(grammar_input *in);
/* safetensors: a length, JSON, data; the length and the number of bytes stay right. */
void grammar_tensors(grammar_input *in);
/* PNG: chunks, whose lengths and sums stay right; what is none as libFuzzer does. */
void grammar_png(grammar_input *in);
/* Files one after the other, as fuzz_put_parts takes them, each by what its name says; one file
   alone as safetensors. */
void grammar_parts(grammar_input *in);

/* A number below `below`, which is over 0. */
size_t grammar_random(grammar_input *in, size_t below);
/* Puts `count` bytes in place of those from `begin` up to `end`; 0: there is no room. */
int grammar_splice(grammar_input *in, size_t begin, size_t end, const void *from, size_t count);

#endif
