// All failures are one exception type, which crosses to JS as {code, errno, action, faults, message}.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace nftp {

// One operation that the kernel rejected.
struct Fault {
  uint32_t op = 0;
  std::optional<uint64_t> element;
  int error = 0;  // positive errno
  std::string text;
};

// Mirrors KernelErrorCode of src/nft/kernel/errors.ts.
class Failure : public std::exception {
 public:
  Failure(const char* code, std::string message, int error = 0, std::vector<Fault> faults = {})
      : code_(code), message_(std::move(message)), error_(error), faults_(std::move(faults)) {}

  // An argument that cannot be encoded.
  static Failure Invalid(std::string message) { return Failure("invalid", std::move(message)); }
  // A system call that failed. Maps errnos to codes where a code of their own exists.
  static Failure System(const std::string& what, int error);

  const char* code() const { return code_; }
  const std::string& message() const { return message_; }
  int error() const { return error_; }
  const std::vector<Fault>& faults() const { return faults_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  const char* code_;
  std::string message_;
  int error_;
  std::vector<Fault> faults_;
};

// Example: "ENOENT (No such file or directory)".
std::string DescribeErrno(int error);

}  // namespace nftp
