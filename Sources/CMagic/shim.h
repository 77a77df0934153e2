/// libmagic: a file's MIME type by its content.
#pragma once
#include <magic.h>
