// Affinity and cgroup quota.
#include "kwker/cpu/usable_cpus.hpp"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace kwker {
namespace {

/// CPUs that a quota of `quota` microseconds per `period` is worth, rounded up; a large number where there is none.
int cpus_of_quota(double quota, double period) {
  constexpr int kUnlimited = 1 << 20;
  if (!(quota > 0) || !(period > 0)) return kUnlimited;
  return static_cast<int>(std::min<double>(kUnlimited, std::max(1.0, std::ceil(quota / period))));
}

int cgroup_cpus() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (v2 >> quota >> period)
    return quota == "max" ? cpus_of_quota(-1, period) : cpus_of_quota(std::atof(quota.c_str()), period);
  std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double value = -1;
  if (v1_quota >> value && v1_period >> period) return cpus_of_quota(value, period);
  return cpus_of_quota(-1, 0);
}

int affinity_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int usable_cpus() { return std::max(1, std::min(affinity_cpus(), cgroup_cpus())); }

}  // namespace kwker
