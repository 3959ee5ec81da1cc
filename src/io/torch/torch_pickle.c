// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a pickle into a tree of values, without running anything: what it would call is looked up
 * among the functions that rebuild tensors, and their arguments are noted.
 */
#include <limits.h>
#include <string.h>

#include "io/torch/torch.h"

enum { MARK = -1, MOST = INT32_MAX / 2 };

static s24_status fail(const s24i_pickle *p, const char *what)
{
    return s24_ctx_fail(p->ctx, S24_ERROR_FORMAT, "%s: the pickle at byte %zu: %s", p->path,
                        (size_t)(p->at - p->begin), what);
}

/* ---- values ---------------------------------------------------------------------------------- */

static s24_status push_number(s24i_pickle *p, int32_t number)
{
    TRY(s24i_reserve_elems(&p->stack, &p->stack_room, p->ctx, p->depth + 1, sizeof *p->stack,
                           "a pickle's stack"));
    p->stack[p->depth++] = number;
    return S24_OK;
}

static s24_status push(s24i_pickle *p, const s24i_pickled_value *value)
{
    if (p->count >= MOST) return fail(p, "more values than any model has");
    TRY(s24i_reserve_elems(&p->values, &p->values_room, p->ctx, p->count + 1, sizeof *p->values,
                           "a pickle's values"));
    p->values[p->count] = *value;
    p->values[p->count].first = p->values[p->count].last = -1;
    return push_number(p, (int32_t)p->count++);
}

/* Adds a member at a value's end. */
static s24_status append(s24i_pickle *p, int32_t to, int32_t member)
{
    if (p->link_count >= MOST) return fail(p, "more members than any model has");
    TRY(s24i_reserve_elems(&p->links, &p->links_room, p->ctx, p->link_count + 1, sizeof *p->links,
                           "a pickle's members"));
    const int32_t link = (int32_t)p->link_count++;
    s24i_pickled_value *value = &p->values[to];
    p->links[link] = (s24i_pickled_link){member, -1};
    if (value->last >= 0)
        p->links[value->last].next = link;
    else
        value->first = link;
    value->last = link;
    return S24_OK;
}

const s24i_pickled_value *s24i_pickled_at(const s24i_pickle *p, const s24i_pickled_value *list,
                                          int index)
{
    int32_t link = list ? list->first : -1;
    while (link >= 0 && index-- > 0)
        link = p->links[link].next;
    return link < 0 ? NULL : &p->values[p->links[link].value];
}

int s24i_pickled_is(const s24i_pickled_value *value, const char *text)
{
    return value && value->kind == S24I_PICKLED_TEXT && value->bytes == strlen(text) &&
           !memcmp(value->text, text, value->bytes);
}

int s24i_pickled_names(const s24i_pickle *p, const s24i_pickled_value *value, const char *module,
                       const char *name)
{
    return value && value->kind == S24I_PICKLED_NAME &&
           s24i_pickled_is(s24i_pickled_at(p, value, 0), module) &&
           s24i_pickled_is(s24i_pickled_at(p, value, 1), name);
}

/* The value at the top of the stack, which goes. */
static s24_status pop(int32_t *out, s24i_pickle *p)
{
    if (!p->depth || p->stack[p->depth - 1] == MARK) return fail(p, "the stack has no value");
    *out = p->stack[--p->depth];
    return S24_OK;
}

static s24_status take_bytes(const uint8_t **out, s24i_pickle *p, uint64_t bytes)
{
    if (bytes > (uint64_t)(p->end - p->at)) return fail(p, "it ends in the midst (cut short?)");
    *out = p->at;
    p->at += bytes;
    return S24_OK;
}

static s24_status take_number(uint64_t *out, s24i_pickle *p, int bytes)
{
    const uint8_t *from = NULL;
    *out = 0;
    TRY(take_bytes(&from, p, (uint64_t)bytes));
    for (int i = bytes - 1; i >= 0; i--)
        *out = *out << 8 | from[i];
    return S24_OK;
}

/* ---- opcodes --------------------------------------------------------------------------------- */

static s24_status do_skip(s24i_pickle *p, int bytes)
{
    const uint8_t *from = NULL;
    return take_bytes(&from, p, (uint64_t)bytes);
}

static s24_status do_make(s24i_pickle *p, int kind)
{
    return push(p, &(s24i_pickled_value){.kind = (s24i_pickled_kind)kind});
}

static s24_status do_mark(s24i_pickle *p, int unused)
{
    (void)unused;
    return push_number(p, MARK);
}

static s24_status do_text(s24i_pickle *p, int size)
{
    uint64_t bytes;
    const uint8_t *from = NULL;
    TRY(take_number(&bytes, p, size));
    TRY(take_bytes(&from, p, bytes));
    return push(p, &(s24i_pickled_value){.kind = S24I_PICKLED_TEXT,
                                         .text = (const char *)from,
                                         .bytes = (size_t)bytes});
}

static s24_status do_put(s24i_pickle *p, int size)
{
    uint64_t place = (uint64_t)p->memo_count;
    if (size) TRY(take_number(&place, p, size));
    if (place > (uint64_t)p->memo_count) return fail(p, "its notes are not numbered in order");
    if (!p->depth || p->stack[p->depth - 1] == MARK) return fail(p, "the stack has no value");
    TRY(s24i_reserve_elems(&p->memo, &p->memo_room, p->ctx, p->memo_count + 1, sizeof *p->memo,
                           "a pickle's notes"));
    p->memo[place] = p->stack[p->depth - 1];
    p->memo_count += place == (uint64_t)p->memo_count;
    return S24_OK;
}

static s24_status do_get(s24i_pickle *p, int size)
{
    uint64_t place;
    TRY(take_number(&place, p, size));
    if (place >= (uint64_t)p->memo_count) return fail(p, "a note that there is not");
    return push_number(p, p->memo[place]);
}

static s24_status do_integer(s24i_pickle *p, int bytes)
{
    uint64_t value;
    TRY(take_number(&value, p, bytes));
    return push(p, &(s24i_pickled_value){.kind = S24I_PICKLED_INTEGER,
                                         .number = bytes == 4 ? (int32_t)value : (int64_t)value});
}

/* An integer of up to eight bytes, two's complement; a longer one has no meaning here. */
static s24_status do_long(s24i_pickle *p, int unused)
{
    uint64_t bytes, value = 0;
    const uint8_t *from = NULL;
    (void)unused;
    TRY(take_number(&bytes, p, 1));
    TRY(take_bytes(&from, p, bytes));
    if (bytes > 8) return do_make(p, S24I_PICKLED_OTHER);
    for (uint64_t i = 0; i < 8; i++) {
        const int is_negative = bytes && from[bytes - 1] & 0x80;
        value |= (uint64_t)(i < bytes ? from[i] : is_negative ? 0xff : 0) << 8 * i;
    }
    return push(p, &(s24i_pickled_value){.kind = S24I_PICKLED_INTEGER, .number = (int64_t)value});
}

static s24_status do_truth(s24i_pickle *p, int value)
{
    return push(p, &(s24i_pickled_value){.kind = S24I_PICKLED_INTEGER, .number = value});
}

static s24_status do_real(s24i_pickle *p, int bytes)
{
    TRY(do_skip(p, bytes));
    return do_make(p, S24I_PICKLED_OTHER);
}

/* How many values stand on the stack from the last mark on, or `count` where there is none. */
static s24_status find_members(int64_t *first, s24i_pickle *p, int count)
{
    int64_t at = p->depth;
    for (int taken = 0; at > 0 && (count < 0 || taken < count); taken++, at--)
        if (p->stack[at - 1] == MARK) break;
    if (count >= 0 ? p->depth - at < count : !at) return fail(p, "the stack has too few values");
    *first = at;
    return S24_OK;
}

static s24_status do_tuple(s24i_pickle *p, int count)
{
    int64_t first;
    TRY(find_members(&first, p, count));
    const int64_t end = p->depth;
    TRY(do_make(p, S24I_PICKLED_LIST));
    const int32_t made = p->stack[p->depth - 1];
    for (int64_t i = first; i < end; i++)
        TRY(append(p, made, p->stack[i]));
    p->depth = first - (count < 0);
    return push_number(p, made);
}

/* To what stands below them: one value to a list, two to a dict, or all from a mark on. */
static s24_status do_add(s24i_pickle *p, int count)
{
    int64_t first;
    const s24i_pickled_kind kind =
        count == 1 || count == -1 ? S24I_PICKLED_LIST : S24I_PICKLED_DICT;
    TRY(find_members(&first, p, count < 0 ? -1 : count));
    const int64_t below = first - (count < 0) - 1;
    if (below < 0 || p->stack[below] == MARK || p->values[p->stack[below]].kind != kind)
        return fail(p, "members are added to what has none");
    if (kind == S24I_PICKLED_DICT && (p->depth - first) % 2) return fail(p, "a key has no value");
    for (int64_t i = first; i < p->depth; i++)
        TRY(append(p, p->stack[below], p->stack[i]));
    p->depth = below + 1;
    return S24_OK;
}

/* A line of the text: one of the two that a name has. */
static s24_status push_line(s24i_pickle *p)
{
    const uint8_t *end = memchr(p->at, '\n', (size_t)(p->end - p->at));
    if (!end) return fail(p, "a name has no end");
    const s24i_pickled_value line = {
        .kind = S24I_PICKLED_TEXT, .text = (const char *)p->at, .bytes = (size_t)(end - p->at)};
    p->at = end + 1;
    return push(p, &line);
}

static s24_status do_stacked_name(s24i_pickle *p, int unused)
{
    (void)unused;
    TRY(do_tuple(p, 2));
    s24i_pickled_value *made = &p->values[p->stack[p->depth - 1]];
    if (s24i_pickled_at(p, made, 0)->kind != S24I_PICKLED_TEXT ||
        s24i_pickled_at(p, made, 1)->kind != S24I_PICKLED_TEXT)
        return fail(p, "a name that is no text");
    made->kind = S24I_PICKLED_NAME;
    return S24_OK;
}

static s24_status do_name(s24i_pickle *p, int unused)
{
    TRY(push_line(p));
    TRY(push_line(p));
    return do_stacked_name(p, unused);
}

static s24_status do_storage(s24i_pickle *p, int unused)
{
    (void)unused;
    s24i_pickled_value *top =
        p->depth && p->stack[p->depth - 1] != MARK ? &p->values[p->stack[p->depth - 1]] : NULL;
    if (!top || top->kind != S24I_PICKLED_LIST ||
        !s24i_pickled_is(s24i_pickled_at(p, top, 0), "storage"))
        return fail(p, "a storage is expected");
    top->kind = S24I_PICKLED_STORAGE;
    return S24_OK;
}

/* What calls make: a value of a kind that has the arguments as members; the first argument; or
   what _rebuild_from_type_v2 does, which has another call among its arguments. */
typedef enum making { MAKES_KIND, MAKES_FIRST, MAKES_TYPED } making;

static const struct {
    const char *module, *name;
    making makes;
    s24i_pickled_kind kind;
} calls[] = {
    {"torch._utils", "_rebuild_tensor_v2", MAKES_KIND, S24I_PICKLED_TENSOR},
    {"torch._utils", "_rebuild_tensor_v3", MAKES_KIND, S24I_PICKLED_TENSOR},
    {"torch._utils", "_rebuild_parameter", MAKES_FIRST, 0},
    {"torch._utils", "_rebuild_parameter_with_state", MAKES_FIRST, 0},
    {"torch._tensor", "_rebuild_from_type_v2", MAKES_TYPED, 0},
    {"torch._utils", "_rebuild_wrapper_subclass", MAKES_KIND, S24I_PICKLED_OTHER},
    {"torch.serialization", "_get_layout", MAKES_KIND, S24I_PICKLED_OTHER},
    {"torch", "device", MAKES_KIND, S24I_PICKLED_OTHER},
    {"torch", "Size", MAKES_FIRST, 0},
    {"collections", "OrderedDict", MAKES_KIND, S24I_PICKLED_DICT},
};
enum { CALLS = (int)(sizeof calls / sizeof *calls) };

static int find_call(const s24i_pickle *p, const s24i_pickled_value *called)
{
    for (int i = 0; i < CALLS; i++)
        if (s24i_pickled_names(p, called, calls[i].module, calls[i].name)) return i;
    return -1;
}

/* Is it a setting of torchao's: a class of that package, which is noted as something? */
static int is_setting(const s24i_pickle *p, const s24i_pickled_value *called)
{
    const s24i_pickled_value *module = s24i_pickled_at(p, called, 0);
    return module && called->kind == S24I_PICKLED_NAME && module->bytes > 8 &&
           !memcmp(module->text, "torchao.", 8);
}

static s24_status fail_call(const s24i_pickle *p, const s24i_pickled_value *called)
{
    const s24i_pickled_value *module = s24i_pickled_at(p, called, 0),
                             *name = s24i_pickled_at(p, called, 1);
    char text[96] = "something without a name";
    if (called->kind == S24I_PICKLED_NAME && module->bytes + name->bytes + 2 <= sizeof text) {
        memcpy(text, module->text, module->bytes);
        text[module->bytes] = '.';
        memcpy(text + module->bytes + 1, name->text, name->bytes);
        text[module->bytes + 1 + name->bytes] = '\0';
    }
    return s24_ctx_fail(p->ctx, S24_ERROR_FORMAT,
                        "%s: the pickle at byte %zu would call %s, which rebuilds no tensor; "
                        "nothing is run",
                        p->path, (size_t)(p->at - p->begin), s24i_show(text).text);
}

static s24_status finish_call(s24i_pickle *p, int32_t called, int32_t arguments);

/* A tensor of a class of its own: what the call among the arguments makes, or, where that only
   wraps other tensors, an object. */
static s24_status finish_typed(s24i_pickle *p, int32_t arguments)
{
    s24i_pickled_value *given = &p->values[arguments];
    const s24i_pickled_value *inner = s24i_pickled_at(p, given, 0);
    const s24i_pickled_value *members = s24i_pickled_at(p, given, 2);
    if (!members || members->kind != S24I_PICKLED_LIST)
        return fail(p, "a call lacks its arguments");
    if (s24i_pickled_names(p, inner, "torch._utils", "_rebuild_wrapper_subclass")) {
        given->kind = S24I_PICKLED_OBJECT;
        return push_number(p, arguments);
    }
    const int call = find_call(p, inner);
    if (call >= 0 && calls[call].makes == MAKES_TYPED)
        return fail(p, "a call within a call within a call");
    return finish_call(p, (int32_t)(inner - p->values), (int32_t)(members - p->values));
}

/* Puts in the place of its arguments what a call makes. */
static s24_status finish_call(s24i_pickle *p, int32_t called, int32_t arguments)
{
    const int call = find_call(p, &p->values[called]);
    const s24i_pickled_value *given = &p->values[arguments];
    if (call < 0 && !is_setting(p, &p->values[called])) return fail_call(p, &p->values[called]);
    if (call < 0) return do_make(p, S24I_PICKLED_OTHER);
    if (calls[call].makes == MAKES_TYPED) return finish_typed(p, arguments);
    if (calls[call].makes == MAKES_FIRST) {
        if (given->first < 0) return fail(p, "a call lacks its arguments");
        return push_number(p, p->links[given->first].value);
    }
    TRY(do_make(p, (int)calls[call].kind));
    s24i_pickled_value *made = &p->values[p->stack[p->depth - 1]];
    if (made->kind == S24I_PICKLED_DICT) return S24_OK;
    made->first = p->values[arguments].first;
    made->last = p->values[arguments].last;
    return S24_OK;
}

static s24_status do_call(s24i_pickle *p, int unused)
{
    int32_t arguments = 0, called = 0;
    (void)unused;
    TRY(pop(&arguments, p));
    TRY(pop(&called, p));
    if (p->values[arguments].kind != S24I_PICKLED_LIST ||
        p->values[called].kind == S24I_PICKLED_LIST)
        return fail(p, "a call without arguments");
    return finish_call(p, called, arguments);
}

/* The state of what was made: attributes of a dict or a setting, which have no meaning here. */
static s24_status do_build(s24i_pickle *p, int unused)
{
    int32_t state;
    (void)unused;
    TRY(pop(&state, p));
    const s24i_pickled_value *top =
        p->depth && p->stack[p->depth - 1] != MARK ? &p->values[p->stack[p->depth - 1]] : NULL;
    if (!top || (top->kind != S24I_PICKLED_DICT && top->kind != S24I_PICKLED_OTHER))
        return fail(p, "a state is given to what has none");
    return S24_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

typedef struct opcode {
    uint8_t byte;
    s24_status (*run)(s24i_pickle *p, int argument);
    int argument;
} opcode;

#define OPCODE(byte, what, argument) {byte, do_##what, argument},
static const opcode opcodes[] = {
#include "io/torch/torch_opcodes.def"
};
#undef OPCODE
enum { OPCODES = (int)(sizeof opcodes / sizeof *opcodes) };

static const opcode *opcode_of(uint8_t byte)
{
    for (int i = 0; i < OPCODES; i++)
        if (opcodes[i].byte == byte) return &opcodes[i];
    return NULL;
}

s24_status s24i_pickle_read(s24i_pickle *out, s24_ctx *ctx, const char *path, const void *data,
                            size_t bytes)
{
    *out = (s24i_pickle){.ctx = ctx, .path = path, .begin = data, .at = data, .root = -1};
    out->end = out->begin + bytes;
    while (out->at < out->end && *out->at != '.') {
        const opcode *op = opcode_of(*out->at);
        REQUIRE(ctx, op, S24_ERROR_FORMAT,
                "%s: the pickle at byte %zu has opcode 0x%02x, which no tensor needs; nothing is "
                "run",
                path, (size_t)(out->at - out->begin), *out->at);
        out->at++;
        TRY(op->run(out, op->argument));
    }
    if (out->at == out->end) return fail(out, "it has no end (cut short?)");
    return pop(&out->root, out);
}

void s24i_pickle_free(s24i_pickle *pickle)
{
    s24_ctx_free(pickle->ctx, pickle->values);
    s24_ctx_free(pickle->ctx, pickle->links);
    s24_ctx_free(pickle->ctx, pickle->stack);
    s24_ctx_free(pickle->ctx, pickle->memo);
}
