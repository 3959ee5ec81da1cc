// SPDX-License-Identifier: Apache-2.0
/* Reads a template's tokens for the parsers of expressions and statements, and makes nodes. */
#include "io/jinja/jinja_tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

s24i_jnode *s24i_jrefuse(s24i_jparser *p, s24_status status, const char *format, ...)
{
    char text[240];
    va_list list;
    if (p->status != S24_OK) return NULL;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    p->status = s24_ctx_fail(p->jinja->arena.ctx, status, "%s: line %d: %s", p->jinja->file,
                             p->at->line, text);
    return NULL;
}

s24i_jnode *s24i_jnode_new(s24i_jparser *p, s24i_jnode_type type)
{
    if (p->status != S24_OK) return NULL;
    s24i_jnode *node = s24i_jarena_take(&p->jinja->arena, sizeof *node);
    if (!node) return s24i_jrefuse(p, S24_ERROR_MEMORY, "out of memory for a chat template");
    node->type = (uint8_t)type;
    node->line = p->at->line;
    return node;
}

int s24i_jis(const s24i_jparser *p, const char *operator)
{
    return p->at->type == S24I_JT_OPERATOR && !strcmp(p->at->text, operator);
}

int s24i_jis_name(const s24i_jparser *p, const char *name)
{
    return p->at->type == S24I_JT_NAME && !strcmp(p->at->name, name);
}

int s24i_jskip(s24i_jparser *p, const char *operator)
{
    const int there = p->status == S24_OK && s24i_jis(p, operator);
    p->at += there;
    return there;
}

int s24i_jskip_name(s24i_jparser *p, const char *name)
{
    const int there = p->status == S24_OK && s24i_jis_name(p, name);
    p->at += there;
    return there;
}

s24i_shown s24i_jshown(const s24i_jparser *p)
{
    static const char *const types[] = {[S24I_JT_END] = "the end of the template",
                                        [S24I_JT_DATA] = "text",
                                        [S24I_JT_BLOCK] = "{%",
                                        [S24I_JT_BLOCK_END] = "%}",
                                        [S24I_JT_PRINT] = "{{",
                                        [S24I_JT_PRINT_END] = "}}",
                                        [S24I_JT_VALUE] = "a string or number"};
    const s24i_jtoken *t = p->at;
    return s24i_show(t->type == S24I_JT_NAME       ? t->name
                     : t->type == S24I_JT_OPERATOR ? t->text
                                                   : types[t->type]);
}

int s24i_jexpect(s24i_jparser *p, const char *operator)
{
    if (s24i_jskip(p, operator)) return 1;
    s24i_jrefuse(p, S24_ERROR_FORMAT, "%s was expected instead of %s", operator,
                 s24i_jshown(p).text);
    return 0;
}

const char *s24i_jexpect_name(s24i_jparser *p)
{
    if (p->status == S24_OK && p->at->type == S24I_JT_NAME) return p->at++->name;
    s24i_jrefuse(p, S24_ERROR_FORMAT, "a name was expected instead of %s", s24i_jshown(p).text);
    return NULL;
}

int s24i_jenter(s24i_jparser *p)
{
    if (p->status != S24_OK) return 0;
    if (++p->nested <= S24I_JMOST_NESTED) return 1;
    s24i_jrefuse(p, S24_ERROR_UNSUPPORTED, "more than %d levels within one another",
                 S24I_JMOST_NESTED);
    return 0;
}

int s24i_jchained(s24i_jparser *p, int *count)
{
    if (p->status != S24_OK) return 0;
    if (++*count <= S24I_JMOST_CHAIN) return 1;
    s24i_jrefuse(p, S24_ERROR_UNSUPPORTED, "more than %d operators after one another",
                 S24I_JMOST_CHAIN);
    return 0;
}
