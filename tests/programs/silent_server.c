// Serves files c00 to c39 at DIRECTORY, each 5 ms after the request, and never answers a lookup of
// "rubbish". Prints "ready", and "asked" for each request that it does not answer.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILES = 40, BYTES = 16384, FIRST = 2, FOREVER = 3600, DELAY_US = 5000 };

static int device;

static void answer(const struct fuse_in_header *to, int error, const void *data, size_t length) {
    struct fuse_out_header head = {.len = sizeof head + length, .error = -error, .unique = to->unique};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)data, length}};
    // The process that asked may have ended.
    if (writev(device, parts, 2) < 0 && errno != ENOENT) {
        perror("answer");
        exit(1);
    }
}

static struct fuse_attr attributes(uint64_t node) {
    int is_root = node == FUSE_ROOT_ID;
    struct fuse_attr it = {.ino = node, .nlink = 1, .blksize = 4096};
    it.mode = is_root ? S_IFDIR | 0755 : S_IFREG | 0644;
    it.size = is_root ? 0 : BYTES;
    return it;
}

static void look_up(const struct fuse_in_header *request, const char *name) {
    if (strcmp(name, "rubbish") == 0) {
        puts("asked");
        return;
    }
    usleep(DELAY_US);
    int number = -1, end = 0;
    sscanf(name, "c%2d%n", &number, &end);
    if (end != 3 || name[end] != 0 || number < 0 || number >= FILES) {
        answer(request, ENOENT, NULL, 0);
        return;
    }
    struct fuse_entry_out entry = {.nodeid = FIRST + number, .entry_valid = FOREVER, .attr_valid = FOREVER};
    entry.attr = attributes(entry.nodeid);
    answer(request, 0, &entry, sizeof entry);
}

static void serve(const struct fuse_in_header *request, const void *rest) {
    switch (request->opcode) {
    case FUSE_INIT: {
        struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION};
        out.max_readahead = BYTES;
        out.max_write = 4096;
        out.flags = FUSE_PARALLEL_DIROPS;
        answer(request, 0, &out, sizeof out);
        break;
    }
    case FUSE_LOOKUP:
        look_up(request, rest);
        break;
    case FUSE_GETATTR: {
        struct fuse_attr_out out = {.attr_valid = FOREVER, .attr = attributes(request->nodeid)};
        answer(request, 0, &out, sizeof out);
        break;
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
        struct fuse_open_out out = {.fh = 1};
        answer(request, 0, &out, sizeof out);
        break;
    }
    case FUSE_READ: {
        const struct fuse_read_in *in = rest;
        static char bytes[BYTES];
        memset(bytes, 'a' + request->nodeid % 26, sizeof bytes);
        usleep(DELAY_US);
        size_t at = in->offset < BYTES ? in->offset : BYTES;
        answer(request, 0, bytes, in->size < BYTES - at ? in->size : BYTES - at);
        break;
    }
    case FUSE_READDIR:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
        answer(request, 0, NULL, 0);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break;
    default:
        answer(request, ENOSYS, NULL, 0);
    }
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    char options[99];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    if (argc < 2 || device < 0 || mount("silent", argv[1], "fuse.silent", MS_NOSUID | MS_NODEV, options) != 0) {
        perror("cannot be mounted");
        return 1;
    }
    puts("ready");
    static char buffer[1 << 17] __attribute__((aligned(8)));
    for (;;) {
        ssize_t got = read(device, buffer, sizeof buffer);
        if (got < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
            continue;
        if (got < (ssize_t)sizeof(struct fuse_in_header))
            return 0;
        serve((void *)buffer, buffer + sizeof(struct fuse_in_header));
    }
}
