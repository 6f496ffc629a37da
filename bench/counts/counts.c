/*
 * Counts what a server does for a request: allocations, copied bytes and system calls, by the library that asked for them.
 *
 * Loaded in front of the C library (LD_PRELOAD), it stands in for malloc and its kin, memcpy, memmove, and the wrappers of the
 * system calls a server makes while it serves. Each call is attributed by its return address. Counters live in a file that is
 * mapped shared; the bench reads it before and after a number of requests and knows the layout from the file itself.
 *
 * Does not see: copies that the compiler wrote out as moves (a few dozen bytes; larger ones are calls), loops that convert while
 * they copy, and system calls that the C library makes for itself (locks of pthread, arenas of malloc). The kernel's own count,
 * taken beside this one, has the last.
 *
 * Nothing here allocates or takes a lock while it counts, except for the one pass over the loaded libraries that the bench asks
 * for by a new generation number, before it measures.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

enum image { OURS, ONNXRUNTIME, REST, IMAGES };

/* What is counted: number of calls, and bytes where a call has some. `copy_4k` counts copies of 4 KiB and more a second time. */
#define KINDS(X)                                                                                                             \
    X(malloc) X(calloc) X(realloc) X(aligned) X(memcpy) X(memmove) X(copy_4k)                                                 \
    X(read) X(readv) X(recv) X(recvfrom) X(recvmsg) X(write) X(writev) X(send) X(sendto) X(sendmsg)                           \
    X(epoll_wait) X(epoll_ctl) X(poll) X(accept) X(close) X(shutdown) X(mmap) X(munmap) X(madvise)                            \
    X(sched_yield) X(nanosleep) X(futex) X(syscall)

#define NAMED(name) K_##name,
enum kind { KINDS(NAMED) KIND_COUNT };
enum { FIRST_SYSTEM_CALL = K_read, SITES = 4096, FRAMES = 16, NAME = 16, LARGE = 4096 };

struct counter { uint64_t calls, bytes; };
/* A stack, from the innermost of our frames outwards, as offsets into our library. */
struct site { uint64_t hash, kind, calls, bytes, frames[FRAMES]; };

static struct shared {
    uint64_t magic, generation, ready, allocation_period, copy_period, sites_dropped;
    uint64_t kinds, images, sites, frames, first_system_call, names_at, counters_at, sites_at;
    char names[KIND_COUNT][NAME];
    struct counter counters[IMAGES][KIND_COUNT];
    struct site site[SITES];
} *shared;

struct range { uintptr_t from, to; };
static struct range ranges[2];
static uintptr_t ours_base;
static uint64_t scanned;
static const char *ours_name, *onnxruntime_name = "libonnxruntime";
static __thread int busy __attribute__((tls_model("initial-exec")));

#define LOAD(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define ADD(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)

/* glibc's own entry points, so that finding the real functions needs no allocation. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static int note_library(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size, (void)data;
    const char *name = info->dlpi_name == NULL ? "" : info->dlpi_name;
    int image = strstr(name, ours_name) != NULL ? OURS : strstr(name, onnxruntime_name) != NULL ? ONNXRUNTIME : REST;
    if (image == REST) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X)) continue;
        ranges[image].from = info->dlpi_addr + segment->p_vaddr;
        ranges[image].to = ranges[image].from + segment->p_memsz;
        if (image == OURS) ours_base = info->dlpi_addr;
    }
    return 0;
}

/* True while counting is on and the libraries of this generation are known. Whoever comes first looks them up. */
static int counting(void) {
    if (shared == NULL || busy) return 0;
    uint64_t wanted = LOAD(&shared->generation);
    if (wanted == 0) return 0;
    if (LOAD(&shared->ready) == wanted) return 1;
    uint64_t last = LOAD(&scanned);
    if (last == wanted || !__atomic_compare_exchange_n(&scanned, &last, wanted, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return 0;
    int error = errno;
    busy = 1;
    dl_iterate_phdr(note_library, NULL);
    busy = 0;
    errno = error;
    STORE(&shared->ready, wanted);
    return 0;
}

static enum image image_of(uintptr_t caller) {
    for (int i = 0; i < REST; i++)
        if (caller >= ranges[i].from && caller < ranges[i].to) return i;
    return REST;
}

struct trace { uint64_t frames[FRAMES]; int count; };

static _Unwind_Reason_Code note_frame(struct _Unwind_Context *context, void *data) {
    struct trace *trace = data;
    uintptr_t at = _Unwind_GetIP(context);
    if (at >= ranges[OURS].from && at < ranges[OURS].to) trace->frames[trace->count++] = at - 1 - ours_base;
    return trace->count < FRAMES ? _URC_NO_REASON : _URC_END_OF_STACK;
}

/*
 * Takes the stack of every so many calls: each costs microseconds, and a server that believes its model to be slow takes other
 * ways. A stack stands for as many calls as the period; periods share no divisor with what a request does, so all are met.
 */
static void note_site(enum kind kind, size_t bytes) {
    static uint64_t allocations, copies;
    int is_copy = kind >= K_memcpy;
    uint64_t period = LOAD(is_copy ? &shared->copy_period : &shared->allocation_period);
    if (period == 0 || ADD(is_copy ? &copies : &allocations, 1) % period != 0) return;
    struct trace trace = {.count = 0};
    busy = 1;
    _Unwind_Backtrace(note_frame, &trace);
    busy = 0;
    uint64_t hash = 14695981039346656037u ^ kind;
    for (int i = 0; i < trace.count; i++) hash = (hash ^ trace.frames[i]) * 1099511628211u;
    hash |= 1;
    for (uint64_t i = 0; i < SITES; i++) {
        struct site *site = &shared->site[(hash + i) % SITES];
        uint64_t held = LOAD(&site->hash);
        if (held == 0 && __atomic_compare_exchange_n(&site->hash, &held, hash, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            site->kind = kind;
            for (int k = 0; k < trace.count; k++) site->frames[k] = trace.frames[k];
            held = hash;
        }
        if (held != hash) continue;
        ADD(&site->calls, period);
        ADD(&site->bytes, bytes * period);
        return;
    }
    ADD(&shared->sites_dropped, 1);
}

static void count(enum kind kind, size_t bytes, const void *caller) {
    if (!counting()) return;
    enum image image = image_of((uintptr_t)caller);
    struct counter *counter = &shared->counters[image][kind];
    ADD(&counter->calls, 1);
    ADD(&counter->bytes, bytes);
    if (kind <= K_memmove && image == OURS) note_site(kind, bytes);
    if ((kind == K_memcpy || kind == K_memmove) && bytes >= LARGE) {
        ADD(&shared->counters[image][K_copy_4k].calls, 1);
        ADD(&shared->counters[image][K_copy_4k].bytes, bytes);
    }
}

#define CALLER __builtin_return_address(0)
#define EXPORT __attribute__((visibility("default")))

EXPORT void *malloc(size_t n) {
    count(K_malloc, n, CALLER);
    return __libc_malloc(n);
}

EXPORT void *calloc(size_t n, size_t size) {
    count(K_calloc, n * size, CALLER);
    return __libc_calloc(n, size);
}

EXPORT void *realloc(void *old, size_t n) {
    count(K_realloc, n, CALLER);
    return __libc_realloc(old, n);
}

EXPORT int posix_memalign(void **out, size_t alignment, size_t n) {
    count(K_aligned, n, CALLER);
    if (alignment % sizeof(void *) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
    int error = errno;
    void *found = __libc_memalign(alignment, n);
    errno = error;
    if (found == NULL) return ENOMEM;
    *out = found;
    return 0;
}

EXPORT void *aligned_alloc(size_t alignment, size_t n) {
    count(K_aligned, n, CALLER);
    return __libc_memalign(alignment, n);
}

EXPORT void *memalign(size_t alignment, size_t n) {
    count(K_aligned, n, CALLER);
    return __libc_memalign(alignment, n);
}

/*
 * operator new, so that what C++ asks for counts for the library that asked and not for the one that has the operator. Only the
 * forms that libonnxruntime imports. The real ones throw when memory is gone; under a bench ending is as good.
 */
static void *or_end(void *found) {
    if (found == NULL) abort();
    return found;
}

EXPORT void *_Znwm(size_t n) {
    count(K_malloc, n, CALLER);
    return or_end(__libc_malloc(n));
}

EXPORT void *_ZnwmRKSt9nothrow_t(size_t n, const void *tag) {
    (void)tag;
    count(K_malloc, n, CALLER);
    return __libc_malloc(n);
}

EXPORT void *_ZnwmSt11align_val_t(size_t n, size_t alignment) {
    count(K_aligned, n, CALLER);
    return or_end(__libc_memalign(alignment, n));
}

/* The real functions: before the constructor has found them, copies are made a byte at a time. */
static void *(*real_memcpy)(void *, const void *, size_t);
static void *(*real_memmove)(void *, const void *, size_t);

static void *slow_move(void *to, const void *from, size_t n) {
    volatile unsigned char *t = to;
    const volatile unsigned char *f = from;
    if ((uintptr_t)to <= (uintptr_t)from)
        for (size_t i = 0; i < n; i++) t[i] = f[i];
    else
        for (size_t i = n; i > 0; i--) t[i - 1] = f[i - 1];
    return to;
}

EXPORT void *memcpy(void *restrict to, const void *restrict from, size_t n) {
    if (real_memcpy == NULL) return slow_move(to, from, n);
    count(K_memcpy, n, CALLER);
    return real_memcpy(to, from, n);
}

EXPORT void *memmove(void *to, const void *from, size_t n) {
    if (real_memmove == NULL) return slow_move(to, from, n);
    count(K_memmove, n, CALLER);
    return real_memmove(to, from, n);
}

/* A wrapper of a system call: found when it is first used, counted when it returns, since only then are its bytes known. */
#define REAL(name, result, ...)                                                                                              \
    static result (*real)(__VA_ARGS__);                                                                                      \
    if (LOAD(&real) == NULL) STORE(&real, (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))
#define DONE(kind, result) (count(kind, (result) > 0 ? (size_t)(result) : 0, CALLER), (result))
#define WITHOUT_BYTES(kind, result) (count(kind, 0, CALLER), (result))

#define MOVES(name, kind, parameters, ...)                                                                                   \
    EXPORT ssize_t name parameters {                                                                                         \
        REAL(name, ssize_t, TYPES parameters);                                                                               \
        ssize_t got = real(__VA_ARGS__);                                                                                     \
        return DONE(kind, got);                                                                                              \
    }
#define CALLS(name, kind, parameters, ...)                                                                                   \
    EXPORT int name parameters {                                                                                             \
        REAL(name, int, TYPES parameters);                                                                                   \
        int got = real(__VA_ARGS__);                                                                                         \
        return WITHOUT_BYTES(kind, got);                                                                                     \
    }
#define TYPES(...) __VA_ARGS__

MOVES(read, K_read, (int fd, void *to, size_t n), fd, to, n)
MOVES(readv, K_readv, (int fd, const struct iovec *v, int n), fd, v, n)
MOVES(recv, K_recv, (int fd, void *to, size_t n, int flags), fd, to, n, flags)
MOVES(recvfrom, K_recvfrom, (int fd, void *to, size_t n, int flags, struct sockaddr *a, socklen_t *l), fd, to, n, flags, a, l)
MOVES(recvmsg, K_recvmsg, (int fd, struct msghdr *m, int flags), fd, m, flags)
MOVES(write, K_write, (int fd, const void *from, size_t n), fd, from, n)
MOVES(writev, K_writev, (int fd, const struct iovec *v, int n), fd, v, n)
MOVES(send, K_send, (int fd, const void *from, size_t n, int flags), fd, from, n, flags)
MOVES(sendto, K_sendto, (int fd, const void *from, size_t n, int flags, const struct sockaddr *a, socklen_t l), fd, from, n, flags, a, l)
MOVES(sendmsg, K_sendmsg, (int fd, const struct msghdr *m, int flags), fd, m, flags)
CALLS(epoll_wait, K_epoll_wait, (int fd, struct epoll_event *e, int n, int ms), fd, e, n, ms)
CALLS(epoll_pwait, K_epoll_wait, (int fd, struct epoll_event *e, int n, int ms, const sigset_t *s), fd, e, n, ms, s)
CALLS(epoll_ctl, K_epoll_ctl, (int fd, int op, int of, struct epoll_event *e), fd, op, of, e)
CALLS(poll, K_poll, (struct pollfd *p, nfds_t n, int ms), p, n, ms)
CALLS(accept, K_accept, (int fd, struct sockaddr *a, socklen_t *l), fd, a, l)
CALLS(accept4, K_accept, (int fd, struct sockaddr *a, socklen_t *l, int flags), fd, a, l, flags)
CALLS(close, K_close, (int fd), fd)
CALLS(shutdown, K_shutdown, (int fd, int how), fd, how)
CALLS(munmap, K_munmap, (void *at, size_t n), at, n)
CALLS(madvise, K_madvise, (void *at, size_t n, int advice), at, n, advice)
CALLS(nanosleep, K_nanosleep, (const struct timespec *t, struct timespec *rest), t, rest)
CALLS(clock_nanosleep, K_nanosleep, (clockid_t c, int flags, const struct timespec *t, struct timespec *rest), c, flags, t, rest)

EXPORT int sched_yield(void) {
    REAL(sched_yield, int, void);
    int got = real();
    return WITHOUT_BYTES(K_sched_yield, got);
}

EXPORT void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    REAL(mmap, void *, void *, size_t, int, int, int, off_t);
    count(K_mmap, n, CALLER);
    return real(at, n, protection, flags, fd, offset);
}

EXPORT void *mmap64(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    REAL(mmap64, void *, void *, size_t, int, int, int, off_t);
    count(K_mmap, n, CALLER);
    return real(at, n, protection, flags, fd, offset);
}

/* Rust waits on futexes through this one. Counted before: a thread that waits for work would be counted much too late. */
EXPORT long syscall(long number, ...) {
    REAL(syscall, long, long, ...);
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(rest, long);
    va_end(rest);
    count(number == SYS_futex ? K_futex : K_syscall, 0, CALLER);
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

__attribute__((constructor)) static void begin(void) {
    real_memmove = (void *(*)(void *, const void *, size_t))dlsym(RTLD_NEXT, "memmove");
    /* Without a version the oldest memcpy is found, which is memmove; the server is bound to the newer one. */
    real_memcpy = (void *(*)(void *, const void *, size_t))dlvsym(RTLD_NEXT, "memcpy", "GLIBC_2.14");
    if (real_memcpy == NULL) real_memcpy = (void *(*)(void *, const void *, size_t))dlsym(RTLD_NEXT, "memcpy");
    const char *path = getenv("BENCH_COUNTS_FILE");
    ours_name = getenv("BENCH_COUNTS_OURS");
    if (path == NULL || ours_name == NULL) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0) return;
    struct shared *map = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return;
    map->kinds = KIND_COUNT;
    map->images = IMAGES;
    map->sites = SITES;
    map->frames = FRAMES;
    map->first_system_call = FIRST_SYSTEM_CALL;
    map->names_at = offsetof(struct shared, names);
    map->counters_at = offsetof(struct shared, counters);
    map->sites_at = offsetof(struct shared, site);
#define NAME_OF(name) strncpy(map->names[K_##name], #name, NAME - 1);
    KINDS(NAME_OF)
    STORE(&shared, map);
    /* Last: the layout is complete when the reader sees it. */
    STORE(&map->magic, 0x31544e554f43u);
}
