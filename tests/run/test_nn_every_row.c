// SPDX-License-Identifier: Apache-2.0
/*
 * What holds for every row of models.def, whatever it computes: a text's states do not depend on
 * what is in the batch next to it, in which order, on tokens that are masked, on the number of
 * threads, or on whether its 2:4 weights are packed. A small model of each row is made by the
 * row's own keys and names, so that a new row is tested without a line here, but for keys that only
 * it needs.
 */
#include "support.h"

#include "model/walk.h"
#include "nn_language_pass.h"
#include "nn_row_config.h"

enum { TEXTS = 4, ROOM = 128, SIDE = 16, PIXELS = 3 * SIDE * SIDE };

/* ---- a folder -------------------------------------------------------------------------------- */

typedef struct taker {
    lm_writer *writer;
    const s24i_architecture *arch;
    int64_t head_width;
} taker;

/* Scores that no root of a head's width divides come of queries that are so much narrower, as T5
   draws them: else they blow up whatever is rounded. */
static void narrow_queries(const taker *t, const char *pattern)
{
    const mini_tensor *last = &t->writer->tensors[t->writer->count - 1];
    const char *queries = t->arch->slots[S24I_QUERY];
    float *w = (float *)(uintptr_t)last->data;
    if (t->arch->usual_score_factor != 1.0f || !queries || strcmp(pattern, queries) != 0) return;
    for (int64_t i = 0; i < (int64_t)(last->bytes / sizeof *w); i++)
        w[i] /= sqrtf((float)t->head_width);
}

static s24_status take(void *user, const s24i_wanted *w, const s24_tensor *tensor)
{
    const taker *t = user;
    char bare[S24I_NAME_BYTES], name[S24I_NAME_BYTES];
    assert_null(tensor);
    if (w->optional) return S24_OK;
    s24i_tensor_name(bare, w->pattern, w->block, w->suffix);
    const int wrote =
        snprintf(name, sizeof name, "%s%s", w->role == S24I_ROLE_HEAD ? "" : t->arch->prefix, bare);
    assert_true(wrote < (int)sizeof name);
    for (int i = 0; i < t->writer->count; i++)
        if (strcmp(t->writer->names[i], name) == 0) return S24_OK; /* one norm of two halves */
    lm_add(t->writer, name, w->transposed ? w->cols : w->rows, w->transposed ? w->rows : w->cols);
    narrow_queries(t, w->pattern);
    return S24_OK;
}

static void write_tensors(s24_ctx *ctx, const s24i_architecture *a, const char *folder)
{
    static const char nothing[] = "{\"nothing\":{\"dtype\":\"U8\",\"shape\":[0],"
                                  "\"data_offsets\":[0,0]}}";
    char path[600];
    s24_checkpoint *checkpoint;
    s24i_shape shape;
    lm_writer *w = calloc(1, sizeof *w);
    taker t = {.writer = w, .arch = a};
    w->state = 11;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    io_write_tensors(path, nothing, NULL, 0);
    OK(ctx, s24i_shape_read(&shape, ctx, a, folder));
    t.head_width = shape.head_width;
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
    const s24i_walk walk = {.ctx = ctx,
                            .checkpoint = checkpoint,
                            .arch = a,
                            .shape = &shape,
                            .heads = {{a->lm_head, a->lm_head ? shape.vocabulary : 0, 1}},
                            .draws = 1,
                            .take = take,
                            .user = &t};
    OK(ctx, s24i_walk_tensors(&walk));
    s24_checkpoint_close(checkpoint);
    mini_write(path, w->tensors, w->count, NULL);
    for (int i = 0; i < w->count; i++)
        free((void *)(uintptr_t)w->tensors[i].data);
    free(w);
}

static const char *write_folder(const s24i_architecture *a, const size *n)
{
    const char *folder = io_path("model");
    char path[600];
    s24_ctx *ctx = new_ctx(NULL, 1);
    io_remove(folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/config.json", folder);
    write_row_config(a, n, "2", path);
    write_tensors(ctx, a, folder);
    s24_ctx_destroy(ctx);
    return folder;
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* Texts in the order of a batch, each with so many masked tokens at its end. */
typedef struct order {
    int count, texts[TEXTS], padding;
} order;

static const int lengths[TEXTS] = {7, 1, 70, 12};

/* What a pass gives by text, wherever it stood in the batch: padding's states are left out. */
typedef struct states {
    float hidden[TEXTS][ROOM * 64], vectors[TEXTS][64];
    int64_t tokens[TEXTS], width; /* that have states */
} states;

static void forward(states *out, s24_ctx *ctx, const s24_model *model, const order *o,
                    int64_t image_tokens)
{
    s24_model_info info;
    static float hidden[TEXTS * ROOM * 64], vectors[TEXTS * 64], pixels[TEXTS * PIXELS];
    int32_t ids[TEXTS * ROOM];
    uint8_t mask[TEXTS * ROOM] = {0};
    int64_t offsets[TEXTS + 1] = {0};
    s24_session *session;
    const s24_outputs outputs = {.hidden = hidden, .embeddings = image_tokens ? NULL : vectors};
    s24_model_describe(&info, model);
    out->width = info.width;
    for (int i = 0; i < o->count; i++) {
        const int text = o->texts[i], length = lengths[text] + o->padding;
        uint64_t state = (uint64_t)text + 1;
        offsets[i + 1] = offsets[i] + (image_tokens ? image_tokens : length);
        for (int t = 0; !image_tokens && t < length; t++) {
            ids[offsets[i] + t] = 2 + (int32_t)(test_random(&state) % (VOCABULARY - 2));
            mask[offsets[i] + t] = t < lengths[text];
        }
        for (int p = 0; image_tokens && p < PIXELS; p++)
            pixels[i * PIXELS + p] = test_uniform(&state);
    }
    const s24_batch batch = {.texts = o->count, .offsets = offsets, .ids = ids, .mask = mask};
    const s24_batch images = {.texts = o->count, .pixels = pixels};
    memset(vectors, 0, sizeof vectors); /* images have none */
    OK(ctx, s24_session_create(&session, ctx, model, offsets[o->count]));
    OK(ctx, s24_session_forward(session, ctx, image_tokens ? &images : &batch, &outputs));
    s24_session_destroy(session);
    for (int i = 0; i < o->count; i++) {
        const int text = o->texts[i];
        out->tokens[text] = image_tokens ? image_tokens : lengths[text];
        memcpy(out->hidden[text], hidden + offsets[i] * info.width,
               (size_t)(out->tokens[text] * info.width) * sizeof *hidden);
        memcpy(out->vectors[text], vectors + i * info.width, (size_t)info.width * sizeof *vectors);
    }
}

static void compare(const states *want, const states *got, double bound, const char *what)
{
    for (int text = 0; text < TEXTS; text++) {
        near(want->hidden[text], got->hidden[text], want->tokens[text] * want->width, bound, what);
        near(want->vectors[text], got->vectors[text], want->width, bound, what);
    }
}

/* ---- what holds ------------------------------------------------------------------------------ */

typedef struct subject {
    const char *folder;
    s24_dtype dtype;
    int64_t image_tokens;
    int threads, dense, images;
    const char *level; /* of the CPU; NULL: this one's */
} subject;

static void run_orders(states *out, const subject *s, const order *orders, int count)
{
    s24_ctx *ctx = new_ctx(s->level, s->threads);
    const s24_model_opts opts = {.size = sizeof opts,
                                 .dtype = s->dtype,
                                 .dense = s->dense,
                                 .all_sparse = !s->dense,
                                 .images = s->images};
    s24_model *model;
    OK(ctx, load(&model, ctx, s->folder, &opts));
    for (int i = 0; i < count; i++)
        forward(out, ctx, model, &orders[i], s->image_tokens);
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
}

static const order alone[TEXTS] = {{1, {0}, 0}, {1, {1}, 0}, {1, {2}, 0}, {1, {3}, 0}};
static const order together = {TEXTS, {0, 1, 2, 3}, 0}, turned = {TEXTS, {2, 3, 1, 0}, 0},
                   padded = {TEXTS, {1, 0, 3, 2}, 6};

static void check_batches(const subject *s, double bound, const char *name)
{
    static states want, got;
    subject more = *s;
    char what[96];
    run_orders(&want, s, alone, TEXTS);
    const struct {
        const order *order;
        const char *what;
    } batches[] = {{&together, "together"}, {&turned, "in another order"}, {&padded, "padded"}};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++)
        for (more.threads = 1; more.threads <= (s->level ? 1 : 3); more.threads++) {
            snprintf(what, sizeof what, "%s: %s, dtype %d, %d threads", name, batches[i].what,
                     (int)s->dtype, more.threads);
            run_orders(&got, &more, batches[i].order, 1);
            compare(&want, &got, bound, what);
        }
}

/* Packed weights give what the same weights give dense. */
static void check_packed(const subject *s, double bound, const char *name)
{
    static states want, got;
    subject other = *s;
    other.dense = 1;
    run_orders(&want, &other, alone, TEXTS);
    other.dense = 0;
    run_orders(&got, &other, &together, 1);
    compare(&want, &got, bound, name);
}

static int64_t tokens_of_image(const char *folder, const s24i_architecture *a)
{
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24i_shape shape;
    OK(ctx, s24i_shape_read(&shape, ctx, a, folder));
    s24_ctx_destroy(ctx);
    return shape.image ? shape.positions : 0;
}

/* Of the largest state: a mistake is far beyond what rounding does. */
static const double NEAR_F32 = 1e-5, NEAR_BF16 = 5e-2, NEAR_I8 = 8e-2;

/* From here on tokens take all experts: two whose scores are near another may change places by the
   rounding of narrow numbers, and a state then is another one. */
static void use_all_experts(const char *folder, const s24i_architecture *a, const size *n)
{
    char path[600];
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (a->mixture) write_row_config(a, n, "5", path);
}

static void check_row(const s24i_architecture *a, const size *n, const char *level, int images)
{
    s24_ctx *ctx = new_ctx(NULL, 1);
    subject s = {.folder = write_folder(a, n), .threads = 1, .level = level, .images = images};
    s.image_tokens = tokens_of_image(s.folder, a);
    s.dtype = S24_F32;
    check_batches(&s, NEAR_F32, a->model_type);
    s.folder = prune(ctx, s.folder, 1, NULL);
    check_batches(&s, NEAR_F32, a->model_type);
    check_packed(&s, NEAR_F32, a->model_type);
    use_all_experts(s.folder, a, n);
    s.dtype = S24_BF16;
    check_batches(&s, NEAR_BF16, a->model_type);
    check_packed(&s, NEAR_BF16, a->model_type);
    s.dtype = S24_I8;
    check_batches(&s, NEAR_I8, a->model_type);
    s24_ctx_destroy(ctx);
}

static void every_row(void **state)
{
    static const char *const less[] = {"avx512", "avx2", "baseline"};
    (void)state;
    for (int i = 0; s24i_architecture_at(i); i++) {
        if (WATCHED && i % 4) continue;
        for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
            check_row(s24i_architecture_at(i), &sizes[n], NULL, 0);
        check_row(s24i_architecture_at(i), &sizes[0], less[i % 3], 0);
        if (s24i_architecture_at(i)->images)
            check_row(s24i_architecture_at(i)->images, &sizes[0], NULL, 1);
    }
}

/* The option that asks for a tower of images, of a row that has none. */
static void no_images(void **state)
{
    (void)state;
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_model *model;
    const s24_model_opts opts = {.size = sizeof opts, .images = 1};
    const char *folder = write_folder(s24i_architecture_find("bert"), &sizes[0]);
    assert_int_equal(load(&model, ctx, folder, &opts), S24_ERROR_UNSUPPORTED);
    assert_non_null(
        strstr(s24_ctx_error(ctx), "a model of type 'bert' reads texts, and images were given"));
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row), cmocka_unit_test(no_images)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
