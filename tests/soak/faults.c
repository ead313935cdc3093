// A library to preload: it counts what the program does to the files below FAULT_ROOT and, at the operation
// FAULT_AT (from 1), does what FAULT says. tests/soak.rs compiles it and says what has to follow.
//
//   list    append every operation to FAULT_LOG
//   kill    SIGKILL before the operation
//   torn    at the first write from there on, half of it, then SIGKILL
//   stop    SIGSTOP before the operation
//   full    from there on no file can be made or grow (ENOSPC)
//   slow    from there on every operation takes up to 30 ms, as on a network file system
//   clock   from there on the clock is a day ahead, at every second operation a day behind
//   unread  a read fails (EIO); FAULT_AT counts reads
//
// What was hit is appended to FAULT_LOG as "FAULT OPERATION PATH".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(name) *)real(#name))
#define MOST_FILES 4096

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

static atomic_long operations;
static char paths[MOST_FILES][512];
static const char *root, *fault, *log_path;
static long at;

__attribute__((constructor)) static void start(void) {
  const char *number = getenv("FAULT_AT");
  root = getenv("FAULT_ROOT");
  fault = getenv("FAULT") ? getenv("FAULT") : "";
  log_path = getenv("FAULT_LOG");
  at = number ? atol(number) : 0;
}

static int is(const char *name) { return strcmp(fault, name) == 0; }

static int below(const char *path) { return root && path && strncmp(path, root, strlen(root)) == 0; }

static const char *path_of(int fd) { return fd >= 0 && fd < MOST_FILES ? paths[fd] : ""; }

static void say(const char *operation, const char *path) {
  char line[1024];
  int length = snprintf(line, sizeof line, "%s %s %s\n", fault, operation, path);
  int log = REAL(open64)(log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (log >= 0) {
    REAL(write)(log, line, length);
    REAL(close)(log);
  }
}

// Called before an operation; 1 where it has to fail with `errno`, 2 where it is to be torn.
static int before(const char *operation, const char *path, int reads, int grows) {
  if (!below(path) || reads != is("unread")) return 0;
  long number = atomic_fetch_add(&operations, 1) + 1;
  if (is("list")) say(operation, path);
  if (!at || number < at) return 0;
  if (number == at && !is("torn")) say(operation, path);
  if (number == at && is("kill")) kill(getpid(), SIGKILL);
  if (number == at && is("stop")) kill(getpid(), SIGSTOP);
  if (is("slow")) usleep(number * 7919 % 30000);
  if (number == at && is("unread")) return errno = EIO, 1;
  if (is("full") && grows) return errno = ENOSPC, 1;
  return is("torn") && grows ? 2 : 0;
}

static int changes(int flags) { return flags & (O_CREAT | O_TRUNC); }

static int opened(int fd, const char *path) {
  if (fd >= 0 && fd < MOST_FILES) snprintf(paths[fd], sizeof paths[fd], "%s", below(path) ? path : "");
  return fd;
}

int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (changes(flags) && before("create", path, 0, 1) == 1) return -1;
  return opened(REAL(open64)(path, flags, mode), path);
}

int close(int fd) {
  opened(fd, "");
  return REAL(close)(fd);
}

ssize_t write(int fd, const void *data, size_t length) {
  int found = before("write", path_of(fd), 0, 1);
  if (found == 2) {
    REAL(write)(fd, data, length / 2);
    say("write", path_of(fd));
    kill(getpid(), SIGKILL);
  }
  return found == 1 ? -1 : REAL(write)(fd, data, length);
}

ssize_t read(int fd, void *data, size_t length) {
  return before("read", path_of(fd), 1, 0) == 1 ? -1 : REAL(read)(fd, data, length);
}

ssize_t pread64(int fd, void *data, size_t length, off64_t from) {
  return before("read", path_of(fd), 1, 0) == 1 ? -1 : REAL(pread64)(fd, data, length, from);
}

int rename(const char *from, const char *to) {
  return before("rename", to, 0, 0) == 1 ? -1 : REAL(rename)(from, to);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags) {
  return before("link", to, 0, 1) == 1 ? -1 : REAL(linkat)(from_fd, from, to_fd, to, flags);
}

int symlink(const char *target, const char *path) {
  return before("lease", path, 0, 1) == 1 ? -1 : REAL(symlink)(target, path);
}

int unlink(const char *path) {
  return before("remove", path, 0, 0) == 1 ? -1 : REAL(unlink)(path);
}

int mkdir(const char *path, mode_t mode) {
  return before("mkdir", path, 0, 1) == 1 ? -1 : REAL(mkdir)(path, mode);
}

int fsync(int fd) { return before("sync", path_of(fd), 0, 0) == 1 ? -1 : REAL(fsync)(fd); }

int clock_gettime(clockid_t clock, struct timespec *time) {
  int result = REAL(clock_gettime)(clock, time);
  long number = atomic_load(&operations);
  if (clock == CLOCK_REALTIME && is("clock") && number >= at) time->tv_sec += number & 1 ? 86400 : -86400;
  return result;
}
