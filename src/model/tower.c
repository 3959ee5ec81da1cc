// SPDX-License-Identifier: Apache-2.0
#include "model/tower.h"

#include <stdio.h>
#include <string.h>

/* A prompt's tokens attend to later ones there: the row of its texts is another model. */
static const char *const sees_all[] = {"paligemma", "colpali"};

static int is_refused(const char *type)
{
    for (size_t i = 0; i < sizeof sees_all / sizeof *sees_all; i++)
        if (strcmp(sees_all[i], type) == 0) return 1;
    return 0;
}

const s24i_architecture *s24i_architecture_of(const s24_checkpoint *checkpoint)
{
    const char *type = checkpoint ? checkpoint->model_type : NULL;
    const s24i_architecture *whole = type ? s24i_architecture_find(type) : NULL;
    if (!type || !checkpoint->text_type || (whole && whole->key_tower)) return whole;
    const s24i_architecture *texts = s24i_architecture_find(checkpoint->text_type);
    return texts && texts->lm_head && !is_refused(type) ? texts : whole;
}

s24_status s24i_architecture_unknown(s24_ctx *ctx, const s24_checkpoint *checkpoint,
                                     int (*takes)(const s24i_architecture *architecture))
{
    const char *folder = s24_checkpoint_folder(checkpoint), *texts = checkpoint->text_type;
    const s24i_names names = s24i_architecture_names(takes);
    if (texts && is_refused(checkpoint->model_type))
        return s24_ctx_fail(ctx, S24_ERROR_UNSUPPORTED,
                            "%s/config.json: model_type '%s' lets tokens of a prompt attend to "
                            "later ones, which is not supported",
                            folder, s24i_show(checkpoint->model_type).text);
    if (texts)
        return s24_ctx_fail(ctx, S24_ERROR_UNSUPPORTED,
                            "%s/config.json: model_type '%s' is not supported, and neither is '%s' "
                            "of its text_config; %s are",
                            folder, s24i_show(checkpoint->model_type).text, s24i_show(texts).text,
                            names.text);
    return s24_ctx_fail(ctx, S24_ERROR_UNSUPPORTED,
                        "%s/config.json: model_type '%s' is not supported; %s are", folder,
                        s24i_show(checkpoint->model_type).text, names.text);
}

/* Has the checkpoint the words' embeddings with that before their name? */
static int has_words(const s24_checkpoint *checkpoint, const s24i_architecture *arch,
                     const char *first)
{
    char name[S24I_NAME_BYTES];
    snprintf(name, sizeof name, "%.32s%.32s%.90s", first, arch->prefix, arch->words);
    if (s24_checkpoint_find(checkpoint, name)) return 1;
    snprintf(name, sizeof name, "%.32s%.120s", first, arch->words);
    return s24_checkpoint_find(checkpoint, name) != NULL;
}

void s24i_towers_find(s24_checkpoint *checkpoint, const s24i_architecture *arch)
{
    const s24i_architecture *whole =
        checkpoint->model_type ? s24i_architecture_find(checkpoint->model_type) : NULL;
    int64_t block;
    s24i_slot slot;
    if (!arch || (arch == whole && !arch->has_towers)) return;
    checkpoint->text_names = "";
    for (int i = 0; !*checkpoint->text_names && s24i_tower_before(i); i++)
        if (has_words(checkpoint, arch, s24i_tower_before(i)))
            checkpoint->text_names = s24i_tower_before(i);
    for (size_t i = 0; i < checkpoint->count; i++)
        if (!s24i_slot_find(&block, &slot, arch, checkpoint->tensors[i].name))
            checkpoint->tensors[i].linear = -1;
}

void s24i_towers_log(s24_ctx *ctx, const s24_checkpoint *checkpoint)
{
    if (checkpoint->text_names)
        s24_ctx_log(ctx, S24_LOG_INFO,
                    "%s: of a model of type '%s' the part for texts is run; images and sounds are "
                    "left out",
                    s24_checkpoint_folder(checkpoint), checkpoint->model_type);
}
