// Writes to a file while a right prediction is open, and looks at mappings of the file: its own,
// shared and private, and that of a helper, which is told of the write through a pipe. One helper
// maps the file before the write, another after it. Prints what each mapping has.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <runahead_speculate.h>

static int requests[2];

static void settle(void) {
    uint64_t id;
    while (read(requests[0], &id, sizeof id) == sizeof id) {
        usleep(300000);
        runahead_spec_commit(id);
    }
    _exit(0);
}

// Begins a prediction that is committed after 300 ms.
static void predict(void) {
    uint64_t id;
    if (runahead_spec_begin(&id, 0) == RUNAHEAD_SPECULATIVE)
        write(requests[1], &id, sizeof id);
}

static char *map(const char *name, int flags) {
    int file = open(name, O_RDONLY);
    char *memory = mmap(NULL, 4096, PROT_READ, flags, file, 0);
    close(file);
    return memory;
}

// Computes for 100 ms, in which the helper maps the file.
static void spin(void) {
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - from.tv_sec) * 1000000000 + now.tv_nsec - from.tv_nsec < 100000000);
}

static void helped(int file, const char *name, int maps_first) {
    int there[2], back[2], third[2];
    char word = 0;
    pipe(there), pipe(back), pipe(third);
    if (fork() == 0) {
        volatile char *memory = maps_first ? map(name, MAP_SHARED) : NULL;
        close(requests[1]);
        write(back[1], "r", 1);
        if (!maps_first) {
            // The write is held by then.
            usleep(30000);
            memory = map(name, MAP_SHARED);
        }
        read(there[0], &word, 1);
        char seen = memory[0];
        write(third[1], &seen, 1);
        _exit(0);
    }
    read(back[0], &word, 1);
    predict();
    pwrite(file, maps_first ? "2" : "3", 1, 0);
    if (!maps_first)
        spin();
    write(there[1], "w", 1);
    read(third[0], &word, 1);
    runahead_spec_barrier();
    printf("helper that maps it %s the write: %c\n", maps_first ? "before" : "after", word);
    wait(NULL);
}

int main(int count, char **args) {
    (void)count;
    int file = open(args[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    int other = open(args[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
    write(file, "0", 1), write(other, "0", 1);
    if (pipe(requests))
        return 1;
    pid_t settler = fork();
    if (settler == 0) {
        close(requests[1]);
        settle();
    }
    close(requests[0]);
    runahead_spec_set_policy(requests[1], RUNAHEAD_ALLOW);
    // The first helper maps a file that no process has mapped.
    helped(other, args[2], 0);
    volatile char *shared = map(args[1], MAP_SHARED), *private = map(args[1], MAP_PRIVATE);
    predict();
    pwrite(file, "1", 1, 0);
    char seen[] = {shared[0], private[0]};
    runahead_spec_barrier();
    printf("shared: %c, private: %c\n", seen[0], seen[1]);
    helped(other, args[2], 1);
    close(requests[1]);
    waitpid(settler, NULL, 0);
    unlink(args[1]), unlink(args[2]);
    return 0;
}
