/// libfuse's low-level API, and what of it is a macro or variadic in C.
#pragma once
#define FUSE_USE_VERSION 314
// No _FILE_OFFSET_BITS here: every C module of one build must see the same system headers, and off_t has 64 bits on
// every machine that Swift is made for (libfuse asserts it).
#include <errno.h>
#include <fuse_lowlevel.h>
#include <sys/ioctl.h>

/// `fuse_session_new` is a macro from 3.17 on.
static inline struct fuse_session *marfa_session_new(
    struct fuse_args *args, const struct fuse_lowlevel_ops *ops, size_t size, void *userdata) {
  return fuse_session_new(args, ops, size, userdata);
}

/// What the kernel's device is told of a file that it is to read by itself. (Linux 6.9; older headers have no name for it.)
struct marfa_backing_file {
  int32_t descriptor;
  uint32_t flags;
  uint64_t padding;
};

/// Gives the kernel a file to read by itself: a positive id, or the negative errno.
static inline int marfa_backing_open(int device, int file) {
  struct marfa_backing_file backing = {.descriptor = file};
  int id = ioctl(device, _IOW(229, 1, struct marfa_backing_file), &backing);
  return id < 0 ? -errno : id;
}

/// Takes an id back. Who has the file open goes on with it.
static inline int marfa_backing_close(int device, int id) {
  uint32_t number = (uint32_t)id;
  return ioctl(device, _IOW(229, 2, uint32_t), &number) < 0 ? -errno : 0;
}
