// Tries effects outside of its own files, and prints the result of each: 0, or the error. The
// values that it sets are those that are there.
#include <asm/termbits.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void tell(const char *name, long result)
{
    printf("%s: %s\n", name, result < 0 ? strerrorname_np(errno) : "0");
    fflush(stdout);
}

static void clone_with(const char *name, unsigned long flags)
{
    long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    tell(name, child);
    if (child > 0)
        waitpid(child, NULL, 0);
}

static void clone3_with(const char *name, uint64_t flags)
{
    uint64_t arguments[11] = { flags, 0, 0, 0, SIGCHLD };
    long child = syscall(SYS_clone3, arguments, sizeof arguments);
    if (child == 0)
        _exit(0);
    tell(name, child);
    if (child > 0)
        waitpid(child, NULL, 0);
}

static void ioctls(const char *file)
{
    int fd = open(file, O_RDONLY), terminal = posix_openpt(O_RDWR | O_NOCTTY);
    long flags = 0, version = 0;
    int size = 0;
    char label[256] = "";
    struct winsize window = { 24, 80, 0, 0 };
    struct termios attributes;
    ioctl(fd, FS_IOC_GETFLAGS, &flags);
    ioctl(fd, FS_IOC_GETVERSION, &version);
    tell("set flags", ioctl(fd, FS_IOC_SETFLAGS, &flags));
    tell("set version", ioctl(fd, FS_IOC_SETVERSION, &version));
    tell("set the version of ext4", ioctl(fd, _IOW('f', 4, long), &version));
    if (ioctl(fd, FS_IOC_GETFSLABEL, label) == 0)
        tell("set label", ioctl(fd, FS_IOC_SETFSLABEL, label));
    tell("exclusive terminal", ioctl(terminal, TIOCEXCL));
    tell("line discipline", ioctl(terminal, TIOCSETD, &(int){ 0 }));
    tell("not exclusive", ioctl(terminal, TIOCNXCL));
    // What every program uses.
    tell("block size", ioctl(fd, FIGETBSZ, &size));
    tell("bytes", ioctl(fd, FIONREAD, &size));
    tell("get attributes", ioctl(terminal, TCGETS, &attributes));
    tell("set attributes", ioctl(terminal, TCSETS, &attributes));
    tell("set size", ioctl(terminal, TIOCSWINSZ, &window));
    tell("unlock", unlockpt(terminal));
}

struct request {
    struct nlmsghdr head;
    struct ndmsg neighbour;
};

// Asks netlink. The result is that of the request, or 0 for an answer.
static long ask(uint16_t type, uint16_t flags)
{
    struct request request = {
        .head = { .nlmsg_len = sizeof request, .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags },
        .neighbour = { .ndm_family = AF_INET, .ndm_ifindex = 1 },
    };
    char answer[8192] = { 0 };
    int netlink = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    if (netlink < 0 || send(netlink, &request, sizeof request, 0) < 0 || recv(netlink, answer, sizeof answer, 0) < 0)
        return -1;
    close(netlink);
    struct nlmsghdr *first = (struct nlmsghdr *)answer;
    if (first->nlmsg_type != NLMSG_ERROR)
        return 0;
    errno = -((struct nlmsgerr *)NLMSG_DATA(first))->error;
    return errno ? -1 : 0;
}

int main(int argc, char **argv)
{
    (void)argc;
    ioctls(argv[1]);
    clone_with("user namespace", CLONE_NEWUSER);
    clone_with("host name namespace", CLONE_NEWUTS);
    clone3_with("user namespace by clone3", CLONE_NEWUSER);
    clone_with("child", 0);
    struct timex state = { .modes = 0 };
    tell("read the clock", adjtimex(&state));
    state.modes = ADJ_ESTERROR;
    tell("adjust the clock", adjtimex(&state));
    tell("adjust a clock", clock_adjtime(CLOCK_REALTIME, &state));
    state.modes = 0;
    tell("read a clock", clock_adjtime(CLOCK_REALTIME, &state));
    tell("messages on the console", klogctl(7, NULL, 0));
    tell("size of the messages", klogctl(10, NULL, 0));
    tell("netlink", socket(AF_NETLINK, SOCK_RAW, 0));
    tell("netlink of audits", socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT));
    tell("list interfaces", ask(RTM_GETLINK, NLM_F_DUMP));
    // The address is missing, which is looked at after the right to change anything.
    tell("remove a neighbour", ask(RTM_DELNEIGH, NLM_F_ACK));
    return 0;
}
