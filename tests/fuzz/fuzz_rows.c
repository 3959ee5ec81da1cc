// SPDX-License-Identifier: Apache-2.0
/*
 * A config.json of any row of models, whose tensors are made as it asks for them: the configuration
 * is refused with a sentence, or the model loads, dense, 2:4 or in integers, and runs. What is
 * before the JSON says how, by letters (read_way), and may spoil one of the tensors.
 */
#include "fuzz.h"

#include <math.h>
#include <string.h>

#include "model/model.h"
#include "model/tower.h"
#include "model/walk.h"
#include "sparse24/language.h"

enum { MOST_TENSORS = 512, MOST_ELEMENTS = 1 << 16, MOST_WIDTH = 1 << 10, TOKENS = 6 };

/* What is asked of the model. */
typedef struct asked {
    s24_model_opts load;
    const char *quantize;
    int packs;   /* 1: as 2:4, 2: as 6:8 */
    char spoils; /* one of the tensors: 'x' is not there, 's' has a row less, 'n' has a NaN */
    uint8_t which;
} asked;

/* ---- tensors --------------------------------------------------------------------------------- */

typedef struct made {
    char names[MOST_TENSORS][S24I_NAME_BYTES];
    s24_tensor tensors[MOST_TENSORS];
    const char *prefix;
    int64_t elements;
    int count;
} made;

static int is_made(const made *m, const char *name)
{
    for (int i = 0; i < m->count; i++)
        if (!strcmp(m->names[i], name)) return 1;
    return 0;
}

static s24_status take(void *user, const s24i_wanted *w, const s24_tensor *tensor)
{
    made *m = user;
    char bare[S24I_NAME_BYTES], name[S24I_NAME_BYTES];
    const int64_t rows = w->transposed ? w->cols : w->rows,
                  cols = w->transposed ? w->rows : w->cols;
    (void)tensor;
    if (w->optional) return S24_OK;
    if (m->count == MOST_TENSORS || rows < 0 || cols < 0 || rows > MOST_ELEMENTS ||
        (cols && rows > MOST_ELEMENTS / cols))
        return S24_ERROR_UNSUPPORTED;
    m->elements += cols ? rows * cols : rows;
    if (m->elements > MOST_ELEMENTS) return S24_ERROR_UNSUPPORTED;
    s24i_tensor_name(bare, w->pattern, w->block, w->suffix);
    if (snprintf(name, sizeof name, "%s%s", w->role == S24I_ROLE_HEAD ? "" : m->prefix, bare) >=
            (int)sizeof name ||
        is_made(m, name))
        return S24_OK;
    snprintf(m->names[m->count], sizeof name, "%s", name);
    m->tensors[m->count] = (s24_tensor){
        .name = m->names[m->count], .dtype = S24_F32, .rank = cols ? 2 : 1, .shape = {rows, cols}};
    m->count++;
    return S24_OK;
}

static s24_status collect(made *m, const s24i_architecture *a, const s24_checkpoint *bare)
{
    s24_ctx *ctx = fuzz_ctx();
    s24i_shape shape;
    s24_status status = s24i_shape_read(&shape, ctx, a, fuzz_path("m"));
    CHECK(status == S24_OK || *s24_ctx_error(ctx));
    if (status != S24_OK) return status;
    m->prefix = a->prefix;
    const s24i_walk walk = {.ctx = ctx,
                            .checkpoint = bare,
                            .arch = a,
                            .shape = &shape,
                            .heads = {{a->lm_head, a->lm_head ? shape.vocabulary : 0, 1}},
                            .draws = 1,
                            .take = take,
                            .user = m};
    return s24i_walk_tensors(&walk);
}

/* Numbers around 0 that repeat at no length that a model has. */
static void fill(float *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)(i * 7919 % 1009 - 504) / 2048.0f;
}

/* What is asked of one tensor happens to it. */
static void spoil(made *m, const asked *how)
{
    const int i = m->count ? how->which % m->count : 0;
    if (how->spoils == 's' && m->count) m->tensors[i].shape[0] -= m->tensors[i].shape[0] > 1;
    if (how->spoils != 'x' || !m->count) return;
    m->count--;
    m->tensors[i] = m->tensors[m->count];
    memcpy(m->names[i], m->names[m->count], sizeof m->names[i]);
    m->tensors[i].name = m->names[i];
}

static s24_status write_tensors(const made *m, const asked *how, const char *path)
{
    s24_ctx *ctx = fuzz_ctx();
    s24_writer *writer;
    static float values[MOST_ELEMENTS];
    const s24_writer_opts opts = {.size = sizeof opts, .force = 1};
    s24_status status = s24_writer_create(&writer, ctx, path, &opts);
    for (int i = 0; i < m->count && status == S24_OK; i++)
        status = s24_writer_declare(writer, &m->tensors[i]);
    fill(values, MOST_ELEMENTS);
    for (int i = 0; i < m->count && status == S24_OK; i++) {
        values[0] = how->spoils == 'n' && i == how->which % m->count ? NAN : -0.25f;
        status = s24_writer_write(writer, m->names[i], values);
    }
    if (status == S24_OK) status = s24_writer_commit(writer);
    s24_writer_destroy(writer);
    return status;
}

/* The folder's tensors become those that its config asks for; 0: none, or too many. */
static int make_tensors(const asked *how)
{
    static const char nothing[] = "\x40\0\0\0\0\0\0\0{\"nothing\":{\"dtype\":\"U8\",\"shape\":[0],"
                                  "\"data_offsets\":[0,0]}}     ";
    static made m;
    s24_ctx *ctx = fuzz_ctx();
    s24_checkpoint *bare;
    const char *path = fuzz_put("m/model.safetensors", nothing, 8 + 0x40);
    m.count = 0;
    m.elements = 0;
    if (s24_checkpoint_open(&bare, ctx, fuzz_path("m")) != S24_OK) {
        CHECK(*s24_ctx_error(ctx));
        return 0;
    }
    const s24i_architecture *a = s24i_architecture_of(bare);
    s24_status status = a ? collect(&m, a, bare) : S24_ERROR_UNSUPPORTED;
    if (status == S24_OK && a->images) status = collect(&m, a->images, bare);
    s24_checkpoint_close(bare);
    if (status == S24_OK) spoil(&m, how);
    return status == S24_OK && m.count && write_tensors(&m, how, path) == S24_OK;
}

/* ---- passes ---------------------------------------------------------------------------------- */

static void go_on(s24_session *session)
{
    static const int32_t ids[] = {0, 1, 2, 1}, more[] = {1, 0};
    static const int64_t offsets[] = {0, 4}, more_offsets[] = {0, 2};
    static const s24_dtype dtypes[] = {S24_DTYPE_NONE, S24_I8, S24_E4M3};
    s24_ctx *ctx = fuzz_ctx();
    const s24_batch first = {.texts = 1, .offsets = offsets, .ids = ids};
    const s24_batch then = {.texts = 1, .offsets = more_offsets, .ids = more};
    for (int i = 0; i < 3; i++) {
        s24_cache *cache;
        const s24_cache_opts opts = {
            .size = sizeof opts, .texts = 1, .tokens = TOKENS, .dtype = dtypes[i]};
        if (s24_cache_create(&cache, ctx, session, &opts) != S24_OK) {
            CHECK(*s24_ctx_error(ctx));
            continue;
        }
        static float hidden[TOKENS * MOST_WIDTH];
        const s24_outputs outputs = {.hidden = hidden};
        const s24_extension begin = {.batch = &first}, end = {.batch = &then};
        if (s24_session_extend(session, ctx, cache, &begin, &outputs) == S24_OK)
            CHECK(s24_session_extend(session, ctx, cache, &end, &outputs) == S24_OK ||
                  *s24_ctx_error(ctx));
        s24_cache_destroy(cache);
    }
}

static void run(const s24_model *model)
{
    static const int32_t ids[TOKENS] = {0, 1, 0, 2, 1, 0};
    static const int64_t offsets[] = {0, 4, TOKENS};
    static float pixels[1 << 14], out[3 * MOST_ELEMENTS];
    s24_ctx *ctx = fuzz_ctx();
    s24_session *session;
    s24_model_info info = {0};
    s24_model_describe(&info, model);
    const int64_t image = info.channels * info.image * info.image;
    const int64_t tokens = info.image ? info.positions : TOKENS;
    if (info.width > MOST_WIDTH || tokens > 256 ||
        image > (int64_t)(sizeof pixels / sizeof *pixels))
        return;
    fill(pixels, image);
    const s24_batch batch = {
        .texts = info.image ? 1 : 2, .offsets = offsets, .ids = ids, .pixels = pixels};
    s24_outputs outputs = {.hidden = out};
    if (tokens * info.width > 3 * MOST_ELEMENTS) return;
    if (s24_session_create(&session, ctx, model, tokens) != S24_OK) {
        CHECK(*s24_ctx_error(ctx));
        return;
    }
    if (s24_session_forward(session, ctx, &batch, &outputs) != S24_OK) CHECK(*s24_ctx_error(ctx));
    if (!info.image) go_on(session);
    s24_session_destroy(session);
}

static void load(const char *path, const asked *how)
{
    s24_ctx *ctx = fuzz_ctx();
    s24_checkpoint *checkpoint;
    s24_model *model = NULL;
    s24_status status = s24_checkpoint_open(&checkpoint, ctx, path);
    if (status == S24_OK) status = s24_model_load(&model, ctx, checkpoint, &how->load);
    CHECK(status == S24_OK || *s24_ctx_error(ctx));
    if (status == S24_OK) run(model);
    s24_model_destroy(model);
    s24_checkpoint_close(checkpoint);
}

/* Prunes the folder into one that is loaded in its place. */
static void prune_and_load(const asked *how)
{
    s24_ctx *ctx = fuzz_ctx();
    s24_checkpoint *in;
    const s24_model_prune_opts opts = {
        .size = sizeof opts,
        .prune = {.size = sizeof opts.prune, .pattern = how->packs == 2 ? "6:8" : NULL},
        .packed = 1,
        .quantize = how->quantize,
        .force = 1};
    const char *out = fuzz_path("out");
    if (s24_checkpoint_open(&in, ctx, fuzz_path("m")) != S24_OK) return;
    const s24_status status = s24_model_prune(ctx, in, out, &opts);
    s24_checkpoint_close(in);
    CHECK(status == S24_OK || *s24_ctx_error(ctx));
    if (status == S24_OK) load(out, how);
    (void)fuzz_remove_tree("out");
}

static void read_way(asked *how, uint8_t letter)
{
    s24_model_opts *load = &how->load;
    if (letter == 'b') load->dtype = S24_BF16;
    if (letter == '8') load->dtype = S24_I8;
    if (letter == 'q') load->quantize = "int8";
    if (letter == '4') load->quantize = load->quantize_head = "int4-g64";
    if (letter == 'l') load->layer_dtypes = "*=i8,*.0.*=bf16";
    if (letter == 'd') load->dense = 1, load->sparse = load->all_sparse = 0;
    if (letter == 'r') load->all_sparse = 0; /* it is measured */
    if (letter == 'v') load->verify = 1;
    if (letter == 't') load->images = 1;
    if (letter == 'p') how->packs = 1;
    if (letter == 'o') how->packs = 2;
    if (letter == 'i') how->quantize = "int8";
    if (letter == 'g') how->quantize = "int4-g128";
}

static asked read_ways(const uint8_t *data, size_t bytes)
{
    asked how = {.load = {.size = sizeof how.load, .sparse = 1, .all_sparse = 1}};
    for (size_t i = 0; i < bytes; i++) {
        if (!strchr("xsn", data[i])) {
            read_way(&how, data[i]);
        } else {
            how.spoils = (char)data[i];
            how.which = i + 1 < bytes ? data[++i] : 0;
        }
    }
    return how;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const uint8_t *json = memchr(data, '{', bytes);
    const size_t before = json ? (size_t)(json - data) : bytes;
    const asked how = read_ways(data, before < 8 ? before : 8);
    fuzz_put("m/config.json", data + before, bytes - before);
    if (!make_tensors(&how)) return 0;
    if (how.packs)
        prune_and_load(&how);
    else
        load(fuzz_path("m"), &how);
    return 0;
}
