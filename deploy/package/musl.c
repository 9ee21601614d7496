/*
 * Functions that musl lacks but Debian's libnftnl and libmnl need, because they are built against glibc with checks of buffer
 * sizes. Unlike glibc's, these do not abort if a buffer is too small, because the callers check the bounds.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

__attribute__((visibility("default"))) int __snprintf_chk(char *text, size_t size, int flag, size_t room, const char *format, ...) {
  (void)flag;
  va_list arguments;
  va_start(arguments, format);
  int written = vsnprintf(text, size < room ? size : room, format, arguments);
  va_end(arguments);
  return written;
}

__attribute__((visibility("default"))) int __fprintf_chk(FILE *file, int flag, const char *format, ...) {
  (void)flag;
  va_list arguments;
  va_start(arguments, format);
  int written = vfprintf(file, format, arguments);
  va_end(arguments);
  return written;
}
