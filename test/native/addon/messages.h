// Decodes whole netlink messages, for tests and the fuzzer.
#pragma once

#include <linux/netlink.h>
#include <napi.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace nftp {

// Calls a function for every message of a buffer. Throws Failure if the lengths do not add up.
void ForEachMessage(const uint8_t* data, size_t length, const std::function<void(const nlmsghdr*)>& on_message);

// Returns every message of a buffer as a JS object. Throws Failure.
Napi::Value MessagesToJs(Napi::Env env, const uint8_t* data, size_t length);

}  // namespace nftp
