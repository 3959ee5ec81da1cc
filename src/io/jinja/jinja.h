// SPDX-License-Identifier: Apache-2.0
/*
 * The part of Jinja2 that chat templates use, as transformers runs it: in an immutable sandbox,
 * blocks trimmed, with loop controls and the tag `generation`. What is not carried out is refused
 * by its name when a template is read; a template that runs is bounded in steps, depth and memory.
 *
 *     TRY(s24i_jinja_parse(&jinja, ctx, path, &text));
 *     TRY(s24i_jinja_open(&run, ctx, jinja, bytes));
 *     s24i_jinja_set(run, "messages", s24i_jfrom_json(run, json));
 *     status = s24i_jinja_render(&string, run);
 *     s24i_jinja_close(run);
 */
#ifndef S24_IO_JINJA_JINJA_H
#define S24_IO_JINJA_JINJA_H

#include "io/jinja/jinja_value.h"

typedef struct s24i_jinja s24i_jinja;

/* Reads a template; file is for sentences, here and when it runs, and is copied. FORMAT (no
   template, with its line), UNSUPPORTED (what is not carried out, by name), MEMORY. */
s24_status s24i_jinja_parse(s24i_jinja **out, s24_ctx *ctx, const char *file, const s24_text *text);
void s24i_jinja_free(s24i_jinja *jinja);
/* 1: a name of that kind stands somewhere in it: a variable or an attribute. */
int s24i_jinja_reads(const s24i_jinja *jinja, const char *name);
/* 1: these bytes stand in its text. */
int s24i_jinja_has(const s24i_jinja *jinja, const char *bytes);

/* A run, which is given `bytes` of input: more of it may take more memory. MEMORY. */
s24_status s24i_jinja_open(s24i_jrun **out, s24_ctx *ctx, const s24i_jinja *jinja, size_t bytes);
void s24i_jinja_set(s24i_jrun *run, const char *name, s24i_jvalue value);
/* The text, which goes with the run. ARGUMENT (what the template refuses, cannot do with what it
   is given, or does too much of), MEMORY. */
s24_status s24i_jinja_render(s24i_jvalue *string, s24i_jrun *run);
void s24i_jinja_close(s24i_jrun *run);

#endif
