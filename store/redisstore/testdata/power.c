// Stands between a server and the system's fsync and fdatasync, and notes how long each file was when it was last synced:
// that much of it a loss of power leaves for certain. A file's note is named after its inode, in the folder SYNCED. While
// there is a file "slow" in it, a sync does not end, and a file "syncing" says that one was begun.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void path(char *to, size_t size, const char *name) { snprintf(to, size, "%s/%s", getenv("SYNCED"), name); }

static void hang(void) {
	char slow[4096], syncing[4096];
	path(slow, sizeof slow, "slow");
	path(syncing, sizeof syncing, "syncing");
	while (access(slow, F_OK) == 0) {
		close(open(syncing, O_WRONLY | O_CREAT, 0600));
		usleep(1000);
	}
}

static int synced(int fd, const char *name) {
	int (*sync)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
	struct stat file;
	if (fstat(fd, &file) != 0) return sync(fd);
	int res = sync(fd); // what was written while it ran is not counted
	if (res != 0 || !S_ISREG(file.st_mode)) return res;
	hang();
	char name_of[32], note[32], file_of[4096];
	snprintf(name_of, sizeof name_of, "%llu", (unsigned long long)file.st_ino);
	path(file_of, sizeof file_of, name_of);
	int len = snprintf(note, sizeof note, "%020lld", (long long)file.st_size);
	int to = open(file_of, O_WRONLY | O_CREAT, 0600);
	if (to < 0 || pwrite(to, note, len, 0) != len) abort(); // a test that is not told would be blind
	close(to);
	return res;
}

int fsync(int fd) { return synced(fd, "fsync"); }

int fdatasync(int fd) { return synced(fd, "fdatasync"); }
