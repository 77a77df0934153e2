/// OpenSSL's digests (SHA-256 with the processor's own instructions).
#pragma once
#include <openssl/evp.h>
