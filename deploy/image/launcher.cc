// The image's command: starts Node with the startup snapshot for a daemon, and with the program's files for every other
// command.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

// The paths of the program's directory and of Node in the image; benchmarks and tests set other paths.
#ifndef ROOT
#define ROOT "/opt/nft-proxier"
#endif
#ifndef NODE
#define NODE "/usr/local/bin/node"
#endif

namespace {

// The commands that start a daemon: no command at all, which is kube-proxy's command line, and "run". src/start.ts has
// the same list.
bool serves(int argc, char** argv) { return argc < 2 || argv[1][0] == '-' || std::strcmp(argv[1], "run") == 0; }

}  // namespace

int main(int argc, char** argv) {
  const std::string root = ROOT;
  const std::string called = argc > 0 ? argv[0] : "nft-proxier";
  // Node tells the program the name under which it was called, from bin/ beside the files.
  const std::string name = called.substr(called.rfind('/') + 1);
  std::string script = root + "/bin/" + name;
  if (name.empty() || name[0] == '.' || access(script.c_str(), R_OK) != 0) script = root + "/dist/main.js";
  std::string snapshot = root + "/daemon.blob";

  // Otherwise glibc keeps freed memory for each thread.
  setenv("MALLOC_ARENA_MAX", "1", 0);

  // SIGUSR1 must not open Node's inspector.
  std::string node = NODE;
  std::string no_inspector = "--disable-sigusr1";
  std::string with_snapshot = "--snapshot-blob";
  std::vector<char*> words = {node.data(), no_inspector.data()};
  if (serves(argc, argv) && access(snapshot.c_str(), R_OK) == 0) {
    words.insert(words.end(), {with_snapshot.data(), snapshot.data()});
  }
  words.push_back(script.data());
  for (int i = 1; i < argc; ++i) words.push_back(argv[i]);
  words.push_back(nullptr);
  execv(NODE, words.data());
  std::perror("nft-proxier: " NODE);
  return 1;
}
