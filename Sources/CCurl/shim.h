/// libcurl's variadic calls, one function for each type of argument, and its macros that are expressions.
#pragma once
#include <curl/curl.h>
#include <stddef.h>

// A name in parentheses is the function: curl.h also has macros of these names, which check types at compile time and
// can't see through an inline function.

static inline CURLcode marfa_curl_set_long(CURL *easy, CURLoption option, long value) {
  return (curl_easy_setopt)(easy, option, value);
}

static inline CURLcode marfa_curl_set_offset(CURL *easy, CURLoption option, curl_off_t value) {
  return (curl_easy_setopt)(easy, option, value);
}

static inline CURLcode marfa_curl_set_text(CURL *easy, CURLoption option, const char *value) {
  return (curl_easy_setopt)(easy, option, value);
}

static inline CURLcode marfa_curl_set_pointer(CURL *easy, CURLoption option, void *value) {
  return (curl_easy_setopt)(easy, option, value);
}

static inline CURLcode marfa_curl_set_list(CURL *easy, CURLoption option, struct curl_slist *value) {
  return (curl_easy_setopt)(easy, option, value);
}

/// CURLOPT_WRITEFUNCTION, CURLOPT_HEADERFUNCTION and CURLOPT_READFUNCTION.
typedef size_t (*marfa_curl_data)(char *bytes, size_t size, size_t count, void *context);

static inline CURLcode marfa_curl_set_data(CURL *easy, CURLoption option, marfa_curl_data value) {
  return (curl_easy_setopt)(easy, option, value);
}

typedef int (*marfa_curl_seek)(void *context, curl_off_t offset, int origin);

static inline CURLcode marfa_curl_set_seek(CURL *easy, marfa_curl_seek value) {
  return (curl_easy_setopt)(easy, CURLOPT_SEEKFUNCTION, value);
}

/// Called when a connection is there, right before the request goes out on it.
typedef int (*marfa_curl_prerequest)(void *context, char *, char *, int, int);

static inline CURLcode marfa_curl_set_prerequest(CURL *easy, marfa_curl_prerequest value) {
  return (curl_easy_setopt)(easy, CURLOPT_PREREQFUNCTION, value);
}

static inline CURLMcode marfa_curl_multi_set_long(CURLM *multi, CURLMoption option, long value) {
  return (curl_multi_setopt)(multi, option, value);
}

static inline CURLcode marfa_curl_global_init(void) { return curl_global_init(CURL_GLOBAL_DEFAULT); }
static inline CURLcode marfa_curl_go_on(CURL *easy) { return curl_easy_pause(easy, CURLPAUSE_CONT); }
static inline CURLcode marfa_curl_message_result(const CURLMsg *message) { return message->data.result; }

static const size_t marfa_curl_write_pause = CURL_WRITEFUNC_PAUSE;
static const size_t marfa_curl_read_abort = CURL_READFUNC_ABORT;
static const long marfa_curl_http2_over_tls = CURL_HTTP_VERSION_2TLS;
static const long marfa_curl_multiplex = CURLPIPE_MULTIPLEX;
