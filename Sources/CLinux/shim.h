/// Linux calls that Swift's C importer cannot see: variadic functions and function-like macros.
#pragma once
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

// Declared here, not by _GNU_SOURCE: every C module of one build must see the same system headers.
extern ssize_t copy_file_range(int, off_t *, int, off_t *, size_t, unsigned int);
extern int fallocate(int, int, off_t, off_t);
extern int pthread_setname_np(pthread_t, const char *);
extern ssize_t splice(int, off_t *, int, off_t *, size_t, unsigned int);
extern int renameat2(int, const char *, int, const char *, unsigned int);

/// `O_DIRECT`, which only _GNU_SOURCE has by that name.
static const int marfa_o_direct = __O_DIRECT;

/// `ioctl(to, FICLONE, from)`: share the blocks of one file with another where the filesystem can.
static inline int marfa_clone(int to, int from) { return ioctl(to, FICLONE, from); }

/// `openat` with a mode, which is variadic in C.
static inline int marfa_openat(int dir, const char *path, int flags, mode_t mode) {
  return openat(dir, path, flags, mode);
}

/// The free function behind `WIFEXITED`/`WEXITSTATUS`/`WTERMSIG`: an exit status, or 128 + signal.
static inline int marfa_exit_status(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Has a process of its own take away what is mounted at `path`: its id, or -1. It ends with 0 or with the error, and only
/// when the kernel has dropped all it knew of the mount's files.
static inline pid_t marfa_umount_apart(const char *path, int flags) {
  pid_t child = fork();
  if (child == 0) _exit(umount2(path, flags) == 0 ? 0 : errno);
  return child;
}
