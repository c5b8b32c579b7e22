// predicted_exec WRONG HOW PROGRAM ARGUMENTS...: continues on a prediction, and has a child execute
// a program meanwhile.
//
// The prediction is right, or (WRONG) not. HOW begins with fork, vfork, or spawn (posix_spawn(3)).
// The letters behind it are for the process that answers, before it does: + waits until a child
// executes another program, - checks a while later whether one does, k waits and kills that child,
// p waits and kills the parent. With o the program opts out of being followed. The program gets the
// answer as ANSWER in its environment.
//
// predicted_exec says: as the executed program, lets its output out at once. predicted_exec has:
// prints the signals that it blocks and ignores.
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <runahead_speculate.h>

extern char **environ;
static int questions[2], answers[2];

// A child of `parent` that is another program than this, or 0; its name.
static pid_t look(pid_t parent, char name[64]) {
    char path[64];
    pid_t found = 0;
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; !found && (entry = readdir(processes));) {
        int pid = atoi(entry->d_name), its_parent;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *stat = pid > 0 ? fopen(path, "r") : NULL;
        if (stat && fscanf(stat, "%*d (%60[^)]) %*c %d", name, &its_parent) == 2 && its_parent == parent &&
            strncmp(name, "predicted_exec", 14))
            found = pid;
        if (stat)
            fclose(stat);
    }
    closedir(processes);
    return found;
}

static void meanwhile(const char *how) {
    char name[64];
    pid_t child = 0, parent = getppid();
    int is_patient = strpbrk(how, "+kp") != NULL;
    if (strchr(how, '-'))
        usleep(300000);
    for (int times = 0; !child && times < (is_patient ? 10000 : 1); times++) {
        child = look(parent, name);
        usleep(1000);
    }
    if (child && strpbrk(how, "+-"))
        dprintf(2, "a child is %s\n", name);
    if (child && strchr(how, 'k'))
        kill(child, SIGKILL);
    if (child && strchr(how, 'p'))
        kill(parent, SIGKILL);
}

static void serve(int is_wrong, const char *how) {
    uint64_t id;
    int right = 42;
    while (read(questions[0], &id, sizeof id) == sizeof id) {
        if (id && strpbrk(how, "+-kp"))
            meanwhile(how);
        if (id == 0)
            write(answers[1], &right, sizeof right);
        else if (is_wrong)
            runahead_spec_fail(id, &right, sizeof right);
        else
            runahead_spec_commit(id);
    }
    exit(0);
}

// Code of the executed program.
static int has(void) {
    sigset_t mask;
    struct sigaction action;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int number = 1; number < 32; number++) {
        if (sigismember(&mask, number))
            printf("%d is blocked\n", number);
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            printf("%d is ignored\n", number);
    }
    return 0;
}

static int ask(int is_wrong) {
    uint64_t id = 0, none = 0;
    int value = -1;
    switch (runahead_spec_begin(&id, 0)) {
    case RUNAHEAD_SPECULATIVE:
        write(questions[1], &id, sizeof id);
        return is_wrong ? 41 : 42;
    case RUNAHEAD_FAILED:
        if (runahead_spec_answer(id, &value, sizeof value) == sizeof value)
            return value;
        // Fall through: no process has answered.
    default:
        write(questions[1], &none, sizeof none);
        if (read(answers[0], &value, sizeof value) != sizeof value)
            exit(4);
        return value;
    }
}

static pid_t start(const char *how, char **argv) {
    pid_t child = -1;
    int failed = 0;
    if (strncmp(how, "spawn", 5) == 0) {
        failed = posix_spawnp(&child, argv[0], NULL, NULL, argv, environ);
    } else {
        child = strncmp(how, "vfork", 5) == 0 ? vfork() : fork();
        if (child == 0) {
            execvp(argv[0], argv);
            _exit(errno == ENOENT ? 127 : 126);
        }
    }
    if (failed)
        fprintf(stderr, "%s: %s\n", argv[0], strerror(failed));
    return child;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "has") == 0)
        return has();
    if (argc == 2 && strcmp(argv[1], "says") == 0) {
        runahead_spec_set_policy(1, RUNAHEAD_ALLOW);
        return write(1, getenv("ANSWER"), 2) != 2;
    }
    if (argc < 4 || pipe(questions) || pipe(answers))
        return 2;
    int is_wrong = atoi(argv[1]), status;
    const char *how = argv[2], *does = how + (how[0] == 'f' ? 4 : 5);
    sigset_t blocked;
    sigemptyset(&blocked), sigaddset(&blocked, SIGUSR1), sigaddset(&blocked, SIGSYS);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    signal(SIGFPE, SIG_IGN), signal(SIGUSR2, SIG_IGN), signal(SIGTERM, exit);
    pid_t server = fork();
    if (server == 0) {
        close(questions[1]);
        serve(is_wrong, does);
    }
    close(questions[0]);
    runahead_spec_set_policy(questions[1], RUNAHEAD_ALLOW);
    char value[32];
    snprintf(value, sizeof value, "%d", ask(is_wrong));
    setenv("ANSWER", value, 1);
    if (strchr(does, 'o'))
        setenv("RUNAHEAD", "0", 1);
    pid_t child = start(how, argv + 3);
    if (child > 0 && waitpid(child, &status, 0) == child)
        printf("%d\n", status);
    close(questions[1]);
    waitpid(server, NULL, 0);
    return 0;
}
