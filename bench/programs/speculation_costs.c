// Costs of speculation, measured from inside under `runahead run --speculate`. Times are medians in
// nanoseconds:
//
//   speculates checkpoint MEGABYTES PAGES ROUNDS   checkpoint, commit, rollback
//   speculates loop WHAT                           a call, not speculative and speculative
//                                                  (natively: the first)
//   speculates release ROUNDS                      from the verdict to the byte in a pipe
//   speculates many PROCESSES EACH                 beginning and committing one of all open at once
//   speculates userfaultfd                         1 if userfaultfd(2) is there, 0 if it is refused
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <runahead_speculate.h>

#define MOST 4096
#define PAGE 4096

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static int compare(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static unsigned long long median(uint64_t *figures, int count) {
    qsort(figures, count, sizeof *figures, compare);
    return figures[count / 2];
}

static uint64_t random_number(void) {
    static uint64_t state = 88172645463325252ull;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void write_to_pages(char *memory, size_t bytes, int pages) {
    for (int n = 0; n < pages; n++)
        memory[random_number() % bytes / PAGE * PAGE]++;
}

/* Exit status, which bench/src/measure/speculation_cost.rs knows. */
enum { CANNOT = 3 };

static void refused(int error) {
    fprintf(stderr, "speculates: the process cannot speculate (%d)\n", error);
    exit(CANNOT);
}

static int checkpoint(size_t megabytes, int pages, int rounds) {
    static uint64_t took[3][MOST];
    size_t bytes = megabytes << 20;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, bytes);
    uint64_t id;
    // Two more: the first copies everything. What is measured is kept outside of what is taken
    // back.
    int channel[2];
    if (pipe(channel))
        return 1;
    runahead_spec_set_policy(channel[1], RUNAHEAD_ALLOW);
    for (int round = -2; round < rounds; round++) {
        write_to_pages(memory, bytes, pages);
        uint64_t began = now();
        int begun = runahead_spec_begin(&id, 0);
        uint64_t taken = now();
        if (begun != RUNAHEAD_SPECULATIVE)
            refused(begun);
        write_to_pages(memory, bytes, pages);
        uint64_t commits = now();
        runahead_spec_commit(id);
        runahead_spec_barrier();
        uint64_t committed = now();
        begun = runahead_spec_begin(&id, 0);
        if (begun == RUNAHEAD_SPECULATIVE) {
            write_to_pages(memory, bytes, pages);
            uint64_t fails = now();
            write(channel[1], &fails, sizeof fails);
            runahead_spec_fail(id, NULL, 0);
            getppid();
            abort();
        }
        uint64_t back = now(), fails;
        if (begun != RUNAHEAD_FAILED || read(channel[0], &fails, sizeof fails) != sizeof fails)
            refused(begun);
        if (round >= 0) {
            took[0][round] = taken - began;
            took[1][round] = committed - commits;
            took[2][round] = back - fails;
        }
    }
    printf("%llu %llu %llu\n", median(took[0], rounds), median(took[1], rounds), median(took[2], rounds));
    return 0;
}

static int loop(const char *what) {
    enum { ROUNDS = 41 };
    // Fill a pipe from which no process reads.
    const int CALLS = *what == 'p' ? 400 : 1000;
    static char buffer[PAGE];
    static uint64_t took[2][ROUNDS];
    char name[] = "speculates.XXXXXX";
    int channel[2], file = mkstemp(name), in = open("/proc/self/exe", O_RDONLY);
    unlink(name);
    if (pipe(channel) || file < 0 || in < 0)
        return 1;
    pid_t reader = fork();
    if (reader == 0) {
        close(channel[1]);
        while (read(channel[0], buffer, sizeof buffer) > 0)
            ;
        _exit(0);
    }
    close(channel[0]);
    // Pages that a child has, too, are not only this process's.
    close(in);
    in = open("/proc/self/exe", O_RDONLY);
    uint64_t id;
    int is_offered = 0;
    for (int speculates = 0; speculates <= is_offered; speculates++) {
        for (int round = 0; round < ROUNDS; round++) {
            if (speculates && runahead_spec_begin(&id, 0) != RUNAHEAD_SPECULATIVE)
                refused(0);
            lseek(in, 0, SEEK_SET);
            uint64_t began = now();
            for (int n = 0; n < CALLS; n++) {
                if (*what == 'r')
                    read(in, buffer, 8);
                else if (*what == 'p')
                    write(channel[1], buffer, 64);
                else
                    write(file, buffer, 256);
            }
            took[speculates][round] = (now() - began) / CALLS;
            if (speculates) {
                runahead_spec_commit(id);
                runahead_spec_barrier();
            }
        }
        if (!speculates)
            is_offered = runahead_spec_set_policy(0, RUNAHEAD_DEFAULT) >= 0;
    }
    close(channel[1]);
    waitpid(reader, NULL, 0);
    printf("%llu %llu\n", median(took[0], ROUNDS), is_offered ? median(took[1], ROUNDS) : 0);
    return 0;
}

static int release(int rounds) {
    static uint64_t took[MOST];
    int ids[2], held[2];
    if (pipe(ids) || pipe(held))
        return 1;
    pid_t settler = fork();
    if (settler == 0) {
        close(ids[1]);
        uint64_t id;
        char byte;
        int count = 0;
        while (read(ids[0], &id, sizeof id) == sizeof id) {
            usleep(2000);
            uint64_t began = now();
            runahead_spec_commit(id);
            if (read(held[0], &byte, 1) == 1)
                took[count++] = now() - began;
        }
        printf("%llu\n", median(took, count));
        fflush(stdout);
        _exit(0);
    }
    runahead_spec_set_policy(ids[1], RUNAHEAD_ALLOW);
    for (int round = 0; round < rounds; round++) {
        uint64_t id;
        if (runahead_spec_begin(&id, settler) != RUNAHEAD_SPECULATIVE)
            refused(0);
        write(held[1], "x", 1);
        write(ids[1], &id, sizeof id);
        // It computes, and comes to no call.
        for (volatile int n = 0; n < 3000000; n++)
            ;
        runahead_spec_barrier();
    }
    close(ids[1]);
    waitpid(settler, NULL, 0);
    return 0;
}

// Each process keeps its predictions open until all have begun theirs.
static int many(int processes, int each) {
    static uint64_t took[2][MOST];
    int results[2], count = 0;
    if (pipe(results) || processes * each > MOST)
        return 1;
    uint64_t all_have_begun = now() + 3000000000ull;
    for (int n = 0; n < processes; n++) {
        if (fork())
            continue;
        uint64_t ids[each], own[2][each];
        for (int k = 0; k < each; k++) {
            uint64_t began = now();
            if (runahead_spec_begin(&ids[k], 0) != RUNAHEAD_SPECULATIVE)
                refused(0);
            own[0][k] = now() - began;
        }
        if (now() > all_have_begun)
            refused(0);
        while (now() < all_have_begun)
            sched_yield();
        uint64_t began = now();
        for (int k = 0; k < each; k++)
            runahead_spec_commit(ids[k]);
        runahead_spec_barrier();
        for (int k = 0; k < each; k++)
            own[1][k] = (now() - began) / each;
        write(results[1], own, sizeof own);
        _exit(0);
    }
    close(results[1]);
    uint64_t own[2][each];
    while (read(results[0], own, sizeof own) == sizeof own) {
        for (int k = 0; k < each; k++, count++) {
            took[0][count] = own[0][k];
            took[1][count] = own[1][k];
        }
    }
    while (wait(NULL) > 0)
        ;
    if (count != processes * each)
        refused(0);
    printf("%llu %llu\n", median(took[0], count), median(took[1], count));
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 5 && !strcmp(argv[1], "checkpoint"))
        return checkpoint(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
    if (argc == 3 && !strcmp(argv[1], "loop"))
        return loop(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "release"))
        return release(atoi(argv[2]));
    if (argc == 4 && !strcmp(argv[1], "many"))
        return many(atoi(argv[2]), atoi(argv[3]));
    if (argc == 2 && !strcmp(argv[1], "userfaultfd"))
        return printf("%d\n", syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY) >= 0) < 0;
    fprintf(stderr,
            "usage: speculates checkpoint MEGABYTES PAGES ROUNDS | loop WHAT | release ROUNDS | many PROCESSES EACH | userfaultfd\n");
    return 2;
}
