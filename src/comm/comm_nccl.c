// SPDX-License-Identifier: Apache-2.0
/*
 * NCCL's functions, looked up in libnccl.so.2 when a communicator asks for them. Its calls wait for
 * ranks that are gone as for those that are late, so a thread of the communicator watches: it hears
 * who is gone, and after that ends what NCCL waits for.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "comm/meeting.h"
#include "sparse24/device.h"

enum { NCCL_ID_BYTES = 128, NCCL_UINT8 = 1, NCCL_F32 = 7, NCCL_F64 = 8, NCCL_SUM = 0 };
enum { NCCL_IN_PROGRESS = 7, WATCH_MS = 100, PORT = 29400 };

/* Handed over by value. */
typedef struct nccl_id {
    char bytes[NCCL_ID_BYTES];
} nccl_id;

typedef struct nccl {
#define NCCL_FUNCTION(name, ...) int (*name)(__VA_ARGS__);
#include "comm/nccl_functions.def"
#undef NCCL_FUNCTION
    const char *(*GetErrorString)(int result);
} nccl;

typedef struct nccl_state {
    nccl nccl;
    void *library;
    s24_ctx *ctx;
    s24_device *device;
    void *comm;
    s24i_meeting meeting;
    double patience;
    pthread_t watcher;
    int watched;          /* is there a watcher? */
    pthread_mutex_t lock; /* of what follows */
    int over, gone;       /* gone: a rank, S24I_MEETING_NOBODY */
    int late;             /* a call took longer than patience */
    double since;         /* when the call began that waits; 0: none does */
    int aborted;
} nccl_state;

static s24_status said(const nccl_state *s, int result, const char *what, s24i_comm_error *error)
{
    if (result == 0 || result == NCCL_IN_PROGRESS) return S24_OK;
    snprintf(error->text, sizeof error->text, "NCCL failed while %s: %.300s", what,
             s->nccl.GetErrorString(result));
    return S24_ERROR_IO;
}

/* ---- opening --------------------------------------------------------------------------------- */

static const char *load(nccl_state *s, const char *path)
{
    s->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!s->library) return dlerror();
    void *symbol;
#define NCCL_FUNCTION(name, ...)                                                                   \
    symbol = dlsym(s->library, "nccl" #name);                                                      \
    if (!symbol) return dlerror();                                                                 \
    memcpy(&s->nccl.name, &symbol, sizeof symbol);
#include "comm/nccl_functions.def"
#undef NCCL_FUNCTION
    symbol = dlsym(s->library, "ncclGetErrorString");
    if (!symbol) return dlerror();
    memcpy(&s->nccl.GetErrorString, &symbol, sizeof symbol);
    return NULL;
}

/* Ends what NCCL waits for; the caller holds the lock. */
static void end_calls(nccl_state *s)
{
    if (!s->aborted && s->comm) s->nccl.CommAbort(s->comm);
    s->aborted = 1;
}

static void *watch(void *opaque)
{
    nccl_state *s = opaque;
    for (int over = 0; !over;) {
        const int gone = s24i_meeting_watch(&s->meeting, WATCH_MS);
        pthread_mutex_lock(&s->lock);
        if (gone != S24I_MEETING_NOBODY && s->gone == S24I_MEETING_NOBODY) s->gone = gone;
        s->late |= s->since > 0 && s24i_seconds() - s->since > s->patience;
        over = s->over || s->gone != S24I_MEETING_NOBODY || s->late;
        if (!s->over && over) end_calls(s);
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

static s24_status begin(nccl_state *s, const s24_comm_opts *o, s24i_comm_error *error)
{
    nccl_id id = {{0}};
    const char *why = load(s, o->library ? o->library : "libnccl.so.2");
    if (why) {
        snprintf(error->text, sizeof error->text, "no NCCL here: %.400s", why);
        return S24_ERROR_UNSUPPORTED;
    }
    if (o->rank == 0) TRY(said(s, s->nccl.GetUniqueId(&id), "naming the world", error));
    TRY(s24i_meeting_open(&s->meeting, o, &id, sizeof id, error));
    TRY(said(s, s->nccl.CommInitRank(&s->comm, o->world, id, o->rank), "connecting ranks", error));
    s->watched = pthread_create(&s->watcher, NULL, watch, s) == 0;
    if (s->watched) return S24_OK;
    snprintf(error->text, sizeof error->text, "no thread can be started");
    return S24_ERROR_MEMORY;
}

static void close_nccl(void *state, int broken)
{
    nccl_state *s = state;
    pthread_mutex_lock(&s->lock);
    s->over = 1;
    if (broken) end_calls(s);
    const int aborted = s->aborted;
    pthread_mutex_unlock(&s->lock);
    if (s->watched) pthread_join(s->watcher, NULL);
    s24i_meeting_close(&s->meeting, !broken);
    if (s->comm && !aborted) s->nccl.CommDestroy(s->comm);
    if (s->library) dlclose(s->library);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static s24_status open_nccl(void **state, s24_ctx *ctx, const s24_comm_opts *opts,
                            s24i_comm_error *error)
{
    s24_comm_opts o = *opts;
    const char *lacks = !o.device ? "device" : o.world < 1 ? "world" : NULL;
    if (lacks) {
        snprintf(error->text, sizeof error->text, "s24_comm_opts.%s is not set; nccl needs it",
                 lacks);
        return S24_ERROR_ARGUMENT;
    }
    if (!o.address) o.address = "127.0.0.1";
    if (!o.port) o.port = PORT;
    nccl_state *s = calloc(1, sizeof *s);
    if (!s) {
        snprintf(error->text, sizeof error->text, "out of memory");
        return S24_ERROR_MEMORY;
    }
    s->ctx = ctx;
    s->device = o.device;
    s->patience = o.patience;
    s->gone = S24I_MEETING_NOBODY;
    pthread_mutex_init(&s->lock, NULL);
    const s24_status status = begin(s, &o, error);
    if (status == S24_OK)
        *state = s;
    else
        close_nccl(s, 1);
    return status;
}

static void place(const void *state, int *rank, int *world)
{
    const nccl_state *s = state;
    *rank = s->meeting.rank;
    *world = s->meeting.world;
}

/* ---- running --------------------------------------------------------------------------------- */

/* From here on the watcher counts the time, or no more (0); what it found is told first. */
static s24_status wait_since(nccl_state *s, double since, s24i_comm_error *error)
{
    pthread_mutex_lock(&s->lock);
    const int gone = s->gone, late = s->late;
    s->since = since;
    pthread_mutex_unlock(&s->lock);
    if (gone == S24I_MEETING_NOBODY && !late) return S24_OK;
    if (late)
        snprintf(error->text, sizeof error->text, "another rank did not come within %g s",
                 s->patience);
    else
        snprintf(error->text, sizeof error->text, "rank %d is gone", gone);
    return S24_ERROR_IO;
}

/* What a call gave, unless the watcher ended it. */
static s24_status ended(nccl_state *s, int result, const char *what, s24i_comm_error *error)
{
    TRY(wait_since(s, 0, error));
    return said(s, result, what, error);
}

static s24_status reduce(void *state, void *data, int64_t count, int f64, s24i_comm_error *error)
{
    nccl_state *s = state;
    TRY(wait_since(s, s24i_seconds(), error));
    const int result = s->nccl.AllReduce(data, data, (size_t)count, f64 ? NCCL_F64 : NCCL_F32,
                                         NCCL_SUM, s->comm, NULL);
    return ended(s, result, "it began a sum", error);
}

/* The device's default stream is waited for: its sums are enqueued there after what they sum. */
static s24_status test(void *state, int *done, s24i_comm_error *error)
{
    nccl_state *s = state;
    int result = 0;
    TRY(wait_since(s, s24i_seconds(), error));
    const s24_status status = s24_device_wait(s->ctx, s->device, NULL);
    if (status == S24_OK) (void)s->nccl.CommGetAsyncError(s->comm, &result);
    TRY(ended(s, result, "it summed", error));
    *done = 1;
    if (status != S24_OK)
        snprintf(error->text, sizeof error->text, "%.500s", s24_ctx_error(s->ctx));
    return status;
}

static s24_status broadcast(void *state, void *data, size_t bytes, int root, s24i_comm_error *error)
{
    nccl_state *s = state;
    TRY(wait_since(s, s24i_seconds(), error));
    const int result = s->nccl.Broadcast(data, data, bytes, NCCL_UINT8, root, s->comm, NULL);
    return ended(s, result, "it began a broadcast", error);
}

/* The others hear that this connection ends. */
static void leave(void *state, int exit_code)
{
    nccl_state *s = state;
    (void)exit_code;
    pthread_mutex_lock(&s->lock);
    s->over = 1;
    end_calls(s);
    pthread_mutex_unlock(&s->lock);
    if (s->watched) pthread_join(s->watcher, NULL);
    s->watched = 0;
    s24i_meeting_close(&s->meeting, 0);
}

s24_status s24i_comm_find_nccl(s24_comm *comm, s24_ctx *ctx, const s24_comm_opts *opts)
{
    static const s24i_comm_table table = {.abi = S24I_COMM_ABI,
                                          .on_device = 1,
                                          .open = open_nccl,
                                          .place = place,
                                          .reduce = reduce,
                                          .test = test,
                                          .broadcast = broadcast,
                                          .abort = leave,
                                          .close = close_nccl};
    (void)ctx;
    (void)opts;
    comm->table = &table;
    return S24_OK;
}
