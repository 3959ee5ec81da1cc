// SPDX-License-Identifier: Apache-2.0
/*
 * NCCL's functions, looked up in libnccl.so.2 when a communicator asks for them. None of its calls
 * waits for another rank, but what they begin does, for ranks that are gone as for those that are
 * late: so a thread of the communicator watches from before ranks connect, hears who is gone, and
 * ends what NCCL waits for. It alone does: NCCL's end also waits for the graphs that have its sums,
 * which their owners destroy once they have heard of it. Sums have a stream of their own, in which
 * each follows what the device's default stream has when it is begun: that goes on meanwhile; but
 * for those of host memory, which follow nothing, and those that somebody puts into his own stream.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "comm/meeting.h"
#include "device/device_layers.h"

enum { NCCL_ID_BYTES = 128, NCCL_SUM = 0 };
enum { NCCL_UINT8 = 1, NCCL_F16 = 6, NCCL_F32 = 7, NCCL_F64 = 8, NCCL_BF16 = 9 };
enum { NCCL_IN_PROGRESS = 7, NCCL_OLDEST = 21400 };
enum { WATCH_MS = 100, NAP_US = 20, PORT = 29400 };
static const double SPIN = 1e-3; /* seconds: NCCL puts a call into a stream in some microseconds */

/* Handed over by value. */
typedef struct nccl_id {
    char bytes[NCCL_ID_BYTES];
} nccl_id;

/* NCCL's options as its 2.14 has them; later ones read what the version says is there. */
typedef struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} nccl_config;
#define NCCL_MAGIC 0xcafebeefu

typedef struct nccl {
#define NCCL_FUNCTION(name, ...) int (*name)(__VA_ARGS__);
#include "comm/nccl_functions.def"
#undef NCCL_FUNCTION
    const char *(*GetErrorString)(int result);
} nccl;

typedef struct nccl_state {
    nccl nccl;
    s24_ctx *ctx;
    s24_device *device;
    void *stream; /* of the sums */
    /* Of a sum of host memory: pinned, and on the device, room for so many bytes; and whose numbers
       these are, NULL: nobody's. */
    void *pinned, *there, *given;
    size_t room, given_bytes;
    s24i_meeting meeting;
    double patience;
    double since; /* when the first that is not done was begun; 0: all is done */
    pthread_t watcher;
    int watched;          /* is there a watcher? */
    pthread_mutex_t lock; /* of calls with the communicator, and of what follows */
    void *comm;
    int over, gone; /* gone: a rank, S24I_MEETING_NOBODY */
    int ending;     /* the watcher is to end NCCL's calls */
    int aborted;    /* it does, and nobody calls NCCL any more */
    int *halt;      /* NULL, or what is set to 1 then */
} nccl_state;

static void nap(long microseconds)
{
    const struct timespec time = {0, microseconds * 1000};
    nanosleep(&time, NULL);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Whoever calls NCCL holds the lock, and has the device as the thread's current one; *before: what
   that was. IO where the watcher has ended the communicator. */
static s24_status enter(nccl_state *s, int *before, s24i_comm_error *error)
{
    pthread_mutex_lock(&s->lock);
    if (!s->aborted && !s->ending) {
        *before = s24_device_enter(s->device);
        return S24_OK;
    }
    if (s->gone != S24I_MEETING_NOBODY)
        snprintf(error->text, sizeof error->text, "rank %d is gone", s->gone);
    else
        snprintf(error->text, sizeof error->text, "this rank has ended its calls");
    pthread_mutex_unlock(&s->lock);
    return S24_ERROR_IO;
}

static void leave_call(nccl_state *s, int before)
{
    s24_device_leave(s->device, before);
    pthread_mutex_unlock(&s->lock);
}

/* Has the watcher end what NCCL waits for. */
static void end_calls(nccl_state *s)
{
    pthread_mutex_lock(&s->lock);
    s->ending = 1;
    pthread_mutex_unlock(&s->lock);
}

static int gone_of(nccl_state *s)
{
    pthread_mutex_lock(&s->lock);
    const int gone = s->gone;
    pthread_mutex_unlock(&s->lock);
    return gone;
}

/* A call may fail because a rank is gone, of which the watcher hears soon. */
static s24_status said(nccl_state *s, int result, const char *what, s24i_comm_error *error)
{
    if (result == 0 || result == NCCL_IN_PROGRESS) return S24_OK;
    for (int i = 0; s->watched && i < 4 && gone_of(s) == S24I_MEETING_NOBODY; i++)
        nap(WATCH_MS * 1000);
    if (gone_of(s) != S24I_MEETING_NOBODY)
        snprintf(error->text, sizeof error->text, "rank %d is gone", gone_of(s));
    else
        snprintf(error->text, sizeof error->text, "NCCL failed while %s: %.300s", what,
                 s->nccl.GetErrorString(result));
    return S24_ERROR_IO;
}

/* *busy: NCCL is at what was last begun, and takes nothing else. */
static s24_status ask(nccl_state *s, int *busy, const char *what, s24i_comm_error *error)
{
    int before, state = 0;
    TRY(enter(s, &before, error));
    const int result = s->nccl.CommGetAsyncError(s->comm, &state);
    leave_call(s, before);
    *busy = state == NCCL_IN_PROGRESS;
    return said(s, result ? result : state, what, error);
}

/* IO once patience is over, and then no call goes on. */
static s24_status in_time(nccl_state *s, s24i_comm_error *error)
{
    if (s24i_seconds() - s->since <= s->patience) return S24_OK;
    end_calls(s);
    snprintf(error->text, sizeof error->text, "another rank did not come within %g s", s->patience);
    return S24_ERROR_IO;
}

static s24_status settle(nccl_state *s, const char *what, s24i_comm_error *error)
{
    const double began = s24i_seconds();
    int busy = 1;
    for (;;) {
        TRY(ask(s, &busy, what, error));
        if (!busy) return S24_OK;
        TRY(in_time(s, error));
        if (s24i_seconds() - began < SPIN)
            sched_yield();
        else
            nap(NAP_US);
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

/* NCCL stays loaded: threads of its own may still end what was aborted. */
static const char *load(nccl *table, const char *path)
{
    void *symbol, *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return dlerror();
#define NCCL_FUNCTION(name, ...)                                                                   \
    symbol = dlsym(library, "nccl" #name);                                                         \
    if (!symbol) return dlerror();                                                                 \
    memcpy(&table->name, &symbol, sizeof symbol);
#include "comm/nccl_functions.def"
#undef NCCL_FUNCTION
    symbol = dlsym(library, "ncclGetErrorString");
    if (!symbol) return dlerror();
    memcpy(&table->GetErrorString, &symbol, sizeof symbol);
    return NULL;
}

static void *watch(void *opaque)
{
    nccl_state *s = opaque;
    int before;
    for (int over = 0; !over;) {
        const int gone = s24i_meeting_watch(&s->meeting, WATCH_MS);
        pthread_mutex_lock(&s->lock);
        if (gone != S24I_MEETING_NOBODY) s->gone = gone;
        s->aborted = s->ending || (!s->over && s->gone != S24I_MEETING_NOBODY);
        if (s->aborted && s->halt) __atomic_store_n(s->halt, 1, __ATOMIC_RELEASE);
        over = s->over || s->aborted;
        pthread_mutex_unlock(&s->lock);
    }
    if (!s->aborted || !s->comm) return NULL;
    before = s24_device_enter(s->device);
    s->nccl.CommAbort(s->comm);
    s24_device_leave(s->device, before);
    return NULL;
}

/* The first rank's name of the world, for all. */
static s24_status meet(nccl_state *s, nccl_id *id, const s24_comm_opts *o, s24i_comm_error *error)
{
    if (o->rank == 0) {
        const int before = s24_device_enter(s->device), result = s->nccl.GetUniqueId(id);
        s24_device_leave(s->device, before);
        TRY(said(s, result, "naming the world", error));
    }
    TRY(s24i_meeting_open(&s->meeting, o, id, sizeof *id, error));
    s->watched = pthread_create(&s->watcher, NULL, watch, s) == 0;
    if (s->watched) return S24_OK;
    snprintf(error->text, sizeof error->text, "no thread can be started");
    return S24_ERROR_MEMORY;
}

static s24_status begin(nccl_state *s, const s24_comm_opts *o, s24i_comm_error *error)
{
    nccl_config config = {sizeof config, NCCL_MAGIC, NCCL_OLDEST, 0};
    nccl_id id = {{0}};
    int before;
    const char *why = load(&s->nccl, o->library ? o->library : "libnccl.so.2");
    if (why) {
        snprintf(error->text, sizeof error->text, "no NCCL here: %.400s", why);
        return S24_ERROR_UNSUPPORTED;
    }
    const s24_status status = s24_device_stream_create(&s->stream, s->ctx, s->device);
    if (status != S24_OK) {
        snprintf(error->text, sizeof error->text, "%.500s", s24_ctx_error(s->ctx));
        return status;
    }
    TRY(meet(s, &id, o, error));
    s->since = s24i_seconds();
    TRY(enter(s, &before, error));
    const int result = s->nccl.CommInitRankConfig(&s->comm, o->world, id, o->rank, &config);
    leave_call(s, before);
    TRY(said(s, result, "connecting ranks", error));
    TRY(settle(s, "connecting ranks", error));
    s->since = 0;
    return S24_OK;
}

static void free_room(nccl_state *s)
{
    if (s->there) (void)s24_device_free(s->ctx, s->device, s->there, s->stream);
    if (s->pinned) s24_device_pinned_free(s->device, s->pinned);
    s->there = s->pinned = NULL;
    s->room = 0;
}

static void close_nccl(void *state, int broken)
{
    nccl_state *s = state;
    if (broken) end_calls(s);
    pthread_mutex_lock(&s->lock);
    s->over = 1;
    pthread_mutex_unlock(&s->lock);
    if (s->watched) pthread_join(s->watcher, NULL);
    s24i_meeting_close(&s->meeting, !broken);
    if (s->comm && !s->aborted) {
        const int before = s24_device_enter(s->device);
        s->nccl.CommDestroy(s->comm);
        s24_device_leave(s->device, before);
    }
    free_room(s);
    s24_device_stream_destroy(s->device, s->stream);
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

/* What failed on the device, whose sentence is in the context. */
static s24_status device_said(const nccl_state *s, s24_status status, s24i_comm_error *error)
{
    if (status != S24_OK)
        snprintf(error->text, sizeof error->text, "%.500s", s24_ctx_error(s->ctx));
    return status;
}

/* NCCL takes a call, which will follow what is in the default stream. */
static s24_status prepare(nccl_state *s, const char *what, s24i_comm_error *error)
{
    if (s->since == 0) s->since = s24i_seconds();
    TRY(settle(s, what, error));
    return device_said(s, s24_device_stream_follow(s->ctx, s->device, s->stream, NULL), error);
}

/* Of numbers in the device's memory, in the stream that it stands in. */
typedef struct nccl_sum {
    void *data;
    int64_t count;
    int type;
    void *stream;
} nccl_sum;

static s24_status call(nccl_state *s, const nccl_sum *sum, const char *what, s24i_comm_error *error)
{
    int before;
    TRY(enter(s, &before, error));
    const int result = s->nccl.AllReduce(sum->data, sum->data, (size_t)sum->count, sum->type,
                                         NCCL_SUM, s->comm, sum->stream);
    leave_call(s, before);
    return said(s, result, what, error);
}

static const char BEGAN[] = "it began a sum";

static s24_status reduce(void *state, void *data, int64_t count, int f64, s24i_comm_error *error)
{
    nccl_state *s = state;
    const nccl_sum sum = {data, count, f64 ? NCCL_F64 : NCCL_F32, s->stream};
    TRY(prepare(s, BEGAN, error));
    return call(s, &sum, BEGAN, error);
}

static s24_status make_room(nccl_state *s, size_t bytes, s24i_comm_error *error)
{
    if (bytes <= s->room) return S24_OK;
    free_room(s);
    s24_status status = s24_device_pinned_alloc(&s->pinned, s->ctx, s->device, bytes);
    if (status == S24_OK) status = s24_device_alloc(&s->there, s->ctx, s->device, bytes, s->stream);
    if (status == S24_OK) s->room = bytes;
    return device_said(s, status, error);
}

static s24_status copy(nccl_state *s, void *to, const void *from, size_t bytes,
                       s24i_comm_error *error)
{
    return device_said(s, s24_device_copy(s->ctx, s->device, to, from, bytes, s->stream), error);
}

/* By way of the device, in the sums' stream; `test` hands back what is there. */
static s24_status reduce_host(void *state, void *data, int64_t count, int f64,
                              s24i_comm_error *error)
{
    nccl_state *s = state;
    const size_t bytes = (size_t)count * (f64 ? sizeof(double) : sizeof(float));
    if (s->since == 0) s->since = s24i_seconds();
    TRY(settle(s, BEGAN, error));
    TRY(make_room(s, bytes, error));
    const nccl_sum sum = {s->there, count, f64 ? NCCL_F64 : NCCL_F32, s->stream};
    memcpy(s->pinned, data, bytes);
    TRY(copy(s, s->there, s->pinned, bytes, error));
    TRY(call(s, &sum, BEGAN, error));
    TRY(settle(s, BEGAN, error)); /* it is in the stream */
    TRY(copy(s, s->pinned, s->there, bytes, error));
    s->given = data;
    s->given_bytes = bytes;
    return S24_OK;
}

static s24_status follow(void *state, s24i_comm_error *error)
{
    nccl_state *s = state;
    TRY(settle(s, BEGAN, error));
    return device_said(s, s24_device_stream_follow(s->ctx, s->device, NULL, s->stream), error);
}

static s24_status broadcast(void *state, void *data, size_t bytes, int root, s24i_comm_error *error)
{
    static const char what[] = "it began a broadcast";
    nccl_state *s = state;
    int before;
    TRY(prepare(s, what, error));
    TRY(enter(s, &before, error));
    const int result = s->nccl.Broadcast(data, data, bytes, NCCL_UINT8, root, s->comm, s->stream);
    leave_call(s, before);
    return said(s, result, what, error);
}

static s24_status test(void *state, int *done, s24i_comm_error *error)
{
    nccl_state *s = state;
    int busy;
    *done = 0;
    TRY(ask(s, &busy, "it summed", error));
    if (!busy)
        TRY(device_said(s, s24_device_stream_done(done, s->ctx, s->device, s->stream), error));
    if (!*done) return in_time(s, error);
    if (s->given) memcpy(s->given, s->pinned, s->given_bytes);
    s->given = NULL;
    s->since = 0;
    return S24_OK;
}

/* In the stream it stands after what is there and before what comes next: NCCL puts it there in a
   thread of its own, which is waited for. */
static s24_status enqueue(void *state, void *data, int64_t count, s24_dtype dtype, void *stream,
                          s24i_comm_error *error)
{
    static const char what[] = "it put a sum into a stream";
    nccl_state *s = state;
    const double since = s->since;
    const nccl_sum sum = {data, count, dtype == S24_F16 ? NCCL_F16 : NCCL_BF16, stream};
    if (s->since == 0) s->since = s24i_seconds();
    TRY(settle(s, what, error));
    TRY(call(s, &sum, what, error));
    TRY(settle(s, what, error));
    s->since = since;
    return S24_OK;
}

static void halts(void *state, int *flag)
{
    nccl_state *s = state;
    pthread_mutex_lock(&s->lock);
    s->halt = flag;
    if (s->aborted && flag) *flag = 1;
    pthread_mutex_unlock(&s->lock);
}

/* The others hear that this connection ends, once the watcher does not listen to theirs. */
static void leave(void *state, int exit_code)
{
    nccl_state *s = state;
    (void)exit_code;
    end_calls(s);
    for (int heard = !s->watched; !heard; nap(WATCH_MS)) {
        pthread_mutex_lock(&s->lock);
        heard = s->aborted;
        pthread_mutex_unlock(&s->lock);
    }
    s24i_meeting_close(&s->meeting, 0);
}

s24_status s24i_comm_find_nccl(s24_comm *comm, s24_ctx *ctx, const s24_comm_opts *opts)
{
    static const s24i_comm_table table = {.abi = S24I_COMM_ABI,
                                          .on_device = 1,
                                          .open = open_nccl,
                                          .place = place,
                                          .reduce = reduce,
                                          .reduce_host = reduce_host,
                                          .follow = follow,
                                          .test = test,
                                          .broadcast = broadcast,
                                          .enqueue = enqueue,
                                          .halts = halts,
                                          .abort = leave,
                                          .close = close_nccl};
    (void)ctx;
    (void)opts;
    comm->table = &table;
    return S24_OK;
}
