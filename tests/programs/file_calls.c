/* Many ways to reach a file, with their results. */
#include "program_helpers.h"

static void directory(size_t size)
{
	char *buf = malloc(size);
	int fd = must(open("src/d0", O_RDONLY | O_DIRECTORY));
	unsigned h = 0, calls = 0, entries = 0;
	ssize_t n;
	while ((n = syscall(SYS_getdents64, fd, buf, size)) > 0) {
		calls++;
		for (ssize_t at = 0; at < n; at += *(unsigned short *)(buf + at + 16), entries++)
			h += sum(buf + at + 19, strlen(buf + at + 19));
	}
	printf("getdents64 of %zu: %u calls, %u entries, %u; last %zd %s\n", size, calls, entries, h, n,
	       n < 0 ? strerrorname_np(errno) : "");
	close(fd);
	free(buf);
}

static void seek_directory(void)
{
	DIR *d = opendir("odd");
	long places[64];
	unsigned n = 0, h = 0;
	struct dirent *e;
	while ((places[n] = telldir(d), e = readdir(d)))
		h = h * 31 + sum(e->d_name, strlen(e->d_name)), n++;
	printf("listing %u %u\n", n, h);
	for (int i = n - 1; i >= 0; i -= 3) {
		seekdir(d, places[i]);
		e = readdir(d);
		printf("entry %d %u\n", i, sum(e->d_name, strlen(e->d_name)));
	}
	rewinddir(d);
	for (n = 0; readdir(d); n++)
		;
	printf("again %u\n", n);
	closedir(d);
}

static void flags(void)
{
	static const int sets[] = { O_RDONLY, O_RDWR, O_RDONLY | O_CLOEXEC, O_RDONLY | O_NONBLOCK,
		O_RDONLY | O_NOATIME, O_RDWR | O_APPEND, O_RDONLY | O_DIRECT, O_PATH, O_RDONLY | O_SYNC,
		O_WRONLY };
	for (unsigned i = 0; i < sizeof sets / sizeof *sets; i++) {
		char name[32];
		snprintf(name, sizeof name, "many/%02d", 40 + i);
		int fd = open(name, sets[i]);
		printf("open %o: %d, flags %o, fd flags %o\n", sets[i], fd, fcntl(fd, F_GETFL), fcntl(fd, F_GETFD));
		close(fd);
	}
}

static void transfers(void)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/out", getenv("W"));
	int in = must(open("data", O_RDONLY)), out = must(open(path, O_RDWR | O_CREAT | O_TRUNC, 0644));
	off_t at = 77777;
	show(sendfile(out, in, 0, 50000));
	show(sendfile(out, in, &at, 50000));
	printf("%ld\n", (long)at);
	show(copy_file_range(in, 0, out, 0, 40000, 0));
	show(copy_file_range(in, &at, out, 0, 40000, 0));
	int p[2];
	must(pipe(p));
	show(splice(in, 0, p[1], 0, 30000, 0));
	show(splice(p[0], 0, out, 0, 30000, 0));
	printf("in at %ld, out at %ld\n", (long)lseek(in, 0, SEEK_CUR), (long)lseek(out, 0, SEEK_CUR));
	char *map = mmap(0, 1 << 20, PROT_READ, MAP_PRIVATE, in, 0);
	printf("mapped %u\n", sum(map, 1 << 20));
	char *stored = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, out, 0);
	memcpy(stored, "stored", 6);
	close(in);
	close(out);
	int log = must(open(path, O_WRONLY | O_APPEND));
	stall_on(0, 3);
	show(write(log, "line\n", 5));
	stall_on(3, 3);
	show(write(log, "line\n", 5));
	show(lseek(log, 0, SEEK_CUR));
}

static void creations(void)
{
	struct stat st;
	must(chdir(getenv("W")));
	show(close(open("new", O_CREAT | O_EXCL | O_WRONLY, 0640)));
	show(open("new", O_CREAT | O_EXCL | O_WRONLY, 0640));
	show(fstatat(AT_FDCWD, "new", &st, 0));
	printf("%o\n", st.st_mode);
	int fd = must(open("new", O_RDWR | O_TRUNC));
	show(write(fd, "abc", 3));
	show(pread(fd, &st, 10, 1));
	close(fd);
	show(truncate("new", 2));
	fd = must(open(".", O_TMPFILE | O_RDWR, 0600));
	show(write(fd, "tmp", 3));
	show(lseek(fd, 0, SEEK_SET));
	show(read(fd, &st, 10));
	close(fd);
	fd = must(open("via creat", O_CREAT | O_WRONLY | O_TRUNC, 0666));
	close(must(creat("created", 0604)));
	close(fd);
}

static void walk(void)
{
	struct stat st;
	char text[4096];
	int root = must(open(".", O_RDONLY | O_DIRECTORY));
	must(chdir("src/d0"));
	show(stat("f0.c", &st));
	show(st.st_size);
	int up = must(open("..", O_RDONLY | O_DIRECTORY));
	must(fchdir(up));
	show(stat("d0/f1.c", &st));
	show(st.st_size);
	show(stat("f0.c", &st));
	show(access("d1/../d0/f2.c", R_OK));
	show(faccessat(up, "d0/f3.c", W_OK, AT_EACCESS));
	show(syscall(SYS_faccessat2, up, "d0/nothing", R_OK, 0));
	must(fchdir(root));
	ssize_t n = readlink("odd/link", text, sizeof text);
	printf("link %zd %.*s\n", n, (int)n, text);
	n = readlinkat(root, "odd/dangling", text, 3);
	printf("link %zd %.*s\n", n, (int)n, text);
	show(readlink("odd/hard", text, sizeof text));
	show(lstat("odd/loop", &st));
	struct statx x;
	show(statx(root, "big", AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &x));
	show(x.stx_size);
	show(statx(root, "", AT_EMPTY_PATH, STATX_TYPE, &x));
	const char *resolve[] = { "odd/to a directory/f0.c", "../x", "/etc/passwd", "odd/link", "src/d0/f5.c" };
	static const unsigned long how[] = { RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_IN_ROOT, RESOLVE_CACHED };
	for (int i = 0; i < 5; i++)
		for (int j = 0; j < 3; j++) {
			struct open_how h = { .flags = O_RDONLY, .resolve = how[j] };
			int fd = syscall(SYS_openat2, root, resolve[i], &h, sizeof h);
			printf("openat2 %s %lx: %s\n", resolve[i], how[j], fd < 0 ? strerrorname_np(errno) : "open");
			if (fd >= 0)
				close(fd);
		}
}

int main(int argc, char **argv)
{
	if (!strcmp(argv[1], "directories")) {
		for (size_t size = 24; size < 40000; size *= 3)
			directory(size);
		seek_directory();
	} else if (!strcmp(argv[1], "flags"))
		flags();
	else if (!strcmp(argv[1], "transfers"))
		transfers();
	else if (!strcmp(argv[1], "creations"))
		creations();
	else
		walk();
	return 0;
}
