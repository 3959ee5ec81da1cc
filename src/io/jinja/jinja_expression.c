// SPDX-License-Identifier: Apache-2.0
/* Makes trees of expressions, by Jinja2's precedence: choice, or, and, not, comparisons, + -, ~,
   * / // %, **, signs, then what follows a value, filters and tests. */
#include "io/jinja/jinja_tree.h"

#include <string.h>

/* ---- lists ----------------------------------------------------------------------------------- */

/* Adds a node to a list that ends at *end. */
static void append(s24i_jnode ***end, s24i_jnode *node)
{
    if (!node) return;
    **end = node;
    *end = &node->next;
}

static s24i_jnode *pair(s24i_jparser *p)
{
    s24i_jnode *node = s24i_jnode_new(p, S24I_JN_PAIR);
    if (!node) return NULL;
    node->kid[0] = s24i_jexpression(p);
    if (!s24i_jexpect(p, ":")) return NULL;
    node->kid[1] = s24i_jexpression(p);
    return node;
}

/* A list or dict after its first bracket. */
static s24i_jnode *bracketed(s24i_jparser *p, s24i_jnode_type type, const char *close)
{
    s24i_jnode *node = s24i_jnode_new(p, type);
    if (!node) return NULL;
    s24i_jnode **end = &node->kid[0];
    while (p->status == S24_OK && !s24i_jis(p, close)) {
        if (node->kid[0] && !s24i_jexpect(p, ",")) return NULL;
        if (s24i_jis(p, close)) break;
        append(&end, type == S24I_JN_DICT ? pair(p) : s24i_jexpression(p));
    }
    return s24i_jexpect(p, close) ? node : NULL;
}

static int tuple_ends(const s24i_jparser *p)
{
    const s24i_jtoken_type type = p->at->type;
    return type == S24I_JT_PRINT_END || type == S24I_JT_BLOCK_END || s24i_jis(p, ")") ||
           s24i_jis_name(p, "in") || s24i_jis_name(p, "recursive");
}

static s24i_jnode *primary(s24i_jparser *p, int fields);

enum { WHOLE, BARE, NAMES, FIELDS };

static s24i_jnode *part(s24i_jparser *p, int what)
{
    return what == WHOLE  ? s24i_jexpression(p)
           : what == BARE ? s24i_jbare(p)
                          : primary(p, what == FIELDS);
}

/* Expressions, with commas between them a tuple. bracketed: it may be empty. */
static s24i_jnode *tuple(s24i_jparser *p, int what, int bracketed)
{
    s24i_jnode *list = NULL, **end = &list, *node = s24i_jnode_new(p, S24I_JN_TUPLE);
    int commas = 0;
    while (node && p->status == S24_OK && !tuple_ends(p)) {
        append(&end, part(p, what));
        if (!s24i_jskip(p, ",")) break;
        commas = 1;
    }
    if (p->status != S24_OK) return NULL;
    if (!commas && list) return list;
    if (!list && !bracketed)
        return s24i_jrefuse(p, S24_ERROR_FORMAT, "an expression was expected instead of %s",
                            s24i_jshown(p).text);
    node->kid[0] = list;
    return node;
}

s24i_jnode *s24i_jtuple(s24i_jparser *p, int bare)
{
    return tuple(p, bare ? BARE : WHOLE, 0);
}

static int is_target(const s24i_jnode *node)
{
    return node->type == S24I_JN_NAME ||
           (node->type == S24I_JN_ATTRIBUTE && node->kid[0]->type == S24I_JN_NAME);
}

s24i_jnode *s24i_jtarget(s24i_jparser *p, int fields)
{
    s24i_jnode *node = tuple(p, fields ? FIELDS : NAMES, 0);
    if (!node) return NULL;
    const s24i_jnode *first = node->type == S24I_JN_TUPLE ? node->kid[0] : node;
    for (const s24i_jnode *n = first; n; n = node == first ? NULL : n->next)
        if (!is_target(n))
            return s24i_jrefuse(p, S24_ERROR_FORMAT, "a name to assign to was expected");
    return node;
}

/* ---- values ---------------------------------------------------------------------------------- */

static s24i_jnode *constant(s24i_jparser *p, s24i_jvalue value)
{
    s24i_jnode *node = s24i_jnode_new(p, S24I_JN_CONST);
    if (node) node->value = value;
    return node;
}

static s24i_jnode *name(s24i_jparser *p, int fields)
{
    const char *word = s24i_jexpect_name(p);
    if (!word) return NULL;
    if (!strcmp(word, "true") || !strcmp(word, "True")) return constant(p, s24i_jbool(1));
    if (!strcmp(word, "false") || !strcmp(word, "False")) return constant(p, s24i_jbool(0));
    if (!strcmp(word, "none") || !strcmp(word, "None")) return constant(p, s24i_jnone());
    s24i_jnode *node = s24i_jnode_new(p, S24I_JN_NAME);
    if (!node) return NULL;
    node->name = word;
    if (!fields || !s24i_jskip(p, ".")) return node;
    s24i_jnode *field = s24i_jnode_new(p, S24I_JN_ATTRIBUTE);
    if (!field) return NULL;
    field->kid[0] = node;
    field->name = s24i_jexpect_name(p);
    return field;
}

/* Strings one after another are one. */
static s24i_jnode *literal(s24i_jparser *p)
{
    s24i_jnode *node = constant(p, p->at->value);
    const s24i_jtoken *first = p->at++;
    size_t bytes = first->value.bytes;
    if (!node || first->value.kind != S24I_JSTRING) return node;
    while (p->at->type == S24I_JT_VALUE && p->at->value.kind == S24I_JSTRING)
        bytes += p->at++->value.bytes;
    if (p->at == first + 1) return node;
    char *text = s24i_jarena_take(&p->jinja->arena, bytes + 1), *at = text;
    if (!text) return s24i_jrefuse(p, S24_ERROR_MEMORY, "out of memory for a chat template");
    for (const s24i_jtoken *t = first; t < p->at; at += t++->value.bytes)
        memcpy(at, t->value.as.text, t->value.bytes);
    node->value = s24i_jstring(text, bytes, 1);
    return node;
}

static s24i_jnode *primary(s24i_jparser *p, int fields)
{
    s24i_jnode *node = NULL;
    if (!s24i_jenter(p)) return NULL;
    if (p->at->type == S24I_JT_NAME) {
        node = name(p, fields);
    } else if (p->at->type == S24I_JT_VALUE) {
        node = literal(p);
    } else if (s24i_jskip(p, "(")) {
        node = tuple(p, WHOLE, 1);
        if (!s24i_jexpect(p, ")")) node = NULL;
    } else if (s24i_jskip(p, "[")) {
        node = bracketed(p, S24I_JN_LIST, "]");
    } else if (s24i_jskip(p, "{")) {
        node = bracketed(p, S24I_JN_DICT, "}");
    } else {
        s24i_jrefuse(p, S24_ERROR_FORMAT, "an expression was expected instead of %s",
                     s24i_jshown(p).text);
    }
    p->nested--;
    return node;
}

/* ---- what follows a value -------------------------------------------------------------------- */

/* Arguments after their bracket. */
static s24i_jnode *arguments(s24i_jparser *p)
{
    s24i_jnode *list = NULL, **end = &list;
    while (p->status == S24_OK && !s24i_jis(p, ")")) {
        s24i_jnode *named = NULL;
        if (list && (!s24i_jexpect(p, ",") || s24i_jis(p, ")"))) break;
        if (s24i_jis(p, "*") || s24i_jis(p, "**"))
            return s24i_jrefuse(p, S24_ERROR_UNSUPPORTED,
                                "arguments that a %s unpacks are not carried out", p->at->text);
        const int is_named = p->at->type == S24I_JT_NAME && p->at[1].type == S24I_JT_OPERATOR &&
                             !strcmp(p->at[1].text, "=");
        if (is_named && (named = s24i_jnode_new(p, S24I_JN_NAMED)) != NULL) {
            named->name = p->at->name;
            p->at += 2;
        }
        s24i_jnode *value = s24i_jexpression(p);
        if (named) named->kid[0] = value;
        append(&end, named ? named : value);
    }
    return s24i_jexpect(p, ")") ? list : NULL;
}

/* A function that is called by its name must be one. */
static void check_call(s24i_jparser *p, const s24i_jnode *called)
{
    if (called->type == S24I_JN_ATTRIBUTE) {
        const s24i_jrow *row = s24i_jmethod_named(called->name);
        if (!row || !row->call)
            s24i_jrefuse(p, S24_ERROR_UNSUPPORTED, "the method %s() is not carried out",
                         s24i_show(called->name).text);
    } else if (called->type == S24I_JN_NAME) {
        const s24i_jrow *row = s24i_jglobal_find(called->name);
        if (row && !row->call)
            s24i_jrefuse(p, S24_ERROR_UNSUPPORTED, "the function %s() is not carried out",
                         s24i_show(called->name).text);
    }
}

static s24i_jnode *call(s24i_jparser *p, s24i_jnode *called)
{
    s24i_jnode *node = s24i_jnode_new(p, S24I_JN_CALL);
    if (!node || !called) return NULL;
    check_call(p, called);
    p->at++;
    node->kid[0] = called;
    node->kid[1] = arguments(p);
    return node;
}

/* An item or a slice, after its bracket. */
static s24i_jnode *subscript(s24i_jparser *p, s24i_jnode *of)
{
    s24i_jnode *node = s24i_jnode_new(p, S24I_JN_ITEM);
    if (!node) return NULL;
    node->kid[0] = of;
    if (!s24i_jis(p, ":")) node->kid[1] = s24i_jexpression(p);
    for (int i = 2; i <= 3 && s24i_jskip(p, ":"); i++) {
        node->type = S24I_JN_SLICE;
        if (!s24i_jis(p, ":") && !s24i_jis(p, "]")) node->kid[i] = s24i_jexpression(p);
    }
    return s24i_jexpect(p, "]") ? node : NULL;
}

static s24i_jnode *attribute(s24i_jparser *p, s24i_jnode *of)
{
    const int is_number = p->at->type == S24I_JT_VALUE && p->at->value.kind == S24I_JINT;
    s24i_jnode *node = s24i_jnode_new(p, is_number ? S24I_JN_ITEM : S24I_JN_ATTRIBUTE);
    if (!node) return NULL;
    node->kid[0] = of;
    if (is_number)
        node->kid[1] = literal(p);
    else
        node->name = s24i_jexpect_name(p);
    return node;
}

static s24i_jnode *postfix(s24i_jparser *p, s24i_jnode *node)
{
    for (int count = 0; node && p->status == S24_OK;) {
        if (s24i_jskip(p, "."))
            node = attribute(p, node);
        else if (s24i_jskip(p, "["))
            node = subscript(p, node);
        else if (s24i_jis(p, "("))
            node = call(p, node);
        else
            break;
        if (!s24i_jchained(p, &count)) return NULL;
    }
    return node;
}

/* A filter's or test's name, with arguments; `unknown` says which. */
static s24i_jnode *function(s24i_jparser *p, s24i_jnode_type type, s24i_jnode *of)
{
    s24i_jnode *node = s24i_jnode_new(p, type);
    const char *what = type == S24I_JN_FILTER ? "filter" : "test";
    if (!node) return NULL;
    const char *called = s24i_jexpect_name(p);
    if (!called) return NULL;
    node->kid[0] = of;
    node->name = called;
    node->row = type == S24I_JN_FILTER ? s24i_jfilter_find(called) : s24i_jtest_find(called);
    /* One that nobody knows fails where it is called, if it stands in a branch, as in Jinja2. */
    if (node->row ? !node->row->call : !p->soft)
        return s24i_jrefuse(p, S24_ERROR_UNSUPPORTED, "the %s %s is not carried out", what,
                            s24i_show(called).text);
    if (s24i_jskip(p, "(")) node->kid[1] = arguments(p);
    return node;
}

s24i_jnode *s24i_jfilters(s24i_jparser *p, int inlined)
{
    s24i_jnode *node = inlined ? function(p, S24I_JN_FILTER, NULL) : NULL;
    for (int count = 0; p->status == S24_OK && s24i_jskip(p, "|");) {
        node = function(p, S24I_JN_FILTER, node);
        if (!s24i_jchained(p, &count)) return NULL;
    }
    return node;
}

/* A test's argument may stand without brackets. */
static int has_bare_argument(const s24i_jparser *p)
{
    return p->at->type == S24I_JT_VALUE || s24i_jis(p, "[") || s24i_jis(p, "{") ||
           (p->at->type == S24I_JT_NAME && !s24i_jis_name(p, "else") && !s24i_jis_name(p, "or") &&
            !s24i_jis_name(p, "and"));
}

static s24i_jnode *test(s24i_jparser *p, s24i_jnode *of)
{
    const int negated = s24i_jskip_name(p, "not");
    s24i_jnode *node = function(p, S24I_JN_TEST, of);
    if (!node) return NULL;
    const int has_brackets = p->at[-1].type == S24I_JT_OPERATOR;
    if (!has_brackets && s24i_jis_name(p, "is"))
        return s24i_jrefuse(p, S24_ERROR_FORMAT, "tests with is cannot follow one another");
    if (!has_brackets && has_bare_argument(p)) node->kid[1] = postfix(p, primary(p, 0));
    s24i_jnode *not = negated ? s24i_jnode_new(p, S24I_JN_NOT) : NULL;
    if (not ) not ->kid[0] = node;
    return not ? not : node;
}

static s24i_jnode *filtered(s24i_jparser *p, s24i_jnode *node)
{
    for (int count = 0; node && p->status == S24_OK;) {
        if (s24i_jskip(p, "|"))
            node = function(p, S24I_JN_FILTER, node);
        else if (s24i_jskip_name(p, "is"))
            node = test(p, node);
        else if (s24i_jis(p, "("))
            node = call(p, node);
        else
            break;
        if (!s24i_jchained(p, &count)) return NULL;
    }
    return node;
}

/* ---- operators ------------------------------------------------------------------------------- */

static s24i_jnode *unary(s24i_jparser *p, int with_filters)
{
    s24i_jnode *node;
    if (!s24i_jenter(p)) return NULL;
    const int minus = s24i_jskip(p, "-");
    if (minus || s24i_jskip(p, "+")) {
        node = s24i_jnode_new(p, minus ? S24I_JN_MINUS : S24I_JN_PLUS);
        if (node) node->kid[0] = unary(p, 0);
    } else {
        node = primary(p, 0);
    }
    node = postfix(p, node);
    if (with_filters) node = filtered(p, node);
    p->nested--;
    return node;
}

static s24i_jnode *power(s24i_jparser *p);
static s24i_jnode *product(s24i_jparser *p);
static s24i_jnode *joined(s24i_jparser *p);

static s24i_jnode *operand(s24i_jparser *p, int level)
{
    return level == 0 ? unary(p, 1) : level == 1 ? power(p) : joined(p);
}

/* Operators of a level, from left to right. */
static s24i_jnode *binary(s24i_jparser *p, const char *const *operators, int level)
{
    s24i_jnode *left = operand(p, level);
    for (int count = 0; p->status == S24_OK;) {
        const char *const *o = operators;
        while (*o && !s24i_jis(p, *o))
            o++;
        if (!*o) break;
        s24i_jnode *node = s24i_jnode_new(p, S24I_JN_BINARY);
        p->at++;
        s24i_jnode *right = operand(p, level);
        if (!node || !s24i_jchained(p, &count)) return NULL;
        memcpy(node->text, *o, strlen(*o) + 1);
        node->kid[0] = left;
        node->kid[1] = right;
        left = node;
    }
    return left;
}

static s24i_jnode *power(s24i_jparser *p)
{
    return binary(p, (const char *const[]){"**", NULL}, 0);
}

static s24i_jnode *product(s24i_jparser *p)
{
    return binary(p, (const char *const[]){"*", "/", "//", "%", NULL}, 1);
}

static s24i_jnode *joined(s24i_jparser *p)
{
    s24i_jnode *first = product(p);
    if (!s24i_jis(p, "~")) return first;
    s24i_jnode *node = s24i_jnode_new(p, S24I_JN_CONCAT);
    if (!node || !first) return NULL;
    s24i_jnode **end = &node->kid[0];
    append(&end, first);
    for (int count = 0; s24i_jskip(p, "~");) {
        append(&end, product(p));
        if (!s24i_jchained(p, &count)) return NULL;
    }
    return node;
}

/* The comparison that stands there, gone over: "" none. */
static const char *comparison(s24i_jparser *p)
{
    static const char *const all[] = {"==", "!=", ">=", "<=", ">", "<"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (s24i_jskip(p, all[i])) return all[i];
    if (s24i_jskip_name(p, "in")) return "in";
    if (!s24i_jis_name(p, "not") || p->at[1].type != S24I_JT_NAME || strcmp(p->at[1].name, "in"))
        return "";
    p->at += 2;
    return "ni";
}

static s24i_jnode *compare(s24i_jparser *p)
{
    static const char *const sums[] = {"+", "-", NULL};
    s24i_jnode *left = binary(p, sums, 2), *node = NULL, **end = NULL;
    for (int count = 0; p->status == S24_OK;) {
        const char *text = comparison(p);
        if (!*text) break;
        if (!node && (node = s24i_jnode_new(p, S24I_JN_COMPARE)) != NULL) {
            node->kid[0] = left;
            end = &node->kid[1];
        }
        s24i_jnode *one = s24i_jnode_new(p, S24I_JN_OPERAND);
        if (!one || !s24i_jchained(p, &count)) return NULL;
        memcpy(one->text, text, strlen(text) + 1);
        one->kid[0] = binary(p, sums, 2);
        append(&end, one);
    }
    return node ? node : left;
}

static s24i_jnode *negation(s24i_jparser *p)
{
    if (!s24i_jis_name(p, "not")) return compare(p);
    s24i_jnode *node = s24i_jnode_new(p, S24I_JN_NOT);
    if (!node || !s24i_jenter(p)) return NULL;
    p->at++;
    node->kid[0] = negation(p);
    p->nested--;
    return node;
}

/* `and` of negations, `or` of such. */
static s24i_jnode *logical(s24i_jparser *p, int is_or)
{
    s24i_jnode *left = is_or ? logical(p, 0) : negation(p);
    for (int count = 0; s24i_jskip_name(p, is_or ? "or" : "and");) {
        s24i_jnode *node = s24i_jnode_new(p, is_or ? S24I_JN_OR : S24I_JN_AND);
        s24i_jnode *right = is_or ? logical(p, 0) : negation(p);
        if (!node || !s24i_jchained(p, &count)) return NULL;
        node->kid[0] = left;
        node->kid[1] = right;
        left = node;
    }
    return left;
}

s24i_jnode *s24i_jbare(s24i_jparser *p)
{
    if (!s24i_jenter(p)) return NULL;
    s24i_jnode *node = logical(p, 1);
    p->nested--;
    return p->status == S24_OK ? node : NULL;
}

s24i_jnode *s24i_jexpression(s24i_jparser *p)
{
    s24i_jnode *node = s24i_jbare(p);
    for (int count = 0; s24i_jskip_name(p, "if");) {
        s24i_jnode *choice = s24i_jnode_new(p, S24I_JN_CHOICE);
        if (!choice || !s24i_jchained(p, &count) || !s24i_jenter(p)) return NULL;
        p->soft++;
        choice->kid[0] = node;
        choice->kid[1] = s24i_jbare(p);
        if (s24i_jskip_name(p, "else")) choice->kid[2] = s24i_jexpression(p);
        p->soft--;
        p->nested--;
        node = choice;
    }
    return p->status == S24_OK ? node : NULL;
}
