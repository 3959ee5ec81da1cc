// SPDX-License-Identifier: Apache-2.0
/* A transformer with a window has the weights of the block that was opened, of every row that
   trains, in an arena that is smaller by all other blocks; what is in no block stays. Blocks that
   share their tensors have none. */
#include "support.h"

#include "nn_row_folder.h"
#include "train/transformer.h"

typedef s24_status loader(s24_transformer **out, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                          const s24_transformer_opts *opts);

static s24_transformer *load_by(loader *by, s24_ctx *ctx, const s24_checkpoint *checkpoint)
{
    s24_transformer *t;
    const s24_transformer_opts opts = {.size = sizeof opts, .max_tokens = 16};
    if (by(&t, ctx, checkpoint, &opts) == S24_OK) return t;
    assert_non_null(strstr(s24_ctx_error(ctx), "train"));
    return NULL;
}

static void same(const float *a, const float *b, int64_t count)
{
    assert_int_equal(!a, !b);
    if (a) assert_memory_equal(a, b, (size_t)count * sizeof *a);
}

static void same_layer(const s24i_layer *a, const s24i_layer *b)
{
    assert_true(a->n == b->n && a->k == b->k && a->ldx == b->ldx && a->ldy == b->ldy);
    same(a->w, b->w, a->n * a->k);
    same(a->bias, b->bias, a->n);
}

static void same_norm(const s24i_norm *a, const s24i_norm *b, int64_t count)
{
    same(a->row.gamma, b->row.gamma, count);
    same(a->row.beta, b->row.beta, count);
}

static void same_block(const s24_transformer *whole, const s24_transformer *window, int64_t block)
{
    const s24i_train_block *a = &whole->blocks[block], *b = &window->blocks[block];
    const int first = (int)s24i_block_norm(whole, block, S24I_ATTENTION_NORM);
    same_layer(&a->qkv, &b->qkv);
    same_layer(&a->attention, &b->attention);
    same_layer(&a->up, &b->up);
    same_layer(&a->down, &b->down);
    same_norm(&whole->norms[first], &window->norms[first], whole->shape.width);
    same_norm(&a->query_norm, &b->query_norm, a->query_norm.row.n);
    same_norm(&a->key_norm, &b->key_norm, a->key_norm.row.n);
}

/* Elements of a block: what the whole has beyond one, by the others. */
static void check_room(const s24_transformer *whole, const s24_transformer *window)
{
    const int64_t others = whole->shape.layers - 1, beyond = whole->elems - window->elems;
    int64_t least = 0;
    const s24i_train_block *b = &whole->blocks[0];
    const s24i_layer *layers[] = {&b->qkv, &b->attention, &b->up, &b->down};
    for (int i = 0; i < 4; i++)
        least += layers[i]->n * layers[i]->k;
    assert_true(others > 0 && beyond >= others * least && beyond % others == 0);
}

static int check_row(const s24i_architecture *a, const size *n)
{
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_checkpoint *checkpoint;
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, row_folder(a, n)));
    s24_transformer *whole = load_by(s24_transformer_load, ctx, checkpoint);
    s24_transformer *window = whole ? load_by(s24i_transformer_load_window, ctx, checkpoint) : NULL;
    assert_int_equal(window != NULL, whole && !a->shared);
    if (window) {
        const int64_t layers = whole->shape.layers;
        check_room(whole, window);
        for (int64_t i = 0; i <= 2 * layers; i++) {
            const int64_t block = i <= layers ? layers - 1 - i % layers : i % layers;
            OK(ctx, s24i_transformer_open(window, ctx, checkpoint, block));
            same_block(whole, window, block);
        }
        same(whole->embed.words, window->embed.words,
             whole->embed.words ? whole->shape.vocabulary * whole->embed.width : 0);
        same_norm(&whole->norms[2 * layers], &window->norms[2 * layers],
                  s24i_goes_past(whole, 0) ? whole->shape.width : 0);
        same_layer(&whole->head, &window->head);
    }
    s24_transformer_destroy(whole);
    s24_transformer_destroy(window);
    s24_checkpoint_close(checkpoint);
    s24_ctx_destroy(ctx);
    return whole != NULL;
}

static void every_row(void **state)
{
    int rows = 0;
    (void)state;
    for (int i = 0; s24i_architecture_at(i); i++)
        rows += check_row(s24i_architecture_at(i), &sizes[0]);
    assert_true(rows > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
