// SPDX-License-Identifier: Apache-2.0
/*
 * SQuAD's JSON: data[].paragraphs[].{context, qas[].{id, question, answers[].{text,
 * answer_start}}}. The tree is walked twice: once to check and count, once to copy. Offsets count
 * code points, and an answer must stand where its offset says.
 */
#include <stdio.h>
#include <string.h>

#include "io/json/json.h"
#include "io/tokenizer/utf8.h"
#include "task/squad.h"

typedef struct reader {
    s24_ctx *ctx;
    const char *file;
    size_t at[4]; /* where it is in each of the lists below, for sentences */
    int depth;    /* how many of these count */
    s24_qa *qa;   /* its arrays are NULL while it only counts */
    size_t bytes;
} reader;

static const char *const lists[] = {"data", "paragraphs", "qas", "answers"};

/* "data[3].paragraphs[0].qas[2]" */
static const char *where(char text[128], const reader *r)
{
    int length = 0;
    text[0] = '\0';
    for (int i = 0; i < r->depth; i++)
        length += snprintf(text + length, 128 - (size_t)length, "%s%s[%zu]", i ? "." : "", lists[i],
                           r->at[i]);
    return text;
}

/* The value at a key, of the type that `expected` names. */
static s24_status get(s24i_json **out, const reader *r, const s24i_json *object, const char *key,
                      s24i_json_type type, const char *expected)
{
    char place[128];
    *out = s24i_json_get(object, key);
    REQUIRE(r->ctx, s24i_json_typeof(*out) == type, S24_ERROR_FORMAT,
            "%s: %s%s\"%s\" is %s, %s is expected", r->file, where(place, r), r->depth ? ": " : "",
            key, *out ? "of another type" : "missing", expected);
    return S24_OK;
}

/* Reads each item of the next list down, which the object has. */
static s24_status read_list(reader *r, const s24i_json *object, const char *expected,
                            s24_status (*read)(reader *r, const s24i_json *item,
                                               s24_qa_question *question),
                            s24_qa_question *question)
{
    const int depth = r->depth;
    s24i_json *list;
    TRY(get(&list, r, object, lists[depth], S24I_JSON_ARRAY, expected));
    s24i_json_walk walk = s24i_json_begin(list);
    r->at[depth] = 0;
    r->depth = depth + 1;
    for (s24i_json *item; (item = s24i_json_next(&walk, NULL)) != NULL; r->at[depth]++)
        TRY(read(r, item, question));
    r->depth = depth;
    return S24_OK;
}

static s24_status get_text(s24_text *out, const reader *r, const s24i_json *object, const char *key)
{
    s24i_json *value;
    TRY(get(&value, r, object, key, S24I_JSON_STRING, "a string"));
    const char *text = s24i_json_string(value);
    *out = (s24_text){text, strlen(text)};
    return S24_OK;
}

/* A copy that ends in a zero. The first time it is only counted. */
static s24_text keep(reader *r, s24_text text)
{
    s24_text copy = {NULL, text.bytes};
    if (r->qa->pool) copy.data = memcpy(r->qa->pool + r->bytes, text.data, text.bytes);
    r->bytes += text.bytes + 1;
    return copy;
}

static s24_text trimmed(s24_text text)
{
    while (text.bytes && strchr(" \t\r\n\v\f", text.data[0])) {
        text.data++;
        text.bytes--;
    }
    while (text.bytes && strchr(" \t\r\n\v\f", text.data[text.bytes - 1]))
        text.bytes--;
    return text;
}

static int64_t code_points(s24_text text)
{
    int64_t count = 0;
    for (size_t i = 0; i < text.bytes; i++)
        count += ((unsigned char)text.data[i] & 0xc0) != 0x80;
    return count;
}

static s24_status read_answer(reader *r, const s24i_json *json, s24_qa_question *question)
{
    char place[128];
    s24_text text;
    s24i_json *value;
    TRY(get_text(&text, r, json, "text"));
    TRY(get(&value, r, json, "answer_start", S24I_JSON_INTEGER, "a whole number"));
    const int64_t begin = s24i_json_integer(value);
    const s24_text *context = &question->context;
    const size_t at = begin < 0 ? SIZE_MAX : s24i_utf8_skip(context->data, context->bytes, begin);
    REQUIRE(r->ctx,
            at != SIZE_MAX && text.bytes <= context->bytes - at &&
                !memcmp(context->data + at, text.data, text.bytes),
            S24_ERROR_FORMAT,
            "%s: %s: the answer \"%s\" of question %s does not stand at character %lld "
            "(answer_start) of its context",
            r->file, where(place, r), s24i_show(text.data).text, s24i_show(question->id).text,
            (long long)begin);
    text = keep(r, text);
    if (r->qa->answers)
        r->qa->answers[r->qa->answer_count] =
            (s24_qa_answer){text, begin, begin + code_points(text)};
    r->qa->answer_count++;
    return S24_OK;
}

static s24_status read_question(reader *r, const s24i_json *json, s24_qa_question *question)
{
    char place[128];
    s24_text id;
    const int64_t first = r->qa->answer_count;
    TRY(get_text(&id, r, json, "id"));
    TRY(get_text(&question->text, r, json, "question"));
    question->id = id.data;
    TRY(read_list(r, json, "an array", read_answer, question));
    question->answer_count = r->qa->answer_count - first;
    REQUIRE(r->ctx, question->answer_count > 0, S24_ERROR_FORMAT,
            "%s: %s: question %s has no answer, SQuAD v1.1 gives each at least one", r->file,
            where(place, r), s24i_show(id.data).text);
    question->id = keep(r, id).data;
    question->text = keep(r, trimmed(question->text));
    if (r->qa->questions) {
        question->context = r->qa->contexts[question->paragraph];
        question->answers = r->qa->answers + first;
        r->qa->questions[r->qa->count] = *question;
    }
    r->qa->count++;
    return S24_OK;
}

static s24_status read_paragraph(reader *r, const s24i_json *json, s24_qa_question *question)
{
    *question = (s24_qa_question){.paragraph = r->qa->paragraph_count};
    TRY(get_text(&question->context, r, json, "context"));
    const s24_text context = keep(r, question->context);
    if (r->qa->contexts) r->qa->contexts[question->paragraph] = context;
    r->qa->paragraph_count++;
    return read_list(r, json, "an array", read_question, question);
}

static s24_status read_article(reader *r, const s24i_json *json, s24_qa_question *question)
{
    return read_list(r, json, "an array", read_paragraph, question);
}

static s24_status read_all(reader *r, const s24i_json *root)
{
    s24_qa_question question;
    r->bytes = 0;
    r->qa->count = r->qa->answer_count = r->qa->paragraph_count = 0;
    TRY(read_list(r, root, "an array of articles", read_article, &question));
    REQUIRE(r->ctx, r->qa->count > 0, S24_ERROR_FORMAT, "%s has no question", r->file);
    return S24_OK;
}

static s24_status fill(s24_qa *qa, const char *path, const s24i_json *root)
{
    reader r = {.ctx = qa->ctx, .file = path, .qa = qa};
    TRY(read_all(&r, root));
    TRY(s24i_alloc_elems(&qa->questions, qa->ctx, qa->count, sizeof *qa->questions, "questions"));
    TRY(s24i_alloc_elems(&qa->answers, qa->ctx, qa->answer_count, sizeof *qa->answers, "answers"));
    TRY(s24i_alloc_elems(&qa->contexts, qa->ctx, qa->paragraph_count, sizeof *qa->contexts,
                         "contexts"));
    TRY(s24i_zeroed(&qa->pool, qa->ctx, r.bytes));
    return read_all(&r, root);
}

static s24_status read_file(s24_qa *qa, const char *path)
{
    s24i_map map;
    s24i_json *root = NULL;
    s24_status status = s24i_map_open(&map, qa->ctx, path);
    if (status == S24_OK) status = s24i_json_parse(&root, qa->ctx, path, map.data, map.bytes);
    if (status == S24_OK) status = fill(qa, path, root);
    s24i_map_close(&map);
    s24_ctx_free(qa->ctx, root);
    return status;
}

s24_status s24_qa_read(s24_qa **out, s24_ctx *ctx, const char *path)
{
    s24_qa *qa;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, path, S24_ERROR_ARGUMENT, "path is NULL, a file of questions is expected");
    TRY(s24i_zeroed(&qa, ctx, sizeof *qa));
    qa->ctx = ctx;
    s24_status status = s24i_copy_string(&qa->file, ctx, path);
    if (status == S24_OK) status = read_file(qa, path);
    GIVE(out, qa, s24_qa_destroy, status);
}

void s24_qa_destroy(s24_qa *qa)
{
    if (!qa) return;
    s24_ctx *ctx = qa->ctx;
    s24_ctx_free(ctx, qa->questions);
    s24_ctx_free(ctx, qa->answers);
    s24_ctx_free(ctx, qa->contexts);
    s24_ctx_free(ctx, qa->pool);
    s24_ctx_free(ctx, qa->file);
    s24_ctx_free(ctx, qa);
}

int64_t s24_qa_count(const s24_qa *qa)
{
    return qa ? qa->count : 0;
}

const s24_qa_question *s24_qa_at(const s24_qa *qa, int64_t index)
{
    return qa && index >= 0 && index < qa->count ? &qa->questions[index] : NULL;
}
