// SPDX-License-Identifier: Apache-2.0
/*
 * Trains a pruned encoder towards the dense one it came from, on plain texts without labels;
 * what is 2:4 stays 2:4.
 *   cc distil.c $(pkg-config --cflags --libs sparse24-nn) -o distil
 *   ./distil DENSE PRUNED OUT TEXTS STEPS
 */
#include <sparse24/train.h>
#include <stdio.h>
#include <stdlib.h>

static int tell(void *user, const s24_train_report *report)
{
    const int64_t every = *(const int64_t *)user;
    if (report->step == 1 || report->step % every == 0)
        printf("step %lld of %lld: loss %.4f\n", (long long)report->step, (long long)report->steps,
               report->loss);
    return 0; // not 0: stop
}

/* Everything that a run needs; what was not made is NULL. */
typedef struct run {
    s24_ctx *ctx;
    s24_lines *lines;
    s24_text_source *source;
    s24_checkpoint *dense, *pruned;
    s24_transformer *teacher, *student;
} run;

static s24_status distil(run *r, char **argv)
{
    const int64_t steps = atoll(argv[5]), every = 5;
    // shown: begin
    s24_transformer_opts room = {.size = sizeof room, .max_tokens = 1024};
    s24_status status = s24_lines_read(&r->lines, r->ctx, argv[4]);
    if (status == S24_OK)
        status = s24_text_source_create(&r->source, r->ctx, argv[2], s24_lines_texts(r->lines),
                                        s24_lines_count(r->lines), 0, 0);
    if (status == S24_OK) status = s24_checkpoint_open(&r->dense, r->ctx, argv[1]);
    if (status == S24_OK) status = s24_checkpoint_open(&r->pruned, r->ctx, argv[2]);
    if (status == S24_OK) status = s24_transformer_load(&r->teacher, r->ctx, r->dense, &room);
    room.train = 1; // room for gradients
    if (status == S24_OK) status = s24_transformer_load(&r->student, r->ctx, r->pruned, &room);
    if (status != S24_OK) return status;
    s24_train_opts opts = {.size = sizeof opts, .steps = steps, .batch = 8, .rate = 3e-4};
    opts.fixed = 1; // zeros of 2:4 layers stay zeros
    opts.objective.teacher = r->teacher;
    opts.objective.hidden = 1;  // the blocks' outputs …
    opts.objective.cosine = 20; // … and the pooled vectors shall be the teacher's
    opts.report = tell;
    opts.user = (void *)&every;
    status = s24_train(NULL, r->student, r->ctx, s24_text_source_get(r->source), &opts);
    if (status == S24_OK) status = s24_transformer_save(r->student, r->ctx, r->pruned, argv[3], 0);
    // shown: end
    return status;
}

int main(int argc, char **argv)
{
    run r = {0};
    if (argc != 6) {
        fprintf(stderr, "usage: distil DENSE PRUNED OUT TEXTS STEPS\n");
        return 2;
    }
    s24_status status = s24_ctx_create(&r.ctx, NULL);
    if (status == S24_OK) status = distil(&r, argv);
    if (status != S24_OK)
        fprintf(stderr, "distil: %s\n", r.ctx ? s24_ctx_error(r.ctx) : s24_status_text(status));
    s24_transformer_destroy(r.student);
    s24_transformer_destroy(r.teacher);
    s24_checkpoint_close(r.pruned);
    s24_checkpoint_close(r.dense);
    s24_text_source_destroy(r.source);
    s24_lines_destroy(r.lines);
    s24_ctx_destroy(r.ctx);
    return status == S24_OK ? 0 : 1;
}
