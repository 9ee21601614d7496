#include "codec/legacy_removal.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace nftp {

namespace {

bool Has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsOwn(const OwnChains& own, std::string_view name) {
  const auto begins = [name](const std::string& prefix) { return name.compare(0, prefix.size(), prefix) == 0; };
  return Has(own.entries, name) || Has(own.others, name) ||
         std::any_of(own.prefixes.begin(), own.prefixes.end(), begins);
}

class Planner {
 public:
  Planner(const LegacyTable& table, const OwnChains& own) : table_(table), chains_(table.chains()) {
    own_.reserve(chains_.size());
    for (const LegacyChain& chain : chains_) {
      own_.push_back(!chain.base && IsOwn(own, chain.name));
      entry_.push_back(own_.back() && Has(own.entries, chain.name));
    }
    kept_.resize(chains_.size());
    goes_.resize(table.entries().size());
  }

  LegacyRemoval Run() {
    for (size_t chain = 0; chain < chains_.size(); ++chain) {
      if (!own_[chain]) ReadUses(chain);
    }
    KeepReachable();
    for (size_t chain = 0; chain < chains_.size(); ++chain) {
      if (!own_[chain] || kept_[chain]) continue;
      ++removal_.chains;
      std::fill(goes_.begin() + chains_[chain].begin, goes_.begin() + chains_[chain].end, true);
    }
    if (!removal_.nothing()) Place();
    return std::move(removal_);
  }

 private:
  // Reads the rules of a chain that is built in or belongs to another program.
  void ReadUses(size_t user) {
    const LegacyChain& chain = chains_[user];
    for (uint32_t index = chain.begin; index < chain.end; ++index) {
      const int32_t to = table_.entries()[index].to;
      if (to == LegacyEntry::kNoChain || !own_[static_cast<size_t>(to)]) continue;
      const auto target = static_cast<size_t>(to);
      if (chain.base && entry_[target]) {
        goes_[index] = true;
        ++removal_.jumps;
      } else if (!kept_[target]) {
        Keep(target);
        removal_.kept.push_back({std::string(chains_[target].name), "a rule of chain " + std::string(chain.name)});
      }
    }
  }

  void Keep(size_t chain) {
    kept_[chain] = true;
    reached_.push_back(chain);
  }

  // Keeps everything that kept chains lead to.
  void KeepReachable() {
    while (!reached_.empty()) {
      const LegacyChain& chain = chains_[reached_.back()];
      reached_.pop_back();
      for (uint32_t index = chain.begin; index < chain.end; ++index) {
        const int32_t to = table_.entries()[index].to;
        if (to == LegacyEntry::kNoChain) continue;
        const auto target = static_cast<size_t>(to);
        if (own_[target] && !kept_[target]) Keep(target);
      }
    }
  }

  void Place() {
    const std::vector<LegacyEntry>& entries = table_.entries();
    removal_.moved.reserve(entries.size() + 1);
    removal_.left.reserve(static_cast<size_t>(std::count(goes_.begin(), goes_.end(), false)));
    uint32_t offset = 0;
    for (uint32_t index = 0; index < entries.size(); ++index) {
      removal_.moved.push_back(offset);
      if (goes_[index]) continue;
      removal_.left.push_back(index);
      offset += table_.SizeOf(index);
    }
    removal_.moved.push_back(offset);
    removal_.length = offset + (table_.length() - table_.end());
    removal_.hooks = table_.hooks();
    for (size_t hook = 0; hook < removal_.hooks.entry.size(); ++hook) {
      if ((removal_.hooks.valid & (1U << hook)) == 0) continue;
      // A chain's last entry, the policy, is never removed, so the entry after the first removed one is in the same
      // chain.
      for (uint32_t* at : {&removal_.hooks.entry[hook], &removal_.hooks.underflow[hook]}) {
        *at = removal_.moved[table_.IndexOf(*at)];
      }
    }
  }

  const LegacyTable& table_;
  const std::vector<LegacyChain>& chains_;
  // Per chain: whether it is the program's, whether built-in chains jump to it, and whether it stays nevertheless.
  std::vector<bool> own_;
  std::vector<bool> entry_;
  std::vector<bool> kept_;
  std::vector<size_t> reached_;
  // Per entry: whether it is removed.
  std::vector<bool> goes_;
  LegacyRemoval removal_;
};

}  // namespace

LegacyRemoval PlanRemoval(const LegacyTable& table, const OwnChains& own) { return Planner(table, own).Run(); }

void WriteRemaining(const LegacyTable& table, const LegacyRemoval& removal, uint8_t* to) {
  for (const uint32_t index : removal.left) {
    const LegacyEntry& entry = table.entries()[index];
    const uint32_t size = table.SizeOf(index);
    std::memcpy(to, table.data() + entry.offset, size);
    if (entry.to != LegacyEntry::kNoChain || entry.falls_through) {
      // The first entry of a user's chain is its head.
      const uint32_t verdict = entry.falls_through
                                   ? removal.moved[index] + size
                                   : removal.moved[table.chains()[static_cast<size_t>(entry.to)].begin + 1];
      std::memcpy(to + table.VerdictOf(index), &verdict, sizeof verdict);
    }
    to += size;
  }
  std::memcpy(to, table.data() + table.end(), table.length() - table.end());
}

}  // namespace nftp
