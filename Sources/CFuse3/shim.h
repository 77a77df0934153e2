/// libfuse's low-level API, and what of it is a macro or variadic in C.
#pragma once
#define FUSE_USE_VERSION 314
// No _FILE_OFFSET_BITS here: every C module of one build must see the same system headers, and off_t has 64 bits on
// every machine that Swift is made for (libfuse asserts it).
#include <fuse_lowlevel.h>

/// `fuse_session_new` is a macro from 3.17 on.
static inline struct fuse_session *marfa_session_new(
    struct fuse_args *args, const struct fuse_lowlevel_ops *ops, size_t size, void *userdata) {
  return fuse_session_new(args, ops, size, userdata);
}
