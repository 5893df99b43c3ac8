// How many CPUs this process may really use.
#pragma once

namespace kwker {

/// The CPUs in the affinity mask, capped by the cgroup's quota (rounded up); at least 1.
int usable_cpus();

}  // namespace kwker
