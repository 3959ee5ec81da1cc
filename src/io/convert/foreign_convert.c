// SPDX-License-Identifier: Apache-2.0
/*
 * s24_checkpoint_convert: first settles what becomes of every tensor, for a file's header says it
 * all, then writes them, one in memory at a time.
 */
#include <string.h>

#include "io/convert/foreign_forms.h"

enum { SOME_ROWS = 16 };

typedef struct target {
    const char *name;
    s24i_form form;
} target;

#define TARGET(name, form) {name, form},
static const target targets[] = {
#include "io/convert/foreign_targets.def"
};
#undef TARGET
enum { TARGETS = (int)(sizeof targets / sizeof *targets) };

const char *s24_convert_target(int index)
{
    return index >= 0 && index < TARGETS ? targets[index].name : NULL;
}

static const target *target_named(const char *name)
{
    for (int i = 0; i < TARGETS; i++)
        if (!strcmp(targets[i].name, name)) return &targets[i];
    return NULL;
}

typedef struct job {
    s24_ctx *ctx;
    s24i_foreigners list;
    const target *to;
    s24_dtype dtype, model_dtype; /* asked for; the folder's own, NONE: unknown */
    s24i_moving *moving;
    s24_writer *writer;
    s24_convert_report report;
} job;

static int is_float(s24_dtype dtype)
{
    return dtype == S24_F32 || dtype == S24_F16 || dtype == S24_BF16;
}

/* The dtype of a weight's floats: what is asked for, else what it is stored in, or with scales the
   model's, or the scales', or of scales that are no floats bf16. */
static s24_dtype floats_of(const job *j, const s24i_foreign *w)
{
    const s24_tensor *first = w->part[0];
    const s24_tensor *scales = w->scheme && w->scheme->scales ? w->part[w->scheme->scales] : NULL;
    if (j->dtype && (scales || first->bits || w->dtype || is_float(first->dtype))) return j->dtype;
    if (w->dtype) return w->dtype;
    if (!scales) return first->bits ? S24_F32 : first->dtype;
    if (j->model_dtype) return j->model_dtype;
    return is_float(scales->dtype) ? scales->dtype : S24_BF16;
}

/* Can PyTorch's CUTLASS backend have it? */
static int fits_torch(const s24i_foreign *w, s24_dtype dtype)
{
    const int sixteen = dtype == S24_F16 || dtype == S24_BF16;
    if (!sixteen && dtype != S24_I8) return 0;
    return w->rows % (sixteen ? 32 : 16) == 0 && w->cols % (sixteen ? 64 : 128) == 0;
}

/* The form of a weight that is 2:4 or not. */
static s24i_form form_of(const job *j, const s24i_moving *m, const s24i_numbers *numbers,
                         int is_two_four)
{
    const int is_ours = j->to->form == FORM_OURS && s24i_numbers_are_integers(numbers);
    if (is_ours && !j->dtype) return is_two_four ? FORM_INTEGERS : FORM_DENSE_INTEGERS;
    if (!is_two_four) return FORM_DENSE;
    if (j->to->form == FORM_BITMASK && !s24i_ends_with(m->weight->name, ".weight"))
        return FORM_DENSE;
    if (j->to->form == FORM_TORCH && !fits_torch(m->weight, m->dtype)) return FORM_DENSE;
    return j->to->form;
}

/* What a scheme's weight is that is 2:4 in any case: its numbers tell nothing more. */
static s24i_form form_of_two_four(const job *j, const s24i_moving *m)
{
    const s24i_foreign *w = m->weight;
    const float scale = 1.0f;
    const s24i_numbers told = {.ctx = j->ctx,
                               .rows = w->rows,
                               .cols = w->cols,
                               .bits = w->bits,
                               .group = w->group,
                               .scales = w->group ? &scale : NULL};
    return form_of(j, m, &told, 1);
}

/* Asks the numbers where nothing else tells; of a weight that is not 2:4 its first rows mostly say
   that. */
static s24_status settle_weight(job *j, s24i_moving *m)
{
    const s24i_foreign *w = m->weight;
    s24i_numbers numbers;
    if (j->to->form == FORM_DENSE) return S24_OK;
    if (w->scheme && w->scheme->is_two_four) {
        m->form = form_of_two_four(j, m);
        return S24_OK;
    }
    s24i_foreign first = *w;
    if (w->scheme && w->scheme->rows_apart) first.rows = s24i_min(w->rows, SOME_ROWS);
    s24_status status = s24i_numbers_read(&numbers, &first);
    if (status == S24_OK) status = s24i_numbers_turn(&numbers);
    int is_two_four = status == S24_OK && s24i_numbers_are_two_four(&numbers);
    if (is_two_four && first.rows < w->rows) {
        s24i_numbers_free(&numbers);
        status = s24i_numbers_read(&numbers, w);
        if (status == S24_OK) status = s24i_numbers_turn(&numbers);
        is_two_four = status == S24_OK && s24i_numbers_are_two_four(&numbers);
    }
    if (status == S24_OK) m->form = form_of(j, m, &numbers, is_two_four);
    s24i_numbers_free(&numbers);
    return status;
}

/* A tensor that is its own whole weight. */
static s24_status settle_plain(job *j, s24i_moving *m)
{
    const s24_tensor *t = m->weight->part[0];
    const int stays = t->packed ? j->to->form == FORM_OURS : m->dtype == t->dtype;
    m->form = stays ? FORM_AS_IS : FORM_DENSE;
    REQUIRE(j->ctx, stays || !t->packed || t->transposed != 1, S24_ERROR_UNSUPPORTED,
            "%s: tensor \"%s\" is packed as the transpose of what the model has; 'sparse24 unpack' "
            "writes it dense",
            m->weight->path, s24i_show(t->name).text);
    if (j->to->form == FORM_DENSE || (t->packed && stays)) return S24_OK;
    if (!t->packed && !s24_tensor_is_selected(t, NULL, NULL)) return S24_OK;
    if (t->rank != 2 || t->transposed == 1 || !s24_dtype_can_be_two_four(t->dtype)) return S24_OK;
    const s24i_form dense = m->form;
    TRY(settle_weight(j, m));
    if (m->form == FORM_DENSE) m->form = dense;
    return S24_OK;
}

static void forget(const job *j, const s24i_foreign *w)
{
    for (int i = 0; i < S24I_FOREIGN_PARTS; i++)
        if (w->part[i]) s24_checkpoint_forget(j->list.checkpoint, w->part[i]);
}

static s24_status settle_all(job *j)
{
    const int64_t count = j->list.count;
    TRY(s24i_zeroed(&j->moving, j->ctx, (size_t)(count + 1) * sizeof *j->moving));
    for (int64_t i = 0; i < count; i++) {
        s24i_moving *m = &j->moving[i];
        const s24i_foreign *w = &j->list.items[i];
        *m = (s24i_moving){.weight = w, .form = FORM_DENSE, .dtype = floats_of(j, w)};
        TRY(s24_ctx_progress(j->ctx, "reading", i, count));
        TRY(w->scheme ? settle_weight(j, m) : settle_plain(j, m));
        forget(j, w);
        j->report.weights += w->scheme != NULL;
        j->report.two_four += m->form == FORM_OURS || m->form == FORM_INTEGERS ||
                              m->form == FORM_BITMASK || m->form == FORM_TORCH;
        j->report.integers += m->form == FORM_INTEGERS || m->form == FORM_DENSE_INTEGERS;
    }
    j->report.tensors = count;
    j->report.dropped = j->list.dropped;
    return S24_OK;
}

/* ---- config.json ----------------------------------------------------------------------------- */

/* What compressed-tensors reads of a folder's config.json: the layers that are 2:4, by name. */
static void write_sparsity(s24i_json_text *text, const void *user)
{
    const job *j = user;
    int count = 0;
    s24i_json_put(text, "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
                        "\"format\": \"dense\", \"sparsity_config\": {\"format\": "
                        "\"sparse-24-bitmask\", \"sparsity_structure\": \"2:4\", "
                        "\"registry_requires_subclass\": false, \"global_sparsity\": 0.5, "
                        "\"ignore\": [], \"targets\": [");
    for (int64_t i = 0; i < j->list.count; i++) {
        const char *name = j->moving[i].weight->name;
        if (j->moving[i].form != FORM_BITMASK) continue;
        s24i_json_put(text, count++ ? ", " : "");
        s24i_json_put_string(text, name, strlen(name) - (sizeof ".weight" - 1));
    }
    s24i_json_put(text, "]}}");
}

static s24_status add_config(job *j)
{
    const char *folder = s24_checkpoint_folder(j->list.checkpoint);
    char *added = NULL, *config = NULL;
    s24_dtype dtype;
    if (!folder) return S24_OK;
    if (j->to->form == FORM_BITMASK) TRY(s24i_json_make(&added, j->ctx, write_sparsity, j, 0));
    s24_status status = s24i_foreign_config(&config, &dtype, j->ctx, folder, added);
    if (status == S24_OK && config) status = s24i_writer_set_config(j->writer, config);
    s24_ctx_free(j->ctx, config);
    s24_ctx_free(j->ctx, added);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static s24_status write_all(job *j, const char *out, int force)
{
    const s24_writer_opts opts = {.size = sizeof opts, .force = force, .model = j->list.checkpoint};
    const int64_t count = j->list.count;
    TRY(s24i_writer_create_converted(&j->writer, j->ctx, out, &opts));
    for (int64_t i = 0; i < count; i++)
        TRY(s24i_form_declare(j->writer, &j->moving[i]));
    TRY(add_config(j));
    for (int64_t i = 0; i < count; i++) {
        TRY(s24_ctx_progress(j->ctx, "converting", i, count));
        TRY(s24i_form_write(j->writer, &j->moving[i]));
        forget(j, j->moving[i].weight);
    }
    return s24_writer_commit(j->writer);
}

static s24_status read_model_dtype(job *j)
{
    const char *folder = s24_checkpoint_folder(j->list.checkpoint);
    char *config = NULL;
    if (!folder) return S24_OK;
    TRY(s24i_foreign_config(&config, &j->model_dtype, j->ctx, folder, NULL));
    s24_ctx_free(j->ctx, config);
    return S24_OK;
}

static s24_status convert(job *j, const s24_checkpoint *in, const char *out, int force)
{
    j->report.scheme = s24_checkpoint_scheme(in);
    s24_status status = s24i_foreigners_find(&j->list, in);
    if (status == S24_OK) status = read_model_dtype(j);
    if (status == S24_OK) status = settle_all(j);
    if (status == S24_OK) status = write_all(j, out, force);
    s24_writer_destroy(j->writer);
    s24i_foreigners_free(&j->list);
    s24_ctx_free(j->ctx, j->moving);
    return status;
}

s24_status s24_checkpoint_convert(s24_convert_report *report, s24_ctx *ctx,
                                  const s24_checkpoint *in, const char *out,
                                  const s24_convert_opts *opts)
{
    s24_convert_opts known;
    job j = {.ctx = ctx};
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, in && out, S24_ERROR_ARGUMENT, "%s is NULL", in ? "out" : "in");
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_convert_opts"));
    j.to = target_named(known.to ? known.to : targets[0].name);
    REQUIRE(ctx, j.to, S24_ERROR_ARGUMENT, "s24_convert_opts.to is \"%s\", which is no target",
            s24i_show(known.to).text);
    REQUIRE(ctx, !known.dtype || is_float(known.dtype), S24_ERROR_DTYPE,
            "s24_convert_opts.dtype is %s, f32, f16 or bf16 is expected",
            s24_dtype_name(known.dtype));
    j.dtype = known.dtype;
    TRY(s24_checkpoint_verify(NULL, ctx, in, 0));
    const s24_status status = convert(&j, in, out, known.force);
    if (status == S24_OK && report) *report = j.report;
    return status;
}
