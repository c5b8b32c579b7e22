// Stores, and has the kernel write, into memory that may be protected while predictions are open,
// and checks the effects. Prints each fault, and at the end "as it should be"; without runahead
// "no session".
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <runahead_speculate.h>

#define PAGE 4096l
#define MB (1l << 20)

static int failures;

static void is(long seen, long wanted, const char *what) {
    if (seen == wanted)
        return;
    failures++;
    fprintf(stderr, "%s: %ld, should be %ld\n", what, seen, wanted);
}

static uint64_t id;
static int requests[2];

static int begins(void) {
    return runahead_spec_begin(&id, 0);
}

// Goes back to where it began.
static void fails(void) {
    runahead_spec_fail(id, NULL, 0);
    getppid();
    abort();
}

// No prediction is open any more.
static void commits(void) {
    is(runahead_spec_commit(id), 0, "commit");
    runahead_spec_barrier();
}

// Another process commits it after a while.
static void is_committed_later(void) {
    is(write(requests[1], &id, sizeof id), sizeof id, "a request");
}

static void settle_later(void) {
    uint64_t asked;
    while (read(requests[0], &asked, sizeof asked) == sizeof asked) {
        usleep(30000);
        runahead_spec_commit(asked);
    }
    exit(0);
}

static char *map(long bytes) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

// Counts the mappings between two addresses, and how many of them are writable.
static int mappings(const char *from, long bytes, int *writable) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], rights[8];
    unsigned long start, end;
    int count = *writable = 0;
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) == 3 && start < (unsigned long)from + bytes &&
            end > (unsigned long)from) {
            count++;
            *writable += rights[1] == 'w';
        }
    }
    fclose(maps);
    return count;
}

// Untouched memory between two pages that cannot be touched is one mapping afterwards: it can be
// moved.
static void mappings_stay_whole(void) {
    const long bytes = 16 * MB;
    char *around = map(bytes + 2 * PAGE), *memory = around + PAGE;
    mprotect(around, PAGE, PROT_NONE);
    mprotect(memory + bytes, PAGE, PROT_NONE);
    for (int round = 0; round < 6; round++) {
        if (begins() == RUNAHEAD_SPECULATIVE) {
            for (long n = 0; n < 200; n++)
                memory[(n * 7919 + round * 13) % (bytes / PAGE) * PAGE] = 1;
            if (round % 2)
                fails();
            commits();
        }
        int writable;
        is(mappings(memory, bytes, &writable), 1, "mappings");
        is(writable, 1, "mappings that can be written");
    }
    char *moved = mremap(memory, bytes, 2 * bytes, MREMAP_MAYMOVE);
    is(moved != MAP_FAILED, 1, "it can be moved");
    munmap(moved, 2 * bytes);
}

// /proc/self/maps shows a program its real mappings.
static void nobody_sees_protections(void) {
    char *memory = map(MB);
    memset(memory, 1, MB);
    if (begins() == RUNAHEAD_SPECULATIVE) {
        is_committed_later();
        int writable, count = mappings(memory, MB, &writable);
        is(writable, count, "of all mappings those that can be written");
        runahead_spec_barrier();
    }
    munmap(memory, MB);
}

#define CALLS 40
static char *outputs;
static int ends[2];

static char *output(int n) {
    return outputs + n * 8 * PAGE;
}

// Calls that write, each into a page of its own that was not touched since the checkpoint.
static void call_all(int file, int directory) {
    char *at;
    int n = 0;
#define next (at = output(n++) + 100)
#define made(call) is((call) >= 0, 1, #call)
    made(fstat(file, (void *)next));
    made(stat("/", (void *)next));
    made(syscall(SYS_statx, AT_FDCWD, "/", 0, 0xfff, next));
    made(statfs("/", (void *)next));
    is(read(file, next, 3 * PAGE), 3 * PAGE, "read");
    is(pread(file, next, 100, 0), 100, "pread");
    char *second = next;
    struct iovec vectors[] = {{next, 100}, {second, 200}};
    is(readv(file, vectors, 2), 300, "readv");
    is(preadv(file, (struct iovec[]){{next, 50}}, 1, 0), 50, "preadv");
    made(syscall(SYS_getdents64, directory, next, 2000));
    made(syscall(SYS_getcwd, next, 200));
    made(readlink("/proc/self/exe", next, 200));
    made(syscall(SYS_uname, next));
    made(sysinfo((void *)next));
    made(times((void *)next));
    made(getrusage(RUSAGE_SELF, (void *)next));
    made(syscall(SYS_getrlimit, RLIMIT_STACK, next));
    made(syscall(SYS_clock_gettime, CLOCK_REALTIME, next));
    made(syscall(SYS_clock_getres, CLOCK_REALTIME, next));
    made(syscall(SYS_gettimeofday, next, NULL));
    made(syscall(SYS_time, next));
    made(syscall(SYS_sched_getaffinity, 0, 128, next));
    made(syscall(SYS_getcpu, next, NULL, NULL));
    made(syscall(SYS_getrandom, next, 300, 0));
    char *third = next, *fourth = next;
    made(getresuid((void *)next, (void *)third, (void *)fourth));
    made(syscall(SYS_mincore, outputs, PAGE, next));
    made(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, next, 8));
    socklen_t *length = (void *)next;
    *length = 100;
    made(getpeername(ends[0], (void *)next, length));
    is(n <= CALLS, 1, "pages");
#undef made
#undef next
}

static void calls_write(void) {
    int file = open("/proc/self/exe", O_RDONLY), directory = open("/", O_RDONLY | O_DIRECTORY);
    outputs = map(CALLS * 8 * PAGE);
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    for (int round = 0; round < 4; round++) {
        memset(outputs, 7, CALLS * 8 * PAGE);
        if (begins() == RUNAHEAD_SPECULATIVE) {
            call_all(file, directory);
            is(output(4)[100], 0x7f, "what was read");
            // A rollback also removes the faults that were noted.
            if (round % 2)
                fails();
            commits();
            lseek(file, 0, SEEK_SET);
            lseek(directory, 0, SEEK_SET);
            continue;
        }
        long changed = 0;
        for (long n = 0; n < CALLS * 8 * PAGE; n++)
            changed += outputs[n] != 7;
        is(changed, 0, "bytes of their outputs");
        is(lseek(file, 0, SEEK_CUR), 0, "offset");
    }
    munmap(outputs, CALLS * 8 * PAGE);
    close(file);
    close(directory);
    close(ends[0]);
    close(ends[1]);
}

static long deep(int depth) {
    volatile char frame[3000];
    frame[0] = depth;
    frame[2999] = 1;
    return depth == 0 ? frame[2999] : deep(depth - 1) + frame[0] - (char)depth;
}

static void stacks_grow(void) {
    for (int round = 0; round < 2; round++) {
        if (begins() == RUNAHEAD_SPECULATIVE) {
            is(deep(600 + 400 * round), 1, "a deep stack");
            if (round)
                fails();
            commits();
        }
    }
}

// More than is kept of what was: it waits until that is settled, or there is room for it.
static void much_is_written(void) {
    const long bytes = 100 * MB;
    char *memory = map(bytes);
    memset(memory, 1, bytes);
    if (begins() == RUNAHEAD_SPECULATIVE) {
        is_committed_later();
        memset(memory, 2, bytes);
        runahead_spec_barrier();
    }
    long wrong = 0;
    for (long n = 0; n < bytes; n += PAGE)
        wrong += memory[n] != 2;
    is(wrong, 0, "pages of many");
    munmap(memory, bytes);
}

// Threads that store to the same pages at once.
static long *counted;
static volatile int stops;

static void *count(void *own) {
    long place = (long)own;
    while (!stops)
        for (int n = 0; n < 64; n++)
            counted[n * 512 + place]++;
    return NULL;
}

static void threads_store(void) {
    counted = (long *)map(64 * PAGE);
    stops = 0;
    pthread_t threads[3];
    for (long n = 0; n < 3; n++)
        pthread_create(&threads[n], NULL, count, (void *)n);
    for (int round = 0; round < 40; round++) {
        if (begins() == RUNAHEAD_SPECULATIVE) {
            for (volatile int spins = 0; spins < 300000; spins++)
                ;
            if (round % 3 == 0)
                fails();
            commits();
        }
    }
    stops = 1;
    for (int n = 0; n < 3; n++)
        pthread_join(threads[n], NULL);
    // Each thread increments all pages in turn.
    for (int n = 0; n < 64; n++)
        for (int place = 0; place < 3; place++)
            is(counted[n * 512 + place], counted[place], "a thread's count");
    munmap(counted, 64 * PAGE);
}

static sigjmp_buf back;
static int caught;
static void *fault_at;

static void catch(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    caught++;
    fault_at = info->si_addr;
    siglongjmp(back, 1);
}

// A handler of the program's is told of its own faults, and of no others.
static void faults_are_the_programs(void) {
    struct sigaction action = {.sa_sigaction = catch, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    char *memory = map(64 * PAGE);
    memset(memory, 1, 64 * PAGE);
    mprotect(memory + 32 * PAGE, PAGE, PROT_READ);
    volatile int begun = begins();
    if (begun == RUNAHEAD_SPECULATIVE) {
        is_committed_later();
        if (sigsetjmp(back, 1) == 0) {
            for (int n = 0; n < 64; n++)
                memory[n * PAGE] = 2;
        }
        runahead_spec_barrier();
    }
    is(caught, 1, "faults");
    is((char *)fault_at - memory, 32 * PAGE, "where");
    is(memory[31 * PAGE] + memory[32 * PAGE], 3, "what was stored");
    signal(SIGSEGV, SIG_DFL);
    munmap(memory, 64 * PAGE);
}

int main(void) {
    if (pipe(requests))
        return 1;
    pid_t settler = fork();
    if (settler == 0) {
        close(requests[1]);
        settle_later();
    }
    close(requests[0]);
    runahead_spec_set_policy(requests[1], RUNAHEAD_ALLOW);
    int begun = begins();
    if (begun != RUNAHEAD_SPECULATIVE) {
        puts("no session");
        return 0;
    }
    commits();
    mappings_stay_whole();
    nobody_sees_protections();
    calls_write();
    stacks_grow();
    much_is_written();
    faults_are_the_programs();
    threads_store();
    close(requests[1]);
    waitpid(settler, NULL, 0);
    if (failures == 0)
        puts("as it should be");
    return failures != 0;
}
