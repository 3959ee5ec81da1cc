// SPDX-License-Identifier: Apache-2.0
/*
 * The tensors of a PyTorch archive as those of a checkpoint: where their bytes lie in the file as a
 * checkpoint has them, there; else copied once, row after row. Two that share bytes must be the
 * same ones, as tied weights are.
 */
#include <stdlib.h>
#include <string.h>

#include "io/torch/torch.h"

/* Types of storages and of elements by their names. */
static const struct {
    const char *storage, *element;
    s24_dtype dtype;
} dtypes[] = {
    {"FloatStorage", "float32", S24_F32},
    {"HalfStorage", "float16", S24_F16},
    {"BFloat16Storage", "bfloat16", S24_BF16},
    {"DoubleStorage", "float64", S24_F64},
    {"CharStorage", "int8", S24_I8},
    {"ByteStorage", "uint8", S24_U8},
    {"ShortStorage", "int16", S24_I16},
    {"IntStorage", "int32", S24_I32},
    {"LongStorage", "int64", S24_I64},
    {"BoolStorage", "bool", S24_BOOL},
    {"", "float8_e4m3fn", S24_E4M3},
    {"", "float8_e5m2", S24_E5M2},
    {"", "uint16", S24_U16},
    {"", "uint32", S24_U32},
    {"", "uint64", S24_U64},
};
enum { DTYPES = (int)(sizeof dtypes / sizeof *dtypes), LINE = 64, MOST_PREFIX = 256 };

/* Tensors of several parts by their classes. */
static const struct {
    const char *name, *parts[4];
} classes[] = {
    {"SparseSemiStructuredTensorCUTLASS", {"packed", "meta"}},
    {"SparseSemiStructuredTensorCUSPARSELT", {"packed"}},
    {"Int8Tensor", {"qdata", "scale", "zero_point"}},
    {"Float8Tensor", {"qdata", "scale"}},
};
enum { CLASSES = (int)(sizeof classes / sizeof *classes) };

/* The bytes of a file that a tensor's elements lie in. */
typedef struct range {
    const uint8_t *begin;
    size_t bytes;
    const char *name;
} range;

/* A walk over all tensors, which counts them or fills the header. */
typedef struct walk {
    s24_ctx *ctx;
    const char *path;
    const s24i_archive *archive;
    const s24i_pickle *pickle;
    char prefix[MOST_PREFIX + 16]; /* of the records, "NAME/data/" */
    s24i_header *header;
    size_t count, name_bytes, copy_bytes;
    uint8_t *copies; /* NULL: counting */
    range *ranges;   /* of each tensor, once it is filled */
} walk;

/* One tensor as the pickle has it. */
typedef struct view {
    s24_tensor tensor; /* data: the first element in the file */
    int64_t strides[S24_MAX_RANK];
    int64_t elements;
    int is_in_order; /* as a checkpoint has it, aligned */
    const uint8_t *storage;
    size_t storage_bytes, span; /* span: bytes from the first element to the last one's end */
} view;

static s24_status fail(const walk *w, const char *name, const char *what)
{
    return s24_ctx_fail(w->ctx, S24_ERROR_FORMAT, "%s: tensor \"%s\": %s", w->path,
                        s24i_show(name).text, what);
}

/* ---- one tensor ------------------------------------------------------------------------------ */

static s24_dtype dtype_of(const walk *w, const s24i_pickled_value *type,
                          const s24i_pickled_value *element)
{
    for (int i = 0; i < DTYPES; i++) {
        if (s24i_pickled_names(w->pickle, element, "torch", dtypes[i].element))
            return dtypes[i].dtype;
        if (!element && s24i_pickled_names(w->pickle, type, "torch", dtypes[i].storage))
            return dtypes[i].dtype;
    }
    return S24_DTYPE_NONE;
}

static s24_status find_storage(view *v, const walk *w, const char *name,
                               const s24i_pickled_value *tensor)
{
    char key[32];
    const s24i_pickled_value *storage = s24i_pickled_at(w->pickle, tensor, 0);
    const s24i_pickled_value *record = s24i_pickled_at(w->pickle, storage, 2);
    if (!storage || storage->kind != S24I_PICKLED_STORAGE || !record ||
        record->kind != S24I_PICKLED_TEXT || record->bytes >= sizeof key)
        return fail(w, name, "it has no storage");
    memcpy(key, record->text, record->bytes);
    key[record->bytes] = '\0';
    const s24i_record *found = s24i_archive_find(w->archive, w->prefix, key);
    if (!found) return fail(w, name, "the record of its storage is missing");
    v->storage = w->archive->map->data + found->begin;
    v->storage_bytes = found->bytes;
    v->tensor.dtype =
        dtype_of(w, s24i_pickled_at(w->pickle, storage, 1), s24i_pickled_at(w->pickle, tensor, 6));
    if (!v->tensor.dtype) return fail(w, name, "its dtype is none that a checkpoint here has");
    return S24_OK;
}

/* Up to S24_MAX_RANK whole numbers of 0 or more; *count is how many. */
static int read_sides(int64_t *sides, int *count, const walk *w, const s24i_pickled_value *list)
{
    const s24i_pickled_value *side;
    if (!list || list->kind != S24I_PICKLED_LIST) return 0;
    for (*count = 0; (side = s24i_pickled_at(w->pickle, list, *count)) != NULL; ++*count) {
        if (*count == S24_MAX_RANK || side->kind != S24I_PICKLED_INTEGER || side->number < 0)
            return 0;
        sides[*count] = side->number;
    }
    return 1;
}

/* The elements lie inside the storage, and there are no more of them than it has. */
static s24_status check_inside(view *v, const walk *w, const char *name, int64_t offset)
{
    const s24_tensor *t = &v->tensor;
    const int64_t size = (int64_t)s24_dtype_bytes(t->dtype);
    const int64_t room = (int64_t)v->storage_bytes / size;
    int64_t last = offset, step, dense = 1;
    v->elements = 1;
    v->is_in_order = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (__builtin_mul_overflow(v->elements, t->shape[i], &v->elements))
            return fail(w, name, "its shape has more than 2^63 elements");
        if (t->shape[i] > 1) {
            if (__builtin_mul_overflow(t->shape[i] - 1, v->strides[i], &step) ||
                __builtin_add_overflow(last, step, &last))
                return fail(w, name, "its strides lead out of its storage");
            v->is_in_order &= v->strides[i] == dense;
        }
        if (__builtin_mul_overflow(dense, t->shape[i] ? t->shape[i] : 1, &dense))
            return fail(w, name, "its shape has more than 2^63 elements");
    }
    if (v->elements && (last >= room || v->elements > room))
        return fail(w, name, "it goes beyond its storage");
    v->tensor.bytes = (size_t)(v->elements * size);
    v->tensor.data = v->storage + (v->elements ? offset * size : 0);
    v->span = v->elements ? (size_t)((last - offset + 1) * size) : 0;
    v->is_in_order &= (uintptr_t)v->tensor.data % (size_t)size == 0;
    return S24_OK;
}

static s24_status read_view(view *v, const walk *w, const char *name,
                            const s24i_pickled_value *tensor)
{
    int ranks = 0;
    const s24i_pickled_value *offset = s24i_pickled_at(w->pickle, tensor, 1);
    *v = (view){.elements = 0};
    TRY(find_storage(v, w, name, tensor));
    if (!offset || offset->kind != S24I_PICKLED_INTEGER || offset->number < 0 ||
        !read_sides(v->tensor.shape, &v->tensor.rank, w, s24i_pickled_at(w->pickle, tensor, 2)) ||
        !read_sides(v->strides, &ranks, w, s24i_pickled_at(w->pickle, tensor, 3)) ||
        ranks != v->tensor.rank)
        return fail(w, name, "offset, shape and strides are expected, of at most 8 sides");
    return check_inside(v, w, name, offset->number);
}

/* The metadata of 2:4 tensors are a strided view of words in another order, which is the one that
   is meant. */
static void take_as_stored(view *v)
{
    int64_t last = 0;
    for (int i = 0; i < v->tensor.rank; i++)
        last += v->tensor.shape[i] ? (v->tensor.shape[i] - 1) * v->strides[i] : 0;
    v->is_in_order |= last + 1 == v->elements;
}

/* Copies the elements in order. */
static void gather(uint8_t *to, const view *v)
{
    const size_t size = s24_dtype_bytes(v->tensor.dtype);
    int64_t at[S24_MAX_RANK] = {0};
    for (int64_t i = 0; i < v->elements; i++, to += size) {
        int64_t place = 0;
        for (int d = 0; d < v->tensor.rank; d++)
            place += at[d] * v->strides[d];
        memcpy(to, (const uint8_t *)v->tensor.data + (size_t)place * size, size);
        for (int d = v->tensor.rank - 1; d >= 0 && ++at[d] == v->tensor.shape[d]; d--)
            at[d] = 0;
    }
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* Memory for a copy, aligned as a line is; NULL while counting. */
static uint8_t *take_copy(walk *w, size_t bytes)
{
    uint8_t *copy = w->copies ? w->copies + w->copy_bytes : NULL;
    w->copy_bytes += (bytes + LINE - 1) / LINE * LINE;
    return copy;
}

/* Adds a tensor, whose name is copied, with `span` bytes of the file from `from` on. */
static void add(walk *w, const char *name, const s24_tensor *tensor, const void *from, size_t span)
{
    const size_t bytes = strlen(name) + 1;
    if (w->copies) {
        s24_tensor *to = &w->header->tensors[w->count];
        *to = *tensor;
        to->name = memcpy(w->header->names + w->name_bytes, name, bytes);
        w->ranges[w->count] = (range){from, span, to->name};
    }
    w->name_bytes += bytes;
    w->count++;
}

static s24_status add_view(walk *w, const char *name, view *v)
{
    const void *from = v->tensor.data;
    if (v->is_in_order) {
        add(w, name, &v->tensor, from, v->span);
        return S24_OK;
    }
    if (w->copy_bytes > 2 * w->archive->map->bytes)
        return fail(w, name, "views of the same storage take more than twice the file");
    uint8_t *copy = take_copy(w, v->tensor.bytes);
    if (copy) gather(copy, v);
    v->tensor.data = copy;
    add(w, name, &v->tensor, from, v->span);
    return S24_OK;
}

static s24_status add_shape(walk *w, const char *name, const s24i_pickled_value *object)
{
    s24_tensor tensor = {.dtype = S24_I64, .rank = 1, .shape = {2}, .bytes = 16};
    int64_t sides[S24_MAX_RANK];
    int rank;
    char whole[1100];
    const s24i_pickled_value *made = s24i_pickled_at(w->pickle, object, 2);
    if (!read_sides(sides, &rank, w, s24i_pickled_at(w->pickle, made, 2)) || rank != 2)
        return fail(w, name, "it is no matrix");
    strcat(strcpy(whole, name), ".shape");
    uint8_t *copy = take_copy(w, 2 * sizeof *sides);
    if (copy) memcpy(copy, sides, 2 * sizeof *sides);
    tensor.data = copy;
    add(w, whole, &tensor, NULL, 0);
    return S24_OK;
}

/* The value at a key of the dicts that an object's state is, one or two. */
static const s24i_pickled_value *find_part(const s24i_pickle *p, const s24i_pickled_value *state,
                                           const char *key)
{
    const s24i_pickled_value *found = NULL, *dict;
    if (state && state->kind == S24I_PICKLED_LIST) {
        for (int i = 0; i < 2 && (dict = s24i_pickled_at(p, state, i)) && !found; i++)
            if (dict->kind == S24I_PICKLED_DICT) found = find_part(p, dict, key);
        return found;
    }
    for (int32_t link = state ? state->first : -1; link >= 0; link = p->links[link].next) {
        const s24i_pickled_value *at = &p->values[p->links[link].value];
        link = p->links[link].next;
        if (link < 0) return NULL;
        if (s24i_pickled_is(at, key)) return &p->values[p->links[link].value];
    }
    return NULL;
}

static int class_of(const walk *w, const s24i_pickled_value *type)
{
    const s24i_pickled_value *name =
        type && type->kind == S24I_PICKLED_NAME ? s24i_pickled_at(w->pickle, type, 1) : NULL;
    for (int i = 0; i < CLASSES; i++)
        if (s24i_pickled_is(name, classes[i].name)) return i;
    return -1;
}

static s24_status add_object(walk *w, const char *name, const s24i_pickled_value *object)
{
    const int class = class_of(w, s24i_pickled_at(w->pickle, object, 1));
    const s24i_pickled_value *state = s24i_pickled_at(w->pickle, object, 3);
    char whole[1100];
    view v;
    REQUIRE(w->ctx, class >= 0, S24_ERROR_UNSUPPORTED,
            "%s: tensor \"%s\" is of a class that is not supported, only %s, %s, %s and %s",
            w->path, s24i_show(name).text, classes[0].name, classes[1].name, classes[2].name,
            classes[3].name);
    for (int i = 0; i < 4 && classes[class].parts[i]; i++) {
        const char *part = classes[class].parts[i];
        const s24i_pickled_value *value = find_part(w->pickle, state, part);
        strcat(strcat(strcpy(whole, name), "."), part);
        if (!value || value->kind != S24I_PICKLED_TENSOR) {
            if (i == 2) continue; /* symmetric integers have no zero points */
            return fail(w, whole, "it is missing");
        }
        TRY(read_view(&v, w, whole, value));
        if (!strcmp(part, "meta")) take_as_stored(&v);
        TRY(add_view(w, whole, &v));
    }
    return add_shape(w, name, object);
}

static s24_status add_entry(walk *w, const s24i_pickled_value *key, const s24i_pickled_value *value)
{
    char name[1024];
    view v;
    if (value->kind != S24I_PICKLED_TENSOR && value->kind != S24I_PICKLED_OBJECT) return S24_OK;
    if (key->kind != S24I_PICKLED_TEXT || !key->bytes || key->bytes >= sizeof name ||
        memchr(key->text, 0, key->bytes))
        return s24_ctx_fail(w->ctx, S24_ERROR_FORMAT,
                            "%s: a tensor's name is no text of 1 to %zu bytes", w->path,
                            sizeof name - 1);
    memcpy(name, key->text, key->bytes);
    name[key->bytes] = '\0';
    if (value->kind == S24I_PICKLED_OBJECT) return add_object(w, name, value);
    TRY(read_view(&v, w, name, value));
    return add_view(w, name, &v);
}

static s24_status add_all(walk *w, const s24i_pickled_value *dict)
{
    const s24i_pickle *p = w->pickle;
    w->count = w->name_bytes = w->copy_bytes = 0;
    for (int32_t link = dict->first; link >= 0; link = p->links[link].next) {
        const s24i_pickled_value *key = &p->values[p->links[link].value];
        link = p->links[link].next;
        if (link < 0) break;
        TRY(add_entry(w, key, &p->values[p->links[link].value]));
    }
    return S24_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* The dict that has the tensors. */
static s24_status find_tensors(const s24i_pickled_value **out, const walk *w)
{
    static const char *const within[] = {"state_dict", "model_state_dict", "model"};
    const s24i_pickle *p = w->pickle;
    const s24i_pickled_value *root = &p->values[p->root];
    *out = root;
    for (int i = 0; i < 3 && root->kind == S24I_PICKLED_DICT; i++) {
        const s24i_pickled_value *inner = find_part(p, root, within[i]);
        if (inner && inner->kind == S24I_PICKLED_DICT) *out = inner;
    }
    REQUIRE(w->ctx, root->kind == S24I_PICKLED_DICT, S24_ERROR_FORMAT,
            "%s: the pickle is no dict of tensors by their names, as a state_dict is", w->path);
    return S24_OK;
}

static int compare_ranges(const void *a, const void *b)
{
    const range *x = a, *y = b;
    if (x->begin != y->begin) return (uintptr_t)x->begin < (uintptr_t)y->begin ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Bytes of two tensors are the same ones or others. */
static s24_status check_apart(const walk *w)
{
    qsort(w->ranges, w->count, sizeof *w->ranges, compare_ranges);
    for (size_t i = 1; i < w->count; i++) {
        const range *x = &w->ranges[i - 1], *y = &w->ranges[i];
        const int is_same = x->begin == y->begin && x->bytes == y->bytes;
        REQUIRE(w->ctx,
                is_same || !x->bytes || (uintptr_t)x->begin + x->bytes <= (uintptr_t)y->begin,
                S24_ERROR_FORMAT, "%s: tensors \"%s\" and \"%s\" overlap in their storage", w->path,
                s24i_show(x->name).text, s24i_show(y->name).text);
    }
    return S24_OK;
}

static s24_status check_names(const walk *w)
{
    const s24i_header *header = w->header;
    qsort(header->tensors, header->count, sizeof *header->tensors, s24i_compare_names);
    for (size_t i = 1; i < header->count; i++)
        if (!strcmp(header->tensors[i - 1].name, header->tensors[i].name))
            return fail(w, header->tensors[i].name, "it is there twice");
    return S24_OK;
}

static s24_status fill(walk *w, s24i_shard *shard)
{
    const s24i_pickled_value *dict;
    TRY(find_tensors(&dict, w));
    TRY(add_all(w, dict));
    REQUIRE(w->ctx, w->count, S24_ERROR_FORMAT, "%s: the pickle has no tensors", w->path);
    TRY(s24i_zeroed(&shard->aligned, w->ctx, w->copy_bytes + LINE));
    w->copies = shard->aligned;
    w->header = &shard->header;
    TRY(s24i_zeroed(&w->ranges, w->ctx, w->count * sizeof *w->ranges));
    TRY(s24i_alloc_elems(&w->header->tensors, w->ctx, (int64_t)w->count + 1,
                         sizeof *w->header->tensors, "a file's tensors"));
    TRY(s24i_alloc_elems(&w->header->names, w->ctx, (int64_t)w->name_bytes + 1, 1,
                         "a file's names"));
    TRY(add_all(w, dict));
    w->header->count = w->count;
    TRY(check_apart(w));
    return check_names(w);
}

/* The folder within the archive, by the one record "NAME/data.pkl"; and the order of bytes. */
static s24_status find_pickle(const s24i_record **out, walk *w)
{
    static const char pickle[] = "data.pkl";
    const s24i_archive *a = w->archive;
    *out = NULL;
    for (int64_t i = 0; i < a->names.count && !*out; i++) {
        const char *name = a->names.names[i];
        const size_t before = strlen(name) - strlen(s24i_base_name(name));
        if (strcmp(s24i_base_name(name), pickle) != 0 || before > MOST_PREFIX) continue;
        memcpy(w->prefix, name, before);
        w->prefix[before] = '\0';
        *out = &a->records[i];
    }
    REQUIRE(w->ctx, *out, S24_ERROR_FORMAT, "%s: the zip archive has no record data.pkl", w->path);
    const s24i_record *order = s24i_archive_find(a, w->prefix, "byteorder");
    REQUIRE(w->ctx,
            !order || (order->bytes == 6 && !memcmp(a->map->data + order->begin, "little", 6)),
            S24_ERROR_UNSUPPORTED, "%s: its numbers are not little-endian", w->path);
    strcat(w->prefix, "data/");
    return S24_OK;
}

s24_status s24i_torch_read(s24i_shard *shard, s24_ctx *ctx)
{
    s24i_archive archive;
    s24i_pickle pickle = {.ctx = ctx};
    const s24i_record *record;
    walk w = {.ctx = ctx, .path = shard->path, .archive = &archive, .pickle = &pickle};
    s24_status status = s24i_archive_open(&archive, ctx, shard->path, &shard->map, 0);
    if (status == S24_OK) status = find_pickle(&record, &w);
    if (status == S24_OK)
        status = s24i_pickle_read(&pickle, ctx, shard->path, shard->map.data + record->begin,
                                  record->bytes);
    if (status == S24_OK) status = fill(&w, shard);
    s24_ctx_free(ctx, w.ranges);
    s24i_pickle_free(&pickle);
    s24i_archive_free(&archive);
    return status;
}
