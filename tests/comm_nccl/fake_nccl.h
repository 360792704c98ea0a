// SPDX-License-Identifier: Apache-2.0
// What a test can do to the pretended NCCL. Functions are looked up in the loaded library.
#pragma once

#include <cstddef>

struct FakeCounts {
  int inits, destroys, aborts, groups, largest_group, calls_while_busy;
};

struct FakeControls {
  void (*reset)();
  void (*set_version)(int version);
  void (*hang_setup)(int hang);                  // communicators never become ready
  void (*fail_all)(int error, const char* why);  // asynchronous error of all communicators
  void (*fail_next)(int error);                  // result of the next enqueueing call
  int (*drain)(void* stream);                    // 1: nothing is left on the stream
  FakeCounts (*counts)();
  // Set-ups take so many polls more, in the order in which communicators are begun.
  void (*delay_setups)(const int* polls, int n);
  void (*record)(void* event, void* stream);
  void (*await)(void* event, void* stream);
  void (*copy)(void* to, const void* from, size_t n, void* stream);
};
