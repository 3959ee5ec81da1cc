// SPDX-License-Identifier: Apache-2.0
/* Makes the tree of a template's statements. */
#include "io/jinja/jinja_tree.h"

#include <string.h>

static s24i_jnode *statements(s24i_jparser *p, const char *const *ends);

/* A statement's body, up to one of the tags `ends`, whose name is then the next token. */
static s24i_jnode *body(s24i_jparser *p, const char *const *ends)
{
    if (p->status != S24_OK) return NULL;
    if (p->at->type != S24I_JT_BLOCK_END)
        return s24i_jrefuse(p, S24_ERROR_FORMAT, "%%} was expected before the block's text");
    if (!s24i_jenter(p)) return NULL;
    p->at++;
    s24i_jnode *list = statements(p, ends);
    p->nested--;
    return list;
}

/* The same, to the one tag that ends it, which is gone over. */
static s24i_jnode *whole_body(s24i_jparser *p, const char *end)
{
    s24i_jnode *list = body(p, (const char *const[]){end, NULL});
    p->at += p->status == S24_OK;
    return list;
}

/* A list of statements under a node, even without one. */
static s24i_jnode *read_if(s24i_jparser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    s24i_jnode *first = NULL, *last = NULL;
    p->soft++;
    for (int more = 1; more && p->status == S24_OK;) {
        s24i_jnode *node = s24i_jnode_new(p, S24I_JN_IF);
        if (!node) return NULL;
        node->kid[0] = s24i_jtuple(p, 1);
        node->kid[1] = body(p, ends);
        if (last)
            last->kid[2] = node;
        else
            first = node;
        last = node;
        more = s24i_jskip_name(p, "elif");
    }
    if (s24i_jskip_name(p, "else"))
        last->kid[2] = whole_body(p, "endif");
    else
        p->at += p->status == S24_OK;
    p->soft--;
    return first;
}

static s24i_jnode *read_for(s24i_jparser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    s24i_jnode *node = s24i_jnode_new(p, S24I_JN_FOR);
    if (!node) return NULL;
    node->kid[0] = s24i_jtarget(p, 0);
    if (!s24i_jskip_name(p, "in"))
        return s24i_jrefuse(p, S24_ERROR_FORMAT, "in was expected after a loop's names");
    node->kid[1] = s24i_jtuple(p, 1);
    if (s24i_jskip_name(p, "if")) node->kid[4] = s24i_jexpression(p);
    if (s24i_jis_name(p, "recursive"))
        return s24i_jrefuse(p, S24_ERROR_UNSUPPORTED, "a recursive loop is not carried out");
    p->loops++;
    node->kid[2] = body(p, ends);
    p->loops--;
    if (s24i_jskip_name(p, "else"))
        node->kid[3] = whole_body(p, "endfor");
    else
        p->at += p->status == S24_OK;
    return node;
}

static s24i_jnode *read_set(s24i_jparser *p)
{
    s24i_jnode *node = s24i_jnode_new(p, S24I_JN_SET);
    if (!node) return NULL;
    node->kid[0] = s24i_jtarget(p, 1);
    if (s24i_jskip(p, "=")) {
        node->kid[1] = s24i_jtuple(p, 0);
        return node;
    }
    node->type = S24I_JN_CAPTURE;
    node->kid[1] = s24i_jfilters(p, 0);
    node->kid[2] = whole_body(p, "endset");
    return node;
}

/* Parameters of a macro, after its name. */
static s24i_jnode *parameters(s24i_jparser *p)
{
    s24i_jnode *list = NULL, **end = &list;
    int has_default = 0;
    if (!s24i_jexpect(p, "(")) return NULL;
    while (p->status == S24_OK && !s24i_jis(p, ")")) {
        if (list && !s24i_jexpect(p, ",")) return NULL;
        s24i_jnode *node = s24i_jnode_new(p, S24I_JN_NAMED);
        if (!node) return NULL;
        node->name = s24i_jexpect_name(p);
        if (s24i_jskip(p, "=")) {
            node->kid[0] = s24i_jexpression(p);
            has_default = 1;
        } else if (has_default) {
            return s24i_jrefuse(p, S24_ERROR_FORMAT,
                                "a parameter without a default follows one that has a default");
        }
        *end = node;
        end = &node->next;
    }
    return s24i_jexpect(p, ")") ? list : NULL;
}

static s24i_jnode *read_macro_body(s24i_jparser *p, s24i_jnode *node, const char *end)
{
    const int loops = p->loops;
    p->loops = 0;
    node->kid[2] = whole_body(p, end);
    p->loops = loops;
    return node;
}

static s24i_jnode *read_macro(s24i_jparser *p)
{
    s24i_jnode *node = s24i_jnode_new(p, S24I_JN_MACRO);
    if (!node) return NULL;
    node->name = s24i_jexpect_name(p);
    node->kid[0] = parameters(p);
    return read_macro_body(p, node, "endmacro");
}

static s24i_jnode *read_call(s24i_jparser *p)
{
    s24i_jnode *node = s24i_jnode_new(p, S24I_JN_CALLER);
    s24i_jnode *macro = s24i_jnode_new(p, S24I_JN_MACRO);
    if (!node || !macro) return NULL;
    macro->name = "caller";
    if (s24i_jis(p, "(")) macro->kid[0] = parameters(p);
    node->kid[0] = s24i_jexpression(p);
    node->kid[1] = macro;
    if (node->kid[0] && node->kid[0]->type != S24I_JN_CALL)
        return s24i_jrefuse(p, S24_ERROR_FORMAT, "a call was expected after the tag call");
    read_macro_body(p, macro, "endcall");
    return node;
}

static s24i_jnode *read_filter(s24i_jparser *p)
{
    s24i_jnode *node = s24i_jnode_new(p, S24I_JN_FILTERED);
    if (!node) return NULL;
    node->kid[1] = s24i_jfilters(p, 1);
    node->kid[2] = whole_body(p, "endfilter");
    return node;
}

static s24i_jnode *read_with(s24i_jparser *p)
{
    s24i_jnode *node = s24i_jnode_new(p, S24I_JN_SCOPE);
    if (!node) return NULL;
    s24i_jnode **end = &node->kid[0];
    while (p->status == S24_OK && p->at->type != S24I_JT_BLOCK_END) {
        if (node->kid[0] && !s24i_jexpect(p, ",")) return NULL;
        s24i_jnode *named = s24i_jnode_new(p, S24I_JN_NAMED);
        if (!named) return NULL;
        named->name = s24i_jexpect_name(p);
        if (!s24i_jexpect(p, "=")) return NULL;
        named->kid[0] = s24i_jexpression(p);
        *end = named;
        end = &named->next;
    }
    node->kid[2] = whole_body(p, "endwith");
    return node;
}

static s24i_jnode *read_generation(s24i_jparser *p)
{
    s24i_jnode *node = s24i_jnode_new(p, S24I_JN_SCOPE);
    if (node) read_macro_body(p, node, "endgeneration");
    return node;
}

static s24i_jnode *read_jump(s24i_jparser *p, s24i_jnode_type type)
{
    if (p->loops) return s24i_jnode_new(p, type);
    return s24i_jrefuse(p, S24_ERROR_FORMAT, "break and continue stand in loops alone");
}

static s24i_jnode *read_break(s24i_jparser *p)
{
    return read_jump(p, S24I_JN_BREAK);
}

static s24i_jnode *read_continue(s24i_jparser *p)
{
    return read_jump(p, S24I_JN_CONTINUE);
}

/* A tag after {%. */
static s24i_jnode *statement(s24i_jparser *p)
{
    static const struct {
        const char *name;
        s24i_jnode *(*read)(s24i_jparser *p); /* NULL: it is not carried out */
    } tags[] = {{"if", read_if},       {"for", read_for},
                {"set", read_set},     {"macro", read_macro},
                {"call", read_call},   {"filter", read_filter},
                {"with", read_with},   {"generation", read_generation},
                {"break", read_break}, {"continue", read_continue},
                {"block", NULL},       {"extends", NULL},
                {"include", NULL},     {"import", NULL},
                {"from", NULL},        {"print", NULL},
                {"autoescape", NULL}};
    const char *name = p->at->type == S24I_JT_NAME ? p->at->name : "";
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (strcmp(tags[i].name, name) != 0) continue;
        if (!tags[i].read)
            return s24i_jrefuse(p, S24_ERROR_UNSUPPORTED, "the tag %s is not carried out", name);
        p->at++;
        return tags[i].read(p);
    }
    return s24i_jrefuse(p, S24_ERROR_FORMAT, "\"%s\" is no tag that is expected here",
                        s24i_show(name).text);
}

static int is_one_of(const s24i_jparser *p, const char *const *names)
{
    for (; names && *names; names++)
        if (s24i_jis_name(p, *names)) return 1;
    return 0;
}

static s24i_jnode *data(s24i_jparser *p)
{
    s24i_jnode *node = s24i_jnode_new(p, S24I_JN_DATA);
    if (node) node->value = p->at->value;
    p->at++;
    return node;
}

static s24i_jnode *print(s24i_jparser *p)
{
    s24i_jnode *node = s24i_jnode_new(p, S24I_JN_PRINT);
    p->at++;
    if (node) node->kid[0] = s24i_jtuple(p, 0);
    if (p->status == S24_OK && p->at->type != S24I_JT_PRINT_END)
        return s24i_jrefuse(p, S24_ERROR_FORMAT, "}} was expected after the expression");
    p->at += p->status == S24_OK;
    return node;
}

static s24i_jnode *block(s24i_jparser *p)
{
    s24i_jnode *node = statement(p);
    if (p->status == S24_OK && p->at->type != S24I_JT_BLOCK_END)
        return s24i_jrefuse(p, S24_ERROR_FORMAT, "%%} was expected at the end of the tag");
    p->at += p->status == S24_OK;
    return node;
}

/* Statements up to a tag of `ends`, or with NULL up to the template's end. */
static s24i_jnode *statements(s24i_jparser *p, const char *const *ends)
{
    s24i_jnode *list = NULL, **end = &list;
    while (p->status == S24_OK && p->at->type != S24I_JT_END) {
        s24i_jnode *node;
        if (p->at->type == S24I_JT_BLOCK) {
            p->at++;
            if (is_one_of(p, ends)) return list;
            node = block(p);
        } else {
            node = p->at->type == S24I_JT_DATA ? data(p) : print(p);
        }
        if (!node) return NULL;
        *end = node;
        end = &node->next;
    }
    while (ends && ends[1])
        ends++;
    if (ends) s24i_jrefuse(p, S24_ERROR_FORMAT, "the template ends before its tag %s", *ends);
    return list;
}

s24_status s24i_jparse(s24i_jinja *jinja)
{
    s24i_jparser p = {.jinja = jinja, .at = jinja->tokens};
    jinja->body = statements(&p, NULL);
    return p.status;
}
