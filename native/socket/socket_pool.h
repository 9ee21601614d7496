// Sockets that wait for the next use.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace nftp {

// To close a netlink socket of netfilter's is dear: nf_tables looks whether it owned a table (nft_rcv_nl_event), keeps
// commits waiting meanwhile, and first waits until everything that earlier transactions removed is destroyed. That is a
// grace period of RCU, and tens of milliseconds after a large table or while a filtered dump walks the conntrack table.
template <typename Socket>
class SocketPool {
 public:
  using Open = std::function<std::unique_ptr<Socket>()>;

  // Keeps as many as `idle` open. `open` may throw.
  SocketPool(size_t idle, Open open) : kept_(idle), open_(std::move(open)) {}

  // None whose descriptor other code has closed meanwhile. Throws what `open` throws.
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

  // One that has received all answers to what it sent. Any other is left to its destructor.
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
