/* Threads that share the loops of a run. They spin while a call runs and half a millisecond longer,
   and sleep otherwise. Whoever is awake claims one chunk of a loop after the other, the caller among
   them; nobody waits for a thread that has claimed nothing. One call runs at a time. */

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

enum { CHUNKS_PER_WORKER = 4, SPINS = 256, LINGER_NS = 500000 };

/* Of the state's bits: chunks that other threads than the caller are at, chunks that nobody has
   claimed, and how many workers may claim one. */
enum { RUNNING = 1, LEFT = 1 << 10, LIMIT = 1 << 22 };

static struct {
    unsigned state __attribute__((aligned(128)));
    niello_body *body;
    void *argument;
    i64 count;
    i64 chunks;
} loop;

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    int asleep, active, stop;
    /* With the caller, who is worker 0; nothing before the first call. */
    unsigned workers;
    pid_t process;
    pthread_t threads[THREADS];
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static void run_chunk(i64 chunk, usize worker) {
    const i64 size = loop.count / loop.chunks, longer = loop.count % loop.chunks;
    const i64 begin = chunk * size + (chunk < longer ? chunk : longer);
    loop.body(loop.argument, begin, begin + size + (chunk < longer), worker);
}

/* Claims a chunk: the number of chunks that were left, or 0. */
static i64 claim(usize worker, unsigned running) {
    unsigned state = __atomic_load_n(&loop.state, __ATOMIC_RELAXED);
    while (state % LIMIT / LEFT > 0 && worker < state / LIMIT) {
        if (__atomic_compare_exchange_n(&loop.state, &state, state - LEFT + running, 1,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return state % LIMIT / LEFT;
    }
    return 0;
}

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static i64 nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (i64)1000000000 + now.tv_nsec;
}

static void *work(void *number) {
    const usize worker = (usize)number;
    i64 idle_since = 0;
    while (!__atomic_load_n(&pool.stop, __ATOMIC_RELAXED)) {
        for (int spin = 0; spin < SPINS; spin++) {
            const i64 left = claim(worker, RUNNING);
            if (left) {
                run_chunk(loop.chunks - left, worker);
                __atomic_fetch_sub(&loop.state, RUNNING, __ATOMIC_RELEASE);
                idle_since = 0;
            }
            pause_briefly();
        }
        if (__atomic_load_n(&pool.active, __ATOMIC_RELAXED)) {
            idle_since = 0;
        } else if (!idle_since) {
            idle_since = nanoseconds();
        } else if (nanoseconds() - idle_since >= LINGER_NS) {
            pthread_mutex_lock(&pool.mutex);
            pool.asleep++;
            while (!pool.active && !pool.stop)
                pthread_cond_wait(&pool.wake, &pool.mutex);
            pool.asleep--;
            pthread_mutex_unlock(&pool.mutex);
            idle_since = 0;
        }
    }
    return 0;
}

static void run_loop(void *unused, niello_body *body, void *argument, i64 count) {
    (void)unused;
    const i64 most = (i64)pool.workers * CHUNKS_PER_WORKER;
    const i64 chunks = count < most ? count : most;
    if (pool.workers <= 1 || chunks <= 1) {
        if (count > 0)
            body(argument, 0, count, 0);
        return;
    }
    loop.body = body, loop.argument = argument, loop.count = count, loop.chunks = chunks;
    __atomic_store_n(&loop.state, pool.workers * LIMIT + (unsigned)(chunks - 1) * LEFT,
                     __ATOMIC_RELEASE);
    for (i64 left = chunks; left; left = claim(0, 0))
        run_chunk(chunks - left, 0);
    for (unsigned spins = 1; __atomic_load_n(&loop.state, __ATOMIC_ACQUIRE) % LEFT; spins++) {
        if (spins % SPINS)
            pause_briefly();
        else
            sched_yield();
    }
}

/* Processors that the process may use. */
static long processors(void) {
#ifdef __linux__
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set))
        return CPU_COUNT(&set);
#endif
    return sysconf(_SC_NPROCESSORS_ONLN);
}

/* Starts the threads at the first call, and anew in the child of a fork, which has none. */
static void begin(void) {
    if (!pool.workers || pool.process != getpid()) {
        const long most = processors();
        pool.workers = 1, pool.process = getpid(), pool.asleep = 0, loop.state = 0;
        while (pool.workers < THREADS && pool.workers < (unsigned long)most) {
            const usize number = pool.workers;
            if (pthread_create(&pool.threads[number], 0, work, (void *)number))
                break;
            pool.workers++;
        }
    }
    pthread_mutex_lock(&pool.mutex);
    __atomic_store_n(&pool.active, 1, __ATOMIC_RELAXED);
    if (pool.asleep)
        pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.mutex);
}

static void end(void) {
    __atomic_store_n(&pool.active, 0, __ATOMIC_RELAXED);
}

/* The code of the threads goes with the library. */
__attribute__((destructor)) static void stop(void) {
    if (!pool.workers || pool.process != getpid())
        return;
    pthread_mutex_lock(&pool.mutex);
    __atomic_store_n(&pool.stop, 1, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.mutex);
    for (unsigned worker = 1; worker < pool.workers; worker++)
        pthread_join(pool.threads[worker], 0);
}
