// Idle sockets for reuse.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace nftp {

// Closing a netfilter netlink socket is expensive. nf_tables checks whether it owned a table (nft_rcv_nl_event) and
// blocks commits meanwhile. First it waits until everything that earlier transactions removed is destroyed. That takes
// an RCU grace period, and tens of milliseconds after a large table or while a filtered dump walks the conntrack table.
template <typename Socket>
class SocketPool {
 public:
  using Open = std::function<std::unique_ptr<Socket>()>;

  // Keeps up to `idle` sockets open. `open` may throw.
  SocketPool(size_t idle, Open open) : kept_(idle), open_(std::move(open)) {}

  // Never returns a socket whose descriptor other code has closed. Throws what `open` throws.
  std::unique_ptr<Socket> Take() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      while (!idle_.empty()) {
        std::unique_ptr<Socket> socket = std::move(idle_.back());
        idle_.pop_back();
        if (socket->alive()) return socket;
      }
    }
    return open_();
  }

  // Takes a socket that has received all answers to its requests. Destroy any other socket instead.
  void GiveBack(std::unique_ptr<Socket> socket) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.size() < kept_) idle_.push_back(std::move(socket));
  }

 private:
  const size_t kept_;
  const Open open_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Socket>> idle_;
};

}  // namespace nftp
