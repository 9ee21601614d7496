/*
 * What Debian's libnftnl and libmnl, built against glibc with checks of buffers' sizes, miss in musl. The size is checked by
 * the callers' own bounds.
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
