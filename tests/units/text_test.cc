// SPDX-License-Identifier: Apache-2.0
// Quantities from text: every unit, and every way to get one wrong.
#include "model/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/base/quantity_limits.h"

namespace orrery {
namespace {

using ::testing::HasSubstr;

double BytesOf(const char* text) { return ParseBytes(text, nullptr).value_or(Bytes(-1)).value; }
double SecondsOf(const char* text) {
  return ParseSeconds(text, nullptr).value_or(Seconds(-1)).value;
}
double RateOf(const char* text) {
  return ParseBytesPerSecond(text, nullptr).value_or(BytesPerSecond(-1)).value;
}
double FlopsOf(const char* text) {
  return ParseFlopsPerSecond(text, nullptr).value_or(FlopsPerSecond(-1)).value;
}
double PriceOf(const char* text) {
  return ParseDollarsPerHour(text, nullptr).value_or(DollarsPerHour(-1)).value;
}
std::string BytesError(const char* text) {
  std::string error;
  EXPECT_FALSE(ParseBytes(text, &error)) << text;
  return error;
}

TEST(ParseQuantity, KnowsDecimalAndBinaryBytes) {
  EXPECT_EQ(BytesOf("80GiB"), 80.0 * 1024 * 1024 * 1024);
  EXPECT_EQ(BytesOf("80 GB"), 80e9);
  EXPECT_EQ(BytesOf("1.5KiB"), 1536);
  EXPECT_EQ(BytesOf("0B"), 0);
  EXPECT_EQ(BytesOf("  7 MB "), 7e6);
  EXPECT_EQ(BytesOf("1e3kB"), 1e6);
}

TEST(ParseQuantity, BitsAreEighthsOfBytes) {
  EXPECT_EQ(RateOf("100Gbps"), 12.5e9);
  EXPECT_EQ(RateOf("100GBps"), 100e9);
  EXPECT_EQ(RateOf("400Gbit/s"), 50e9);
  EXPECT_EQ(RateOf("900GB/s"), 900e9);
  EXPECT_EQ(RateOf("1GiB/s"), 1024.0 * 1024 * 1024);
  EXPECT_EQ(RateOf("10Mbps"), 1.25e6);
}

TEST(ParseQuantity, KnowsTimesComputeAndPrices) {
  EXPECT_DOUBLE_EQ(SecondsOf("3us"), 3e-6);
  EXPECT_DOUBLE_EQ(SecondsOf("250ns"), 250e-9);
  EXPECT_DOUBLE_EQ(SecondsOf("1.5ms"), 1.5e-3);
  EXPECT_DOUBLE_EQ(SecondsOf("2min"), 120);
  EXPECT_DOUBLE_EQ(SecondsOf("0.5h"), 1800);
  EXPECT_DOUBLE_EQ(FlopsOf("312TFLOP/s"), 312e12);
  EXPECT_DOUBLE_EQ(FlopsOf("1 PFLOP/s"), 1e15);
  EXPECT_DOUBLE_EQ(PriceOf("13.11USD/h"), 13.11);
  EXPECT_DOUBLE_EQ(PriceOf("0$/h"), 0);
}

TEST(ParseQuantity, ABareNumberNamesWhatToWrite) {
  const std::string error = BytesError("80");
  EXPECT_THAT(error, HasSubstr("'80' has no unit"));
  EXPECT_THAT(error, HasSubstr("write 80GiB"));
  EXPECT_THAT(error, HasSubstr("KiB, MiB, GiB"));
}

TEST(ParseQuantity, AnUnknownUnitNamesTheNearestAndAllAccepted) {
  const std::string error = BytesError("80gib");
  EXPECT_THAT(error, HasSubstr("unknown unit 'gib'"));
  EXPECT_THAT(error, HasSubstr("did you mean 80GiB?"));
  EXPECT_THAT(error, HasSubstr("B, kB, MB"));
  std::string rate_error;
  EXPECT_FALSE(ParseBytesPerSecond("25parsecs", &rate_error));
  EXPECT_THAT(rate_error, HasSubstr("unknown unit 'parsecs'"));
  EXPECT_THAT(rate_error, HasSubstr("Gbps"));
  std::string time_error;
  EXPECT_FALSE(ParseSeconds("3 GiB", &time_error));
  EXPECT_THAT(time_error, HasSubstr("ns, us, ms, s, min, h, d"));
}

TEST(ParseQuantity, ReadsDaysAndMoney) {
  TextError error;
  EXPECT_DOUBLE_EQ(ParseQuantity<Seconds>("30d", &error)->value, 30 * 86400.0);
  EXPECT_DOUBLE_EQ(ParseQuantity<Dollars>("500kUSD", &error)->value, 5e5);
  EXPECT_DOUBLE_EQ(ParseQuantity<Dollars>("2.5 MUSD", &error)->value, 2.5e6);
  EXPECT_DOUBLE_EQ(ParseQuantity<Dollars>("80$", &error)->value, 80);
  EXPECT_FALSE(ParseQuantity<Dollars>("500", &error));
  EXPECT_EQ(error.message, "'500' has no unit");
  EXPECT_FALSE(ParseQuantity<Dollars>("500EUR", &error));
}

TEST(ParseQuantity, RefusesWhatIsNoNumber) {
  for (const char* text :
       {"", " ", "GiB", "abc", "nanGiB", "infGiB", "+5GiB", "--5GiB", ".GiB", "-"}) {
    EXPECT_THAT(BytesError(text), HasSubstr("expected an amount of memory")) << text;
  }
  EXPECT_THAT(BytesError("1_000GiB"), HasSubstr("unknown unit"));
  EXPECT_THAT(BytesError("0x10GiB"), HasSubstr("unknown unit"));
}

TEST(ParseQuantity, RefusesNegativeAndInfinite) {
  for (const char* text : {"-5GiB", "-0GiB", "1e400GiB", "1e308PiB", "1.1e9PiB"}) {
    EXPECT_THAT(BytesError(text), HasSubstr("out of range")) << text;
  }
  TextError error;
  for (const char* text : {"1e400GiB", "1e308PiB", "1.1e9PiB"}) {
    EXPECT_FALSE(ParseQuantity<Bytes>(text, &error));
    EXPECT_EQ(error.hint, "at most 1e9PiB") << text;
    EXPECT_TRUE(IsTooLarge(error));
  }
  EXPECT_TRUE(ParseQuantity<Bytes>("1e9PiB", &error));
  EXPECT_FALSE(ParseQuantity<Bytes>("-1GiB", &error));
  EXPECT_FALSE(IsTooLarge(error));
}

TEST(ParseQuantity, RefusesLessThanAnyOfItsKindButZero) {
  TextError error;
  for (const char* text : {"1e-400GiB", "1e-308B", "5e-324PiB", "1e-10B"}) {
    EXPECT_FALSE(ParseQuantity<Bytes>(text, &error));
    EXPECT_EQ(error.hint, "at least 1e-9B, up to 1e9PiB") << text;
    EXPECT_TRUE(IsTooSmall(error));
    EXPECT_FALSE(IsTooLarge(error));
  }
  EXPECT_FALSE(ParseQuantity<Seconds>("1e-308d", &error));
  EXPECT_EQ(error.hint, "at least 1e-9ns, up to 1e9d");
  EXPECT_TRUE(ParseQuantity<Bytes>("0GiB", &error));
  EXPECT_TRUE(ParseQuantity<Bytes>("1e-9B", &error));
  EXPECT_TRUE(ParseQuantity<Seconds>("1e-9ns", &error));
}

// A step of 1e308 s in a record printed 300 digits.
TEST(Format, NeedsFewLettersForAnyNumber) {
  for (const double number : {1e15, 1e20, 1e100, 1e308}) {
    EXPECT_LT(Format(Seconds(number)).size(), 16u) << number;
    EXPECT_LT(Format(Bytes(number)).size(), 16u) << number;
    EXPECT_LT(Format(DollarsPerHour(number)).size(), 16u) << number;
  }
}

TEST(ParseQuantity, KeepsMessageAndHintApart) {
  TextError error;
  EXPECT_FALSE(ParseQuantity<Seconds>("3", &error));
  EXPECT_EQ(error.message, "'3' has no unit");
  EXPECT_THAT(error.hint, HasSubstr("write 3us"));
}

TEST(Quantity, ArithmeticGivesTheRightKind) {
  const Seconds time = Bytes(100) / BytesPerSecond(50);
  EXPECT_EQ(time.value, 2);
  EXPECT_EQ((BytesPerSecond(50) * time).value, 100);
  EXPECT_EQ((DollarsPerHour(7.2) * Seconds(1800)).value, 3.6);
  EXPECT_EQ(Bytes(6) / Bytes(3), 2.0);
  EXPECT_LT(Seconds(1), Seconds(2));
}

}  // namespace
}  // namespace orrery
