// A library to preload (LD_PRELOAD) into a program that replaces tables of the older iptables. It simulates another
// process that replaces the table right before the program does. It acts on the next LEGACY_RACE_TIMES calls of
// setsockopt with option LEGACY_RACE_OPTION (64: IPT_SO_SET_REPLACE, 65: IPT_SO_SET_ADD_COUNTERS). The tables come in
// turns from the files in LEGACY_RACE_TABLES, separated by colons, in the format of test/lab/legacy-tables.py. The
// kernel's answers are real.
#include <dlfcn.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace {

using SetOption = int (*)(int, int, int, const void*, socklen_t);

constexpr size_t kWords = 13;

SetOption Next() {
  static const auto next = reinterpret_cast<SetOption>(dlsym(RTLD_NEXT, "setsockopt"));
  return next;
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) std::abort();
  return value;
}

std::string NextFile() {
  static std::vector<std::string> files;
  static size_t count = 0;
  if (files.empty()) {
    std::istringstream list(Variable("LEGACY_RACE_TABLES"));
    for (std::string file; std::getline(list, file, ':');) files.push_back(file);
  }
  return files[count++ % files.size()];
}

// All requests begin with the name.
void PutOther(int fd, const void* request) {
  std::ifstream file(NextFile(), std::ios::binary);
  const std::vector<char> table{std::istreambuf_iterator<char>(file), {}};
  uint32_t words[kWords];
  if (table.size() < sizeof words) std::abort();
  std::memcpy(words, table.data(), sizeof words);
  ipt_getinfo info{};
  std::memcpy(info.name, request, sizeof info.name);
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_IP, IPT_SO_GET_INFO, &info, &length) != 0) std::abort();
  std::vector<xt_counters> counters(info.num_entries);
  std::vector<char> answer(sizeof(ipt_replace) + words[2]);
  auto* const head = reinterpret_cast<ipt_replace*>(answer.data());
  std::memcpy(head->name, info.name, sizeof head->name);
  head->valid_hooks = words[0];
  head->num_entries = words[1];
  head->size = words[2];
  std::memcpy(head->hook_entry, words + 3, sizeof head->hook_entry);
  std::memcpy(head->underflow, words + 8, sizeof head->underflow);
  head->num_counters = info.num_entries;
  head->counters = counters.data();
  std::memcpy(answer.data() + sizeof *head, table.data() + sizeof words, words[2]);
  const auto size = static_cast<socklen_t>(answer.size());
  if (Next()(fd, IPPROTO_IP, IPT_SO_SET_REPLACE, answer.data(), size) != 0) std::abort();
}

}  // namespace

extern "C" int setsockopt(int fd, int level, int option, const void* value, socklen_t length) noexcept {
  static const int wanted = std::stoi(Variable("LEGACY_RACE_OPTION"));
  static std::atomic<int> times{std::stoi(Variable("LEGACY_RACE_TIMES"))};
  if (level == IPPROTO_IP && option == wanted && times.fetch_sub(1) > 0) PutOther(fd, value);
  return Next()(fd, level, option, value, length);
}
