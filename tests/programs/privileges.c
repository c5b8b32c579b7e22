// Prints what privileges it has been given: its own, and those of its file.
#include <linux/capability.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    syscall(SYS_capget, &header, data);
    printf("uid %d %d gid %d %d capabilities %x %x\n", getuid(), geteuid(), getgid(), getegid(),
           data[0].effective, data[1].effective);
    return 0;
}
