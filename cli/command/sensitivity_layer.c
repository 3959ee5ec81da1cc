// SPDX-License-Identifier: Apache-2.0
/* Makes a layer of which nothing is known yet but what it would be stored as. */
#include <math.h>

#include "sensitivity.h"

static double stored_bytes(const sensitivity_form *f, double rows, int64_t cols, double element)
{
    const double columns = sensitivity_columns(f, cols), cells = rows * columns;
    const double value = f->scheme ? f->bits / 8.0 : element;
    const double scales = f->scheme ? f->group ? ceil(columns / (double)f->group) : 1 : 0;
    return cells * (f->lift ? value / 2 + 1.0 / 8 : value) + rows * scales * sizeof(float);
}

static sensitivity_layer new_layer(const sensitivity_job *j, const s24_tensor *tensor,
                                   const s24_layer_report *report)
{
    const double rows = (double)report->rows, element = (double)s24_dtype_bytes(tensor->dtype);
    sensitivity_layer l = {.name = tensor->name,
                           .rows = report->rows,
                           .cols = report->cols,
                           .input = report->input,
                           .chosen = DENSE};
    for (int i = 0; i < MOST_FORMS; i++) {
        l.error[i] = l.kept[i] = l.whole[i] = NAN;
        l.bytes[i] = stored_bytes(&j->forms[i], rows, report->cols, element);
    }
    l.bytes[DENSE] = rows * (double)report->cols * element;
    return l;
}

sensitivity_layer *sensitivity_new(sensitivity_job *j, const s24_tensor *tensor,
                                   const s24_layer_report *report)
{
    j->layers[j->count] = new_layer(j, tensor, report);
    return &j->layers[j->count++];
}
