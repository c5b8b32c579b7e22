// Continues on right and wrong predictions, and checks the effects, here and in another process,
// the observer. Prints each fault, and at the end "as it should be"; without runahead "no
// session".
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <runahead_speculate.h>

static int failures;

static void is(long seen, long wanted, const char *what) {
    if (seen == wanted)
        return;
    failures++;
    fprintf(stderr, "%s: %ld, should be %ld\n", what, seen, wanted);
}

// Requests to the observer, and its answers.
enum { LOOK, COMMIT, FAIL };
struct request {
    int what;
    int fd_number;
    uint64_t id;
};
static int requests[2], replies[2], stream[2];
static char file[] = "predicts.out";
static pid_t observer;

static long bytes_in(int fd) {
    struct pollfd ready = {fd, POLLIN, 0};
    static char bytes[65536];
    return poll(&ready, 1, 0) == 1 ? read(fd, bytes, sizeof bytes) : 0;
}

// Reports the length of stream and file, before and after the requested action.
static void observe(void) {
    struct request request;
    while (read(requests[0], &request, sizeof request) == sizeof request) {
        struct stat told;
        long seen[5];
        usleep(20000);
        seen[0] = bytes_in(stream[0]);
        seen[1] = stat(file, &told) ? -1 : told.st_size;
        seen[2] = request.what == COMMIT ? runahead_spec_commit(request.id)
                  : request.what == FAIL ? runahead_spec_fail(request.id, "right", 5)
                                         : 0;
        for (int n = 0; n < 500 && request.what == COMMIT && (seen[3] = bytes_in(stream[0])) == 0; n++)
            usleep(1000);
        if (request.what != COMMIT) {
            usleep(20000);
            seen[3] = bytes_in(stream[0]);
        }
        seen[4] = stat(file, &told) ? -1 : told.st_size;
        write(replies[1], seen, sizeof seen);
    }
    exit(0);
}

static void ask(int what, uint64_t id) {
    struct request request = {what, 0, id};
    write(requests[1], &request, sizeof request);
}

static void reply(long seen[5]) {
    if (read(replies[0], seen, 5 * sizeof *seen) != 5 * sizeof *seen)
        is(0, 1, "the observer has gone");
}

// No process sees written data before the commit; after it, all of it is visible.
static void output_is_held(int out) {
    uint64_t id;
    long seen[5];
    int begun = runahead_spec_begin(&id, observer);
    is(begun, RUNAHEAD_SPECULATIVE, "begin");
    write(stream[1], "held", 4);
    write(stream[1], "and", 3);
    is(write(out, "in a file", 9), 9, "a write to a file");
    ask(COMMIT, id);
    reply(seen);
    is(seen[0], 0, "bytes seen before the commit");
    is(seen[1], 0, "bytes in the file before the commit");
    is(seen[2], 0, "commit");
    is(seen[3], 7, "bytes seen after it");
    struct stat told;
    fstat(out, &told);
    is(told.st_size, 9, "bytes in the file after it");
}

static void output_of_a_wrong_one_never_was(int out) {
    uint64_t id;
    long seen[5];
    volatile int counted = 0;
    if (runahead_spec_begin(&id, observer) == RUNAHEAD_SPECULATIVE) {
        counted++;
        write(stream[1], "never", 5);
        write(out, "never", 5);
        ask(FAIL, id);
        reply(seen);
        is(0, 1, "went on behind a read that was to wait");
    }
    char right[9] = "";
    is(runahead_spec_answer(id, right, sizeof right), 5, "bytes of the answer");
    is(strncmp(right, "right", 5), 0, "the answer");
    is(counted, 0, "what was counted");
    // Answers that the observer gave meanwhile are still available.
    reply(seen);
    is(seen[0] + seen[3], 0, "bytes seen of what never was");
    is(seen[1] == seen[4], 1, "the file is as it was");
}

static void state_comes_back(void) {
    uint64_t outer, inner, open_ones[4];
    char byte;
    int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    lseek(fd, 10, SEEK_SET);
    char *block = malloc(100), *large = malloc(1 << 20);
    memset(block, 'a', 100);
    memset(large, 'a', 1 << 20);
    void *end = sbrk(0);
    is(runahead_spec_begin(&outer, 0), RUNAHEAD_SPECULATIVE, "begin");
    block[1] = 'b';
    read(fd, &byte, 1);
    int begun = runahead_spec_begin(&inner, 0);
    if (begun == RUNAHEAD_SPECULATIVE) {
        is(runahead_spec_open(open_ones, 4), 2, "how many are open");
        is(open_ones[0] == outer && open_ones[1] == inner, 1, "which");
        memset(block, 'c', 100);
        memset(large, 'c', 1 << 20);
        free(large);
        char *more = malloc(9 << 20);
        memset(more, 'd', 9 << 20);
        sbrk(1 << 16);
        lseek(fd, 0, SEEK_END);
        close(fd);
        is(open("/etc/group", O_RDONLY), fd, "the number of what is opened");
        open("/etc/hosts", O_RDONLY);
        runahead_spec_fail(inner, NULL, 0);
        getppid();
        is(0, 1, "went on though it had failed");
    }
    is(begun, RUNAHEAD_FAILED, "begin, the second time");
    is(block[0] + block[1] + block[99], 'a' + 'b' + 'a', "a block of memory");
    is(large[0] + large[(1 << 20) - 1], 'a' + 'a', "a large one");
    is(lseek(fd, 0, SEEK_CUR), 11, "the offset");
    is(sbrk(0) == end, 1, "the end of the heap");
    is(fcntl(fd, F_GETFD), FD_CLOEXEC, "the descriptor's flags");
    int next = open("/etc/group", O_RDONLY);
    is(next, fd + 1, "the next descriptor");
    is(runahead_spec_open(open_ones, 4), 1, "how many are open still");
    runahead_spec_commit(outer);
    runahead_spec_barrier();
    is(runahead_spec_open(open_ones, 4), 0, "how many are open at the end");
    is(runahead_spec_commit(inner), -ESRCH, "to commit what has failed");
    close(fd);
    close(next);
    free(block);
    free(large);
}

// A wrong prediction rolls back those above it, and output of a right one waits for those below it.
static void order_is_kept(int out) {
    uint64_t ids[3];
    long seen[5];
    struct stat before, told;
    fstat(out, &before);
    is(runahead_spec_begin(&ids[0], observer), RUNAHEAD_SPECULATIVE, "begin");
    write(out, "1", 1);
    int begun = runahead_spec_begin(&ids[1], observer);
    if (begun == RUNAHEAD_SPECULATIVE) {
        write(out, "2", 1);
        is(runahead_spec_begin(&ids[2], observer), RUNAHEAD_SPECULATIVE, "begin");
        write(out, "3", 1);
        runahead_spec_commit(ids[2]);
        runahead_spec_commit(ids[0]);
        ask(LOOK, 0);
        ask(FAIL, ids[1]);
        reply(seen);
        is(0, 1, "went on though what it depends on had failed");
    }
    is(begun, RUNAHEAD_FAILED, "the one in the middle");
    reply(seen);
    is(seen[1], before.st_size + 1, "bytes in the file that depend on nothing any more");
    reply(seen);
    fstat(out, &told);
    is(told.st_size, before.st_size + 1, "bytes in the file");
}

static void what_is_allowed_goes_out(void) {
    uint64_t id;
    long seen[5];
    is(runahead_spec_set_policy(stream[1], RUNAHEAD_ALLOW), RUNAHEAD_DEFAULT, "the policy before");
    is(runahead_spec_begin(&id, observer), RUNAHEAD_SPECULATIVE, "begin");
    write(stream[1], "question", 8);
    ask(COMMIT, id);
    reply(seen);
    is(seen[0], 8, "bytes seen before the commit of what may go out");
    is(runahead_spec_set_policy(stream[1], RUNAHEAD_DEFAULT), RUNAHEAD_ALLOW, "the policy");
    is(runahead_spec_set_policy(stream[1], 99), -EINVAL, "a policy that there is not");
}

static void who_is_to_settle_it_ends(void) {
    uint64_t id;
    pid_t settler = fork();
    if (settler == 0) {
        usleep(50000);
        _exit(0);
    }
    // The child was collected, so that it no longer exists.
    int begun = runahead_spec_begin(&id, settler);
    if (begun == RUNAHEAD_SPECULATIVE) {
        signal(SIGCHLD, SIG_IGN);
        is(0, 1, "went on though nobody can settle it");
    }
    is(begun, RUNAHEAD_FAILED, "one that nobody can settle any more");
    is(runahead_spec_answer(id, &id, sizeof id), 0, "bytes of its answer");
}

static volatile int turns, stops;

static void *turn(void *unused) {
    while (!stops)
        turns++;
    return unused;
}

// A rollback restores all threads together.
static void threads_come_back(void) {
    uint64_t id;
    pthread_t thread;
    pthread_create(&thread, NULL, turn, NULL);
    while (turns < 1000)
        ;
    int begun = runahead_spec_begin(&id, observer);
    volatile int then = turns;
    if (begun == RUNAHEAD_SPECULATIVE) {
        while (turns - then < 10000000)
            ;
        ask(FAIL, id);
        long seen[5];
        reply(seen);
    }
    is(begun, RUNAHEAD_FAILED, "begin, with threads");
    is(turns - then < 10000000, 1, "the other thread's count is as it was");
    long seen[5];
    reply(seen);
    stops = 1;
    pthread_join(thread, NULL);
}

// A process that follows outcomes gets each of them once.
static void events_are_told(void) {
    struct runahead_spec_event seen[4] = {{0, 9}};
    uint64_t position = RUNAHEAD_NOW, ids[2];
    is(runahead_spec_events(&position, seen, 4), 0, "nothing has happened since now");
    if (runahead_spec_begin(&ids[0], 0) == RUNAHEAD_SPECULATIVE)
        runahead_spec_commit(ids[0]);
    runahead_spec_barrier();
    if (runahead_spec_begin(&ids[1], 0) == RUNAHEAD_SPECULATIVE)
        runahead_spec_fail(ids[1], NULL, 0);
    is(runahead_spec_events(&position, seen, 3), 3, "three events fit");
    is(seen[0].id == ids[0] && seen[0].what == RUNAHEAD_BEGUN, 1, "it has begun");
    is(seen[1].id == ids[0] && seen[1].what == RUNAHEAD_COMMITTED, 1, "it is committed");
    is(seen[2].id == ids[1] && seen[2].what == RUNAHEAD_BEGUN, 1, "another has begun");
    is(runahead_spec_events(&position, seen, 4), 1, "one is left");
    is(seen[0].id == ids[1] && seen[0].what == RUNAHEAD_ABORTED, 1, "the other has failed");
    is(runahead_spec_events(&position, seen, 4), 0, "nothing is told twice");
}

int main(void) {
    uint64_t id;
    if (runahead_spec_set_policy(1, RUNAHEAD_DEFAULT) == -EBADF) {
        is(runahead_spec_begin(&id, 0), -EBADF, "begin without a session");
        puts("no session");
        return failures != 0;
    }
    if (pipe(requests) || pipe(replies) || pipe(stream))
        return 2;
    int out = open(file, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
    if ((observer = fork()) == 0) {
        close(requests[1]);
        observe();
    }
    runahead_spec_set_policy(requests[1], RUNAHEAD_ALLOW);
    is(runahead_spec_begin(&id, getpid()), -EINVAL, "begin, to be settled by itself");
    is(runahead_spec_begin(&id, 1), -EINVAL, "begin, to be settled by process 1");
    events_are_told();
    output_is_held(out);
    output_of_a_wrong_one_never_was(out);
    state_comes_back();
    order_is_kept(out);
    what_is_allowed_goes_out();
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGCHLD, &ignore, NULL);
    who_is_to_settle_it_ends();
    threads_come_back();
    // Output that is held survives the program's end, which waits for it.
    if (runahead_spec_begin(&id, observer) == RUNAHEAD_SPECULATIVE)
        ask(COMMIT, id);
    if (!failures)
        puts("as it should be");
    fflush(stdout);
    close(requests[1]);
    return failures != 0;
}
