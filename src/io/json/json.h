// SPDX-License-Identifier: Apache-2.0
/*
 * JSON, read from strangers and written. A text is read strictly (RFC 8259; UTF-8 without errors,
 * no key twice, no lone surrogate, no U+0000, nothing after the value, numbers of at most
 * S24I_JSON_NUMBER characters, of which an integer over 64 bits is a real one, S24I_JSON_DEPTH
 * levels) into one block of the context's memory, which takes at most two and a half times the
 * text's bytes. A value is a pointer into that
 * block; the text is needed no longer.
 *
 *     s24i_json *root;
 *     s24i_json_walk walk;
 *     const char *key;
 *     TRY(s24i_json_parse(&root, ctx, path, map.data, map.bytes));
 *     walk = s24i_json_begin(s24i_json_get(root, "weight_map"));
 *     for (const s24i_json *value; (value = s24i_json_next(&walk, &key)) != NULL;)
 *         …
 *     s24_ctx_free(ctx, root);
 */
#ifndef S24_IO_JSON_JSON_H
#define S24_IO_JSON_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "sparse24/sparse24.h"

enum { S24I_JSON_DEPTH = 2048, S24I_JSON_NUMBER = 1024 /* characters of one */ };
#define S24I_JSON_MAX_BYTES ((size_t)1 << 29) /* of a text */

typedef struct s24i_json s24i_json; /* a value; only ever pointed at */

typedef enum s24i_json_type {
    S24I_JSON_NONE, /* of NULL: there is no value */
    S24I_JSON_NULL,
    S24I_JSON_BOOL,
    S24I_JSON_INTEGER,
    S24I_JSON_REAL,
    S24I_JSON_STRING,
    S24I_JSON_ARRAY,
    S24I_JSON_OBJECT
} s24i_json_type;

/* ---- reading --------------------------------------------------------------------------------- */

/* Bytes of the byte order mark that a file may begin with: some editors put one there, and RFC 8259
   lets a reader of files pass over it. What is no file has none. */
size_t s24i_json_mark_bytes(const void *data, size_t bytes);

/* Parses a whole text, whose value must be an object or an array; file is for the sentence. The
   caller frees *out with s24_ctx_free. FORMAT (with line and column), MEMORY. */
s24_status s24i_json_parse(s24i_json **out, s24_ctx *ctx, const char *file, const void *data,
                           size_t bytes);

/*
 * A text on its way through, for a reader that takes it piece by piece. With out = NULL nothing is
 * stored and `used` counts what would be; keys of objects are compared only where they are stored.
 */
typedef struct s24i_json_reader {
    s24_ctx *ctx;
    const char *file;
    const char *begin, *at, *end; /* the text, and how far it is read */
    char *out;
    size_t used;
} s24i_json_reader;

/* One value, stored at out + used, with the white space before it. FORMAT, MEMORY. */
s24_status s24i_json_read_value(s24i_json_reader *r);
/* A key and its colon; the key is stored as a string value is. FORMAT. */
s24_status s24i_json_read_key(s24i_json_reader *r);
/* Goes over white space; the next byte then, 0 at the end of the text. */
char s24i_json_peek(s24i_json_reader *r);
/* FORMAT: what is expected where the text is read. */
s24_status s24i_json_fail(const s24i_json_reader *r, const char *what);

/* ---- values ---------------------------------------------------------------------------------- */

/* All of these take NULL, and a value of another type, as one that has nothing. */
s24i_json_type s24i_json_typeof(const s24i_json *value);
int s24i_json_is_true(const s24i_json *value);
int64_t s24i_json_integer(const s24i_json *value);    /* 0 */
double s24i_json_number(const s24i_json *value);      /* an integer's too; 0 */
const char *s24i_json_string(const s24i_json *value); /* NULL */
/* The value at a key of an object, found by going through its members; NULL: none. */
s24i_json *s24i_json_get(const s24i_json *object, const char *key);
/* Element `index` of an array, found likewise; and how many values an array or an object has. */
s24i_json *s24i_json_at(const s24i_json *array, size_t index);
size_t s24i_json_count(const s24i_json *value);

/* The double of a JSON number's characters, whatever the program's locale; 0: it is none that is
   finite. value may be NULL. */
int s24i_json_real(double *value, const char *text);

/* Goes through an array or an object. */
typedef struct s24i_json_walk {
    const char *at, *end;
    int has_keys;
} s24i_json_walk;
s24i_json_walk s24i_json_begin(const s24i_json *value);
/* The next value, NULL after the last; *key (may be NULL) is NULL in an array. */
s24i_json *s24i_json_next(s24i_json_walk *walk, const char **key);

/* ---- writing --------------------------------------------------------------------------------- */

/* A text that grows at its end; data NULL: it is only counted. */
typedef struct s24i_json_text {
    char *data;
    size_t bytes;
} s24i_json_text;

void s24i_json_put(s24i_json_text *text, const char *raw);
void s24i_json_put_integer(s24i_json_text *text, int64_t value);
/* A finite number, in the fewest digits that give the same float; whole ones without a point. */
void s24i_json_put_real(s24i_json_text *text, double value);
/* So many bytes with quotes and escapes; they must be UTF-8. */
void s24i_json_put_string(s24i_json_text *text, const char *string, size_t bytes);
/* The text that write makes: it runs twice, to count and to fill. `room` bytes of zeros stand
   after it, and one that ends it. Freed with s24_ctx_free. MEMORY. */
s24_status s24i_json_make(char **out, s24_ctx *ctx,
                          void (*write)(s24i_json_text *text, const void *user), const void *user,
                          size_t room);

#endif
