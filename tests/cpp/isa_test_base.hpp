// Tests that run once per instruction-set level, with the level in their name; one this machine lacks is skipped.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kwker/cpu/isa.hpp"
#include "kwker/kernels/table.hpp"

namespace kwker::testing {

inline const std::vector<Isa> kAllIsas = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx};

class IsaTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    const std::vector<Isa> levels = isa_levels();
    if (std::find(levels.begin(), levels.end(), GetParam()) == levels.end()) {
      GTEST_SKIP() << "this machine (or KWKER_MAX_ISA) has no " << isa_name(GetParam());
    }
    scope_ = std::make_unique<ScopedIsa>(GetParam());
    // The level must be the one that runs, not a fallback that would make the test say nothing.
    ASSERT_EQ(kernel_table(current_isa()).isa, GetParam());
  }
  const KernelTable& kernels() const { return kernel_table(current_isa()); }

 private:
  std::unique_ptr<ScopedIsa> scope_;
};

inline std::string isa_test_name(const ::testing::TestParamInfo<Isa>& info) { return isa_name(info.param); }

}  // namespace kwker::testing

#define KWKER_INSTANTIATE_ISA_TEST(Suite) \
  INSTANTIATE_TEST_SUITE_P(Isa, Suite, ::testing::ValuesIn(::kwker::testing::kAllIsas), ::kwker::testing::isa_test_name)
