// The addon's function for the memory of a startup snapshot.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "js/async_task.h"
#include "js/exports.h"
#include "socket/socket.h"

namespace nftp {

namespace {

// Node's copy of V8's part of the file.
struct SnapshotCopy {
  uintptr_t from;
  uintptr_t to;
};

// glibc maps a large block of memory on its own, after a header of this size.
constexpr size_t kBlockHeader = 16;
// V8's part begins within this many bytes of the file, after a description of Node.
constexpr size_t kHead = 4096;
constexpr size_t kPiece = 64 << 10;
// Less is not V8's part.
constexpr size_t kLeast = 1 << 20;

// Reads this process's memory by a file, because another thread may unmap it meanwhile.
bool ReadMemory(const Fd& memory, uintptr_t address, uint8_t* to, size_t length) {
  return pread(memory.get(), to, length, static_cast<off_t>(address)) == static_cast<ssize_t>(length);
}

// Returns the end of the memory from `address` that equals the file from `offset`, in whole pieces and pages.
uintptr_t EndOfEqual(const Fd& memory, uintptr_t address, uintptr_t end, const Fd& file, size_t offset, size_t page) {
  std::vector<uint8_t> in_memory(kPiece);
  std::vector<uint8_t> in_file(kPiece);
  const uintptr_t start = address;
  for (size_t length = kPiece; length >= page;) {
    const off_t at = static_cast<off_t>(offset + (address - start));
    const bool equal = end - address >= length && ReadMemory(memory, address, in_memory.data(), length) &&
                       pread(file.get(), in_file.data(), length, at) == static_cast<ssize_t>(length) &&
                       std::memcmp(in_memory.data(), in_file.data(), length) == 0;
    if (equal) {
      address += length;
    } else {
      length /= 2;
    }
  }
  return address;
}

// Returns the whole pages of Node's copy, without the first page, or nothing. Each byte of them equals the file's.
SnapshotCopy FindCopy(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const Fd memory(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return {};
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  uint8_t head[kHead];
  SnapshotCopy found = {};
  char line[512];
  const bool readable = pread(file.get(), head, kHead, 0) == static_cast<ssize_t>(kHead);
  while (readable && found.to == 0 && std::fgets(line, sizeof line, maps) != nullptr) {
    unsigned long from = 0;
    unsigned long to = 0;
    unsigned long inode = 0;
    const int fields = std::sscanf(line, "%lx-%lx rw-p %*x %*s %lu", &from, &to, &inode);
    if (fields != 3 || inode != 0 || to - from < kLeast) continue;
    uint8_t begin[64];
    if (!ReadMemory(memory, from + kBlockHeader, begin, sizeof begin)) continue;
    const void* same = memmem(head, kHead, begin, sizeof begin);
    if (same == nullptr) continue;
    // From the second page on: the first has the block's header, which free() reads.
    const size_t offset = static_cast<size_t>(static_cast<const uint8_t*>(same) - head) + page - kBlockHeader;
    const uintptr_t end = EndOfEqual(memory, from + page, to, file, offset, page);
    if (end - from > kLeast) found = {from + page, end};
  }
  std::fclose(maps);
  return found;
}

// releaseStartupSnapshot(path): returns the memory of Node's copy of the snapshot, which V8 has read. V8 would read it
// again only for another context or isolate, so the process must make none: it would end with SIGSEGV.
Napi::Value ReleaseStartupSnapshot(const Napi::CallbackInfo& info) {
  const std::string path = info[0].ToString();
  return RunTask(info.Env(), "release startup snapshot", [path] {
    const auto [from, to] = FindCopy(path);
    void* pages = reinterpret_cast<void*>(from);
    if (to != 0 && madvise(pages, to - from, MADV_DONTNEED) == 0) mprotect(pages, to - from, PROT_NONE);
    return std::monostate{};
  });
}

}  // namespace

void AddStartupSnapshot(Napi::Object exports) {
  Export(exports, {{"releaseStartupSnapshot", Guarded<ReleaseStartupSnapshot>}});
}

}  // namespace nftp
