// Blocks in parallel. A process has one pool of threads however many kernels it loads: each library carries this code,
// and the launcher points all of them at the pool of the first one (`pool_hook`).
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

namespace tile {

// Runs `body(context, begin, end, scratch)` over [0, count), every worker with scratch memory of its own.
using Body = void (*)(void* context, int64_t begin, int64_t end, char* scratch);
using ParallelFor = void (*)(int64_t count, size_t scratch_bytes, int threads, Body body, void* context);

struct Pool {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // guards what follows
    pthread_cond_t work = PTHREAD_COND_INITIALIZER;
    pthread_cond_t done = PTHREAD_COND_INITIALIZER;
    int workers = 0;       // started threads
    int wanted = 0;        // workers that may still join the current job
    int active = 0;        // workers inside the current job
    bool busy = false;     // a job is running: a second caller does its work alone
    pid_t process = 0;     // a forked child has the memory of the pool but none of its threads
    Body body = nullptr;
    void* context = nullptr;
    size_t scratch_bytes = 0;
    int64_t count = 0, chunk = 1;
    int64_t next = 0;      // first index nobody has taken; atomic
};

// Memory of one thread, grown when a kernel needs more and kept for the next one.
struct Scratch {
    char* data = nullptr;
    size_t bytes = 0;
    char* at_least(size_t wanted) {
        if (wanted > bytes) {
            free(data);
            bytes = (wanted + 4095) / 4096 * 4096;
            data = static_cast<char*>(aligned_alloc(64, bytes));
            if (data == nullptr) abort();  // as a failed stack growth would: there is nobody to tell
        }
        return data;
    }
};

// Global scratch memory of a kernel, freed where its block ends.
struct Workspace {
    void* data;
    explicit Workspace(int64_t bytes) : data(aligned_alloc(64, (bytes < 1 ? 1 : (bytes + 63) / 64) * 64)) {}
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;
    ~Workspace() { free(data); }
};

inline void free_scratch(void* scratch) {
    free(static_cast<Scratch*>(scratch)->data);
    free(scratch);
}

// The scratch of a thread that launches kernels, freed when it ends. (A thread_local object with a destructor would need
// the C++ library, and this file needs only C's.)
inline Scratch& caller_scratch() {
    static pthread_key_t key;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, [] { pthread_key_create(&key, free_scratch); });
    Scratch* scratch = static_cast<Scratch*>(pthread_getspecific(key));
    if (scratch == nullptr) {
        scratch = static_cast<Scratch*>(calloc(1, sizeof(Scratch)));
        if (scratch == nullptr || pthread_setspecific(key, scratch) != 0) abort();
    }
    return *scratch;
}

inline void take_chunks(Pool& pool, char* scratch) {
    for (;;) {
        const int64_t begin = __atomic_fetch_add(&pool.next, pool.chunk, __ATOMIC_RELAXED);
        if (begin >= pool.count) return;
        const int64_t end = begin + pool.chunk < pool.count ? begin + pool.chunk : pool.count;
        pool.body(pool.context, begin, end, scratch);
    }
}

inline void* worker_main(void* argument) {
    Pool& pool = *static_cast<Pool*>(argument);
    Scratch scratch;
    pthread_mutex_lock(&pool.mutex);
    for (;;) {
        while (pool.wanted == 0) pthread_cond_wait(&pool.work, &pool.mutex);
        --pool.wanted;
        ++pool.active;
        pthread_mutex_unlock(&pool.mutex);
        take_chunks(pool, scratch.at_least(pool.scratch_bytes));
        pthread_mutex_lock(&pool.mutex);
        if (--pool.active == 0) pthread_cond_signal(&pool.done);
    }
}

inline Pool*& process_pool() {
    static Pool* pool = nullptr;
    return pool;
}

// The pool of this process, with nobody else using it and up to `workers` threads started; null when it is in use.
inline Pool* claim_pool(int workers) {
    static pthread_mutex_t creating = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&creating);
    Pool*& pool = process_pool();
    if (pool == nullptr || pool->process != getpid()) {
        pool = static_cast<Pool*>(malloc(sizeof(Pool)));  // never freed: its threads outlive every kernel
        if (pool == nullptr) abort();
        const Pool fresh;
        memcpy(static_cast<void*>(pool), &fresh, sizeof(Pool));
        pool->process = getpid();
    }
    Pool* mine = pool;
    pthread_mutex_unlock(&creating);
    pthread_mutex_lock(&mine->mutex);
    if (mine->busy) {
        pthread_mutex_unlock(&mine->mutex);
        return nullptr;
    }
    mine->busy = true;
    for (; mine->workers < workers; ++mine->workers) {
        pthread_t thread;
        if (pthread_create(&thread, nullptr, worker_main, mine) != 0) break;  // fewer threads do the same work
        pthread_detach(thread);
    }
    pthread_mutex_unlock(&mine->mutex);
    return mine;
}

inline int64_t nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
}

// Waking a thread costs some microseconds: the first block is run and timed, and the others are shared out only when
// they will take longer than this.
constexpr int64_t worth_sharing_ns = 20000;

inline void parallel_for(int64_t count, size_t scratch_bytes, int threads, Body body, void* context) {
    if (count <= 0) return;
    char* scratch = caller_scratch().at_least(scratch_bytes);
    const int64_t started = nanoseconds();
    body(context, 0, 1, scratch);
    const int64_t rest = count - 1, block_ns = nanoseconds() - started;
    const int helpers = int(rest < threads ? rest : threads) - 1;
    Pool* pool = helpers > 0 && block_ns * rest > worth_sharing_ns ? claim_pool(helpers) : nullptr;
    if (pool == nullptr) {
        if (rest > 0) body(context, 1, count, scratch);
        return;
    }
    pthread_mutex_lock(&pool->mutex);
    pool->body = body;
    pool->context = context;
    pool->scratch_bytes = scratch_bytes;
    pool->count = count;
    pool->next = 1;
    // Chunks small enough to even out, large enough that taking one costs nothing beside it.
    const int64_t even = rest / (4 * (helpers + 1));
    pool->chunk = even < 1 ? 1 : even;
    pool->wanted = helpers < pool->workers ? helpers : pool->workers;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    take_chunks(*pool, scratch);
    pthread_mutex_lock(&pool->mutex);
    pool->wanted = 0;  // whoever has not woken yet finds nothing to do
    while (pool->active > 0) pthread_cond_wait(&pool->done, &pool->mutex);
    pool->busy = false;
    pthread_mutex_unlock(&pool->mutex);
}

struct PoolHook {
    ParallelFor run = parallel_for;
    int threads = 1;
};
inline PoolHook pool_hook;

// The first failed assertion of a launch; blocks that have not started are then skipped.
struct Status {
    const char* message = nullptr;
    void fail(const char* text) {
        const char* expected = nullptr;
        __atomic_compare_exchange_n(&message, &expected, text, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }
    bool failed() const { return __atomic_load_n(&message, __ATOMIC_ACQUIRE) != nullptr; }
};

// Calls block(index, scratch) for every index of the grid.
template <class Block>
inline void for_each_block(int64_t count, size_t scratch_bytes, const Status& status, Block block) {
    struct Job {
        const Status& status;
        Block& block;
    } job{status, block};
    const Body body = [](void* context, int64_t begin, int64_t end, char* scratch) {
        Job& job = *static_cast<Job*>(context);
        for (int64_t index = begin; index < end && !job.status.failed(); ++index) job.block(index, scratch);
    };
    pool_hook.run(count, scratch_bytes, pool_hook.threads, body, &job);
}

}  // namespace tile
