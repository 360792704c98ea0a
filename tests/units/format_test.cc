// SPDX-License-Identifier: Apache-2.0
// Quantities as text: three significant digits and the unit a person would choose.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "model/base/text.h"

namespace orrery {
namespace {

constexpr double kGi = 1024.0 * 1024 * 1024;

TEST(FormatBytes, ChoosesTheBinaryUnit) {
  EXPECT_EQ(Format(Bytes(0)), "0 B");
  EXPECT_EQ(Format(Bytes(512)), "512 B");
  EXPECT_EQ(Format(Bytes(1024)), "1.00 KiB");
  EXPECT_EQ(Format(Bytes(16.35 * kGi)), "16.4 GiB");
  EXPECT_EQ(Format(Bytes(80 * kGi)), "80.0 GiB");
  EXPECT_EQ(Format(Bytes(1010 * kGi)), "1010 GiB");
  EXPECT_EQ(Format(Bytes(1024 * kGi)), "1.00 TiB");
  EXPECT_EQ(Format(Bytes(-2 * kGi)), "-2.00 GiB");
}

TEST(FormatSeconds, RunsFromNanosecondsToHours) {
  EXPECT_EQ(Format(Seconds(0)), "0 s");
  EXPECT_EQ(Format(Seconds(2.5e-9)), "2.50 ns");
  EXPECT_EQ(Format(Seconds(3e-6)), "3.00 us");
  EXPECT_EQ(Format(Seconds(0.537)), "537 ms");
  EXPECT_EQ(Format(Seconds(0.99999)), "1.00 s");
  EXPECT_EQ(Format(Seconds(90)), "90.0 s");
  EXPECT_EQ(Format(Seconds(1500)), "25.0 min");
  EXPECT_EQ(Format(Seconds(36e4)), "100 h");
}

TEST(FormatRates, UsePowersOfThousand) {
  EXPECT_EQ(Format(BytesPerSecond(12.5e9)), "12.5 GB/s");
  EXPECT_EQ(Format(BytesPerSecond(999.6e6)), "1.00 GB/s");
  EXPECT_EQ(Format(FlopsPerSecond(312e12)), "312 TFLOP/s");
  EXPECT_EQ(Format(FlopsPerSecond(1.979e15)), "1.98 PFLOP/s");
  EXPECT_EQ(Format(DollarsPerHour(13.109)), "13.1 USD/h");
  EXPECT_EQ(Format(DollarsPerHour(0.0123)), "0.0123 USD/h");
  EXPECT_EQ(Format(DollarsPerHour(12345.6)), "12346 USD/h");
}

TEST(Format, RoundingNeverLeavesFourDigitsWithAPoint) {
  EXPECT_EQ(Format(DollarsPerHour(9.996)), "10.0 USD/h");
  EXPECT_EQ(Format(DollarsPerHour(99.96)), "100 USD/h");
  EXPECT_EQ(Format(DollarsPerHour(999.6)), "1000 USD/h");
}

TEST(Format, SurvivesWhatIsNoNumber) {
  EXPECT_EQ(Format(Seconds(std::numeric_limits<double>::infinity())), "inf s");
  EXPECT_NE(Format(Seconds(std::nan(""))).find("nan"), std::string::npos);
  EXPECT_EQ(Format(Bytes(std::numeric_limits<double>::infinity())), "inf B");
  EXPECT_FALSE(Format(Seconds(std::numeric_limits<double>::denorm_min())).empty());
  EXPECT_FALSE(Format(Bytes(std::numeric_limits<double>::max())).empty());
}

// What Format writes, Parse reads back to the same three digits, over thirty decades.
TEST(Format, IsReadBackByParse) {
  for (double value = 1e-9; value < 1e3; value *= 1.7) {
    const auto back = ParseSeconds(Format(Seconds(value)), nullptr);
    ASSERT_TRUE(back) << value;
    EXPECT_NEAR(back->value / value, 1, 6e-3) << Format(Seconds(value));
  }
  for (double value = 1; value < 1e17; value *= 1.7) {
    const auto bytes = ParseBytes(Format(Bytes(value)), nullptr);
    const auto rate = ParseBytesPerSecond(Format(BytesPerSecond(value)), nullptr);
    const auto flops = ParseFlopsPerSecond(Format(FlopsPerSecond(value)), nullptr);
    ASSERT_TRUE(bytes && flops) << value;
    EXPECT_NEAR(bytes->value / value, 1, 6e-3) << Format(Bytes(value));
    EXPECT_NEAR(flops->value / value, 1, 6e-3) << Format(FlopsPerSecond(value));
    if (value < 1e15) {
      ASSERT_TRUE(rate) << Format(BytesPerSecond(value));
      EXPECT_NEAR(rate->value / value, 1, 6e-3);
    }
  }
}

}  // namespace
}  // namespace orrery
