/// libfuse's low-level API, and what of it is a macro or variadic in C.
#pragma once
#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

/// `fuse_session_new` is a macro from 3.17 on.
static inline struct fuse_session *marfa_session_new(
    struct fuse_args *args, const struct fuse_lowlevel_ops *ops, size_t size, void *userdata) {
  return fuse_session_new(args, ops, size, userdata);
}
