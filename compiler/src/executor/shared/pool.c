/* Threads that share the loops of a run. They spin while a call runs and half a millisecond longer,
   and sleep otherwise. Each worker has a part of a loop, the same in every loop, so that it finds in its
   cache what it has written before. Whoever is awake claims a part, runs one chunk of it after the
   other, and goes on with what is left of the others, the caller among them; nobody waits for a thread
   that has claimed nothing. One call runs at a time. */

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CHUNKS_PER_WORKER = 4, SPINS = 256, LINGER_NS = 500000 };

/* Of the state's bits: how many threads beside the caller are at the loop, how many more may begin, and
   how many workers share it. */
enum { RUNNING = 1, LEFT = 1 << 10, LIMIT = 1 << 22 };

static struct {
    unsigned state __attribute__((aligned(128)));
    niello_body *body;
    void *argument;
    i64 count;
    i64 chunks;
    i64 parts;
    /* How many chunks of each part somebody has claimed, or more if there are no more: each in a line
       of memory of its own. */
    struct {
        i64 chunks __attribute__((aligned(128)));
    } claimed[THREADS];
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

/* Runs what is left of a part. */
static void finish_part(i64 part, usize worker) {
    const i64 size = loop.chunks / loop.parts, longer = loop.chunks % loop.parts;
    const i64 first = part * size + (part < longer ? part : longer);
    const i64 count = size + (part < longer);
    i64 *const claimed = &loop.claimed[part].chunks;
    while (__atomic_load_n(claimed, __ATOMIC_RELAXED) < count) {
        const i64 chunk = __atomic_fetch_add(claimed, 1, __ATOMIC_RELAXED);
        if (chunk < count)
            run_chunk(first + chunk, worker);
    }
}

/* Runs chunks until none is left, those of the worker's own part first. */
static void share(usize worker) {
    for (i64 place = 0; place < loop.parts; place++)
        finish_part(((i64)worker + place) % loop.parts, worker);
}

/* Begins to share the loop, unless all who may have begun. */
static int join(usize worker) {
    unsigned state = __atomic_load_n(&loop.state, __ATOMIC_RELAXED);
    while (state % LIMIT / LEFT > 0 && worker < state / LIMIT) {
        if (__atomic_compare_exchange_n(&loop.state, &state, state - LEFT + RUNNING, 1,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return 1;
    }
    return 0;
}

/* Lets nobody begin any more. */
static void close_loop(void) {
    unsigned state = __atomic_load_n(&loop.state, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&loop.state, &state, state % LEFT, 1, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
    }
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
            if (join(worker)) {
                share(worker);
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
    loop.parts = chunks < pool.workers ? chunks : pool.workers;
    for (i64 part = 0; part < loop.parts; part++)
        __atomic_store_n(&loop.claimed[part].chunks, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&loop.state, pool.workers * LIMIT + (unsigned)(loop.parts - 1) * LEFT,
                     __ATOMIC_RELEASE);
    share(0);
    close_loop();
    for (unsigned spins = 1; __atomic_load_n(&loop.state, __ATOMIC_ACQUIRE) % LEFT; spins++) {
        if (spins % SPINS)
            pause_briefly();
        else
            sched_yield();
    }
}

#ifdef __linux__
/* How many of so many processors the control groups (version 2) of the process have time for: its own
   group and those around it. */
static long within_quota(long most) {
    static const char mount[] = "/sys/fs/cgroup";
    const size_t root = sizeof mount - 1;
    char line[3072], path[4096];
    FILE *file = fopen("/proc/self/cgroup", "r");
    int is_found = 0;
    while (file && !is_found && fgets(line, sizeof line, file))
        is_found = !strncmp(line, "0::/", 4);
    if (file)
        fclose(file);
    if (!is_found)
        return most;
    line[strcspn(line, "\n")] = 0;
    for (int length = sprintf(path, "%s%s", mount, line + 3);;) {
        long quota, period;
        while ((size_t)length > root && path[length - 1] == '/')
            length--;
        strcpy(path + length, "/cpu.max");
        if ((file = fopen(path, "r"))) {
            if (fscanf(file, "%ld %ld", &quota, &period) == 2 && period > 0 && quota / period < most)
                most = quota < period ? 1 : quota / period;
            fclose(file);
        }
        if ((size_t)length <= root)
            return most;
        while (path[length - 1] != '/')
            length--;
    }
}
#endif

/* Processors that the process may use. */
static long processors(void) {
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
    cpu_set_t set;
    return within_quota(sched_getaffinity(0, sizeof set, &set) ? online : CPU_COUNT(&set));
#else
    return online;
#endif
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
