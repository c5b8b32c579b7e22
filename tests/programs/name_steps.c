/* Makes, changes, renames and removes files at random in the working directory. Prints the result
 * of each step and the final tree. Two runs with one seed on equal trees print the same. Arguments:
 * seed, steps. */
#include "program_helpers.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <linux/fs.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>

static uint64_t state;
static char here[PATH_MAX];

static unsigned below(unsigned bound)
{
	uint64_t x = state += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return (x ^ (x >> 31)) % bound;
}

/* A name from a short list, so that files, directories and links meet often, and with another type
 * than expected. */
static void piece(char *to)
{
	static const char *names[] = { "a", "b", "c", "d0", "d1", "d2", "l", "long name" };
	strcat(to, names[below(sizeof names / sizeof *names)]);
}

static char *path(char *to)
{
	*to = 0;
	switch (below(10)) {
	case 0:
		strcpy(to, here);
		strcat(to, "/");
		break;
	case 1:
		strcpy(to, "./");
		break;
	case 2:
		piece(to);
		strcat(to, "/../");
		break;
	}
	for (unsigned depth = below(3); depth > 0; depth--) {
		piece(to);
		strcat(to, "/");
	}
	piece(to);
	if (!below(20))
		strcat(to, "/");
	return to;
}

/* The directory, if it is to be named by a descriptor. */
static int directory(char *name)
{
	*name = 0;
	if (below(3))
		return AT_FDCWD;
	piece(name);
	int fd = open(name, O_RDONLY | O_DIRECTORY);
	return fd < 0 ? AT_FDCWD : fd;
}

static void leave(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void told(const char *what, const char *a, const char *b, long ret)
{
	int error = ret < 0 ? errno : 0;
	printf("%s %s%s%s: %s\n", what, strncmp(a, here, strlen(here)) ? a : a + strlen(here), *b ? " " : "",
	       strncmp(b, here, strlen(here)) ? b : b + strlen(here), error ? strerrorname_np(error) : "done");
}

static void contents(int fd)
{
	char text[4096];
	ssize_t len = pread(fd, text, sizeof text, 0);
	printf("  %zd bytes, %u\n", len, len < 0 ? 0 : sum(text, len));
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char **)a, *(char **)b);
}

static int list(const char *name, char **names, int most)
{
	DIR *dir = opendir(name);
	struct dirent *entry;
	int count = 0;
	if (!dir)
		return -1;
	while (count < most && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			names[count++] = strdup(entry->d_name);
	closedir(dir);
	qsort(names, count, sizeof *names, by_name);
	return count;
}

static void tell(const char *name, const struct stat *s)
{
	int is_dir = S_ISDIR(s->st_mode);
	printf("  %s %o %ld", name, s->st_mode, is_dir ? 0L : (long)s->st_nlink);
	if (S_ISREG(s->st_mode))
		printf(" %ld bytes", (long)s->st_size);
	if (s->st_mtime < 1500000000)
		printf(" of %ld", (long)s->st_mtime);
	printf("\n");
}

static void step(void)
{
	static char a[3 * PATH_MAX], b[3 * PATH_MAX], d[64], text[PATH_MAX];
	int dir = directory(d), fd;
	struct stat s;
	struct statx x;
	path(a);
	path(b);
	switch (below(30)) {
	case 0: case 1: case 2: case 3: {
		static const int flags[] = { O_WRONLY | O_CREAT, O_WRONLY | O_CREAT | O_TRUNC, O_RDWR | O_CREAT | O_EXCL,
					     O_RDWR | O_APPEND, O_WRONLY, O_RDWR | O_CREAT | O_NOFOLLOW, O_RDONLY | O_CREAT,
					     O_RDONLY | O_TRUNC, O_RDWR | O_CREAT | O_APPEND };
		int how = flags[below(sizeof flags / sizeof *flags)] | O_NONBLOCK;
		fd = openat(dir, a, how, 0600 + below(0100));
		told("open", a, d, fd);
		if (fd >= 0) {
			int len = sprintf(text, "%u lines of text\n", below(100000));
			if (write(fd, text, len) < 0)
				printf("  not written\n");
			if (!below(3) && pwrite(fd, "x", 1, below(200)) < 0)
				printf("  not written\n");
			if (!below(5))
				told("ftruncate", a, "", ftruncate(fd, below(100)));
			if (!below(5))
				told("fchmod", a, "", fchmod(fd, 0600 + below(0100)));
			close(fd);
		}
		break;
	}
	case 4: case 5:
		fd = openat(dir, a, O_RDONLY | (below(2) ? O_NOFOLLOW : 0) | O_NONBLOCK);
		told("read", a, d, fd);
		if (fd >= 0) {
			contents(fd);
			if (!below(3))
				told("fchmod", a, "", fchmod(fd, 0700 + below(0100)));
			close(fd);
		}
		break;
	case 6: case 7:
		told("mkdir", a, d, mkdirat(dir, a, 0700 + below(0100)));
		break;
	case 8:
		told("rmdir", a, d, unlinkat(dir, a, AT_REMOVEDIR));
		break;
	case 9: case 10:
		told("unlink", a, d, unlinkat(dir, a, 0));
		break;
	case 11: case 12: case 13:
		told("rename", a, b, renameat(dir, a, AT_FDCWD, b));
		break;
	case 14:
		told("exchange", a, b, syscall(SYS_renameat2, AT_FDCWD, a, dir, b, below(2) ? RENAME_EXCHANGE : RENAME_NOREPLACE));
		break;
	case 15:
		told("link", a, b, linkat(dir, a, AT_FDCWD, b, below(2) ? AT_SYMLINK_FOLLOW : 0));
		break;
	case 16: case 17:
		told("symlink", a, b, symlinkat(a, dir, b));
		break;
	case 18: {
		ssize_t len = readlinkat(dir, a, text, sizeof text - 1);
		told("readlink", a, d, len);
		if (len >= 0) {
			text[len] = 0;
			printf("  %s\n", strncmp(text, here, strlen(here)) ? text : text + strlen(here));
		}
		break;
	}
	case 19: case 20: {
		int flags = below(2) ? AT_SYMLINK_NOFOLLOW : 0, ret = fstatat(dir, a, &s, flags);
		told("stat", a, d, ret);
		if (!ret)
			tell("", &s);
		break;
	}
	case 21: {
		int ret = statx(dir, a, below(2) ? AT_SYMLINK_NOFOLLOW : 0, STATX_BASIC_STATS, &x);
		told("statx", a, d, ret);
		if (!ret)
			printf("  %o\n", x.stx_mode);
		break;
	}
	case 22:
		told("access", a, d, faccessat(dir, a, below(8), 0));
		break;
	case 23:
		told("chmod", a, d, fchmodat(dir, a, 0700 + below(0100), 0));
		break;
	case 24: {
		struct timespec times[2] = { { 1000000000, 5 }, { 1000000000 + below(1000), 7 } };
		told("utimens", a, d, utimensat(dir, a, times, below(2) ? AT_SYMLINK_NOFOLLOW : 0));
		break;
	}
	case 25:
		told("truncate", a, "", truncate(a, below(300)));
		break;
	case 26: {
		char *names[64];
		int count = list(a, names, 64);
		told("list", a, "", count);
		for (int n = 0; n < count; n++)
			printf("  %s\n", names[n]);
		break;
	}
	case 27:
		if (!chdir(a)) {
			told("chdir", a, "", 0);
			if (!getcwd(text, sizeof text))
				told("getcwd", a, "", -1);
			else
				printf("  %s\n", strncmp(text, here, strlen(here)) ? text : text + strlen(here));
			struct stat in;
			told("look", b, "", stat(b, &in));
			must(chdir(here));
		} else {
			told("chdir", a, "", -1);
		}
		break;
	case 28:
		told("mkfifo", a, d, mkfifoat(dir, a, 0600));
		break;
	case 29:
		/* Another process sees the same, and is seen. */
		fflush(stdout);
		if (!fork()) {
			told("child", a, "", open(a, O_WRONLY | O_CREAT | O_NONBLOCK, 0644));
			fflush(stdout);
			_exit(0);
		}
		wait(0);
		break;
	}
	leave(dir);
}

static void walk(const char *name, int depth)
{
	char *names[256], inner[3 * PATH_MAX];
	struct stat s;
	int count = list(name, names, 256);
	for (int n = 0; n < count; n++) {
		snprintf(inner, sizeof inner, "%s/%s", name, names[n]);
		if (lstat(inner, &s)) {
			told("lost", inner, "", -1);
			continue;
		}
		tell(inner, &s);
		if (S_ISREG(s.st_mode)) {
			int fd = open(inner, O_RDONLY);
			contents(fd);
			leave(fd);
		}
		if (S_ISDIR(s.st_mode) && depth < 20)
			walk(inner, depth + 1);
	}
}

int main(int argc, char **argv)
{
	if (argc < 3 || !getcwd(here, sizeof here))
		return 2;
	state = strtoull(argv[1], 0, 10);
	for (int steps = atoi(argv[2]); steps > 0; steps--)
		step();
	walk(".", 0);
	return 0;
}
