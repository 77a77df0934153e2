/// libmicrohttpd, and its variadic calls with the arguments the tests' server gives them.
#pragma once
#include <microhttpd.h>
#include <stdint.h>

/// A daemon with a thread for each connection, on a socket that listens already (the daemon closes it).
static inline struct MHD_Daemon *marfa_http_start(
    int listening, void *context, MHD_AccessHandlerCallback handle,
    void *(*began)(void *, const char *, struct MHD_Connection *), MHD_RequestCompletedCallback completed,
    MHD_NotifyConnectionCallback connection) {
  return MHD_start_daemon(
      MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL, 0, NULL, NULL, handle, context,
      MHD_OPTION_LISTEN_SOCKET, listening, MHD_OPTION_URI_LOG_CALLBACK, began, context,
      MHD_OPTION_NOTIFY_COMPLETED, completed, context, MHD_OPTION_NOTIFY_CONNECTION, connection, context,
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(256 << 10), MHD_OPTION_CONNECTION_LIMIT, (unsigned int)4000,
      MHD_OPTION_THREAD_STACK_SIZE, (size_t)(1 << 20), MHD_OPTION_END);
}

/// The socket of a connection, -1 without one.
static inline int marfa_http_socket(struct MHD_Connection *connection) {
  const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  return info ? (int)info->connect_fd : -1;
}

/// What the connection's callback left for it.
static inline void *marfa_http_context(struct MHD_Connection *connection) {
  const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  return info ? info->socket_context : NULL;
}

/// `MHD_CONTENT_READER_END_WITH_ERROR`, a cast the importer cannot translate.
static const ssize_t marfa_http_broken = -2;
/// `MHD_CONTENT_READER_END_OF_STREAM`.
static const ssize_t marfa_http_ended = -1;
/// `MHD_SIZE_UNKNOWN`.
static const uint64_t marfa_http_unknown_size = UINT64_MAX;

// Enumerations, which the importer names one way or another as their attributes differ between releases.
static const enum MHD_Result marfa_http_yes = MHD_YES;
static const enum MHD_Result marfa_http_no = MHD_NO;
static const enum MHD_ConnectionNotificationCode marfa_http_connection_started = MHD_CONNECTION_NOTIFY_STARTED;
static const enum MHD_RequestTerminationCode marfa_http_completed = MHD_REQUEST_TERMINATED_COMPLETED_OK;
static const enum MHD_ValueKind marfa_http_headers = MHD_HEADER_KIND;
static const enum MHD_ResponseMemoryMode marfa_http_copied = MHD_RESPMEM_MUST_COPY;
