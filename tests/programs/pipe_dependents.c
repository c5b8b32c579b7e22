// A chain of processes. The first predicts an answer and writes to a pipe what follows from it; the
// next reads that and writes on; the last prints. Between two predictions the first forks children,
// which print as well, and collects them. LINES: number of lines; one prediction in WRONG_IN is
// wrong; an answer takes MICROSECONDS. With "sockets" as a further argument the chain is one of
// local sockets. Prints the same for right and wrong predictions.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <runahead_speculate.h>

struct question {
    uint64_t id;
    int number, is_wrong;
};

static int questions[2], answers[2];

// Answers each question by itself, after a while: so they are answered in any order.
static void serve(int microseconds) {
    struct question asked;
    signal(SIGCHLD, SIG_IGN);
    while (read(questions[0], &asked, sizeof asked) == sizeof asked) {
        if (fork())
            continue;
        int right = asked.number * 7;
        usleep(microseconds + asked.number % 5 * 1000);
        if (asked.id == 0)
            write(answers[1], &right, sizeof right);
        else if (asked.is_wrong)
            runahead_spec_fail(asked.id, &right, sizeof right);
        else
            runahead_spec_commit(asked.id);
        _exit(0);
    }
    exit(0);
}

static int are_sockets;

// [0] is to be read from, [1] to be written to.
static int channel(int ends[2]) {
    return are_sockets ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends);
}

// Mostly by the calls for sockets.
static ssize_t take(int from, char *to, size_t bytes) {
    return are_sockets && *to ? recv(from, to, bytes, 0) : read(from, to, bytes);
}

static ssize_t put(int to, const char *from, size_t bytes) {
    return are_sockets && to != 1 ? send(to, from, bytes, MSG_NOSIGNAL) : write(to, from, bytes);
}

// Copies lines of eight bytes, and adds up what they say.
static void pass_on(int from, int to, const char *name) {
    char line[9] = "", out[64];
    long sum = 0;
    while (take(from, line, 8) == 8) {
        sum += atoi(line);
        int length = to == 1 ? sprintf(out, "%s %.7s %ld\n", name, line, sum) : sprintf(out, "%07ld\n", sum % 1000000);
        put(to, out, length);
    }
    exit(0);
}

static int ask(int number, int is_wrong) {
    struct question question = {0, number, is_wrong};
    uint64_t id = 0;
    int value = -1;
    switch (runahead_spec_begin(&id, 0)) {
    case RUNAHEAD_SPECULATIVE:
        question.id = id;
        write(questions[1], &question, sizeof question);
        return is_wrong ? -1 : number * 7;
    case RUNAHEAD_FAILED:
        if (runahead_spec_answer(id, &value, sizeof value) == sizeof value)
            return value;
        question.id = 0;
        // Fall through: no process has answered.
    default:
        write(questions[1], &question, sizeof question);
        if (read(answers[0], &value, sizeof value) != sizeof value)
            exit(4);
        return value;
    }
}

int main(int argc, char **argv) {
    int lines = atoi(argv[1]), wrong_in = atoi(argv[2]), first[2], second[2];
    are_sockets = argc > 4 && !strcmp(argv[4], "sockets");
    if (argc < 4 || pipe(questions) || pipe(answers) || channel(first) || channel(second))
        return 2;
    if (fork() == 0) {
        close(questions[1]), close(first[0]), close(first[1]), close(second[0]), close(second[1]);
        serve(atoi(argv[3]));
    }
    close(questions[0]);
    if (fork() == 0) {
        close(questions[1]), close(first[1]), close(second[0]);
        pass_on(first[0], second[1], "");
    }
    close(first[0]), close(second[1]);
    if (fork() == 0) {
        close(questions[1]), close(first[1]);
        pass_on(second[0], 1, "line");
    }
    close(second[0]);
    runahead_spec_set_policy(questions[1], RUNAHEAD_ALLOW);
    for (int number = 0; number < lines; number++) {
        char line[16];
        int value = ask(number, wrong_in && number % wrong_in == wrong_in - 1);
        sprintf(line, "%07d\n", value);
        put(first[1], line, 8);
        if (number % 4)
            continue;
        pid_t child = fork();
        if (child == 0) {
            int length = sprintf(line, "%d", value);
            write(2, "child\n", 6);
            _exit(length + value % 10);
        }
        int status;
        if (waitpid(child, &status, 0) != child)
            return 3;
        fprintf(stderr, "%d of %d\n", WEXITSTATUS(status), number);
    }
    close(first[1]), close(questions[1]);
    while (wait(NULL) > 0)
        ;
    return 0;
}
