// Runs the tests. usage: selftest [part of a name]
// Those with "race" in their names need the library that looks for races, and to be asked for.
#include "selftest.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

using namespace sim;

std::vector<Test> &tests() {
  static std::vector<Test> all;
  return all;
}

void failed(const char *file, int line, const std::string &what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  std::_Exit(1);
}

void start(int ordinal) {
  EQUAL(cuInit(0), SUCCESS);
  void *context;
  EQUAL(cuDevicePrimaryCtxRetain(&context, ordinal), SUCCESS);
  EQUAL(cuCtxSetCurrent(context), SUCCESS);
}

std::string image(const char *version, const char *target) {
  std::string text =
      std::string(".version ") + version + "\n.target " + target + "\n.address_size 64\n";
  for (const char *name :
       {"fragments", "matrices", "shuffles", "copies", "reverse", "racy", "add",
        "barrier_against_shuffle", "shuffle_without_all", "different_collectives", "forgotten_wait",
        "misaligned_copy", "copy_to_global", "read_at", "group_product", "lonely_warp",
        "overwritten_operand", "move_tiles", "lanes", "uniform", "waits", "lonely_group",
        "exchange"})
    text += std::string(".visible .entry ") + name + "(\n) { ret; }\n";
  return text;
}

// Kept, as a module cannot be loaded while a stream is captured.
void *function(const char *name) {
  static void *module = nullptr;
  if (!module) EQUAL(cuModuleLoadData(&module, image().c_str()), SUCCESS);
  void *function;
  EQUAL(cuModuleGetFunction(&function, module, name), SUCCESS);
  return function;
}

std::vector<float> numbers(std::size_t count, unsigned seed) {
  std::vector<float> values(count);
  std::uint32_t state = seed * 747796405u + 2891336453u;
  for (float &value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int>(state >> 24) - 128) / 128.0f;
  }
  return values;
}

namespace {

// Whether the test does as it should; what it said otherwise.
bool passes(const Test &test, std::string &said) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    alarm(60);
    test.body();
    std::_Exit(0);
  }
  close(ends[1]);
  char buffer[4096];
  for (ssize_t bytes; (bytes = read(ends[0], buffer, sizeof buffer)) > 0;)
    said.append(buffer, static_cast<std::size_t>(bytes));
  close(ends[0]);
  int status;
  waitpid(child, &status, 0);
  if (test.aborts)
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT &&
           said.find(test.aborts) != std::string::npos;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

int main(int argc, char **argv) {
  int run = 0, wrong = 0;
  for (const Test &test : tests()) {
    if (argc > 1 ? !std::strstr(test.name, argv[1]) : std::strstr(test.name, "race") != nullptr)
      continue;
    std::string said;
    const bool good = passes(test, said);
    ++run;
    wrong += !good;
    if (!good || argc > 1)
      std::printf("%s %s\n%s", good ? "ok    " : "FAILED", test.name, said.c_str());
  }
  std::printf("simulator: %d of %d tests passed\n", run - wrong, run);
  return wrong == 0 && run > 0 ? 0 : 1;
}
