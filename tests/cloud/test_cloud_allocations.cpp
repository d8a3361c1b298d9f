// The cloud's routes and steps: each allocation of a request fails once, in turn. That request is
// refused or cut off; the process, its sessions, its KV cache and the next answer are as before.
#include <gtest/gtest.h>

#include "device/drawn.h"
#include "support/cloud_fixture.h"
#include "support/failing_memory.h"
#include "support/http_peer.h"
#include "wire/protocol.h"

namespace split::cloud {
namespace {

using test::allocations_left;
using test::of_the_test;

constexpr const char* kSession = "/v1/sessions/000102030405060708090a0b0c0d0e0f";

std::string request(std::string_view method, std::string_view path, std::string_view body = {},
                    std::string_view extra = {}) {
  return cat(method, " ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", extra,
             "Content-Type: application/json\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
}

class CloudAllocations : public testing::Test {
 protected:
  CloudAllocations() { of_the_test = true; }

  std::string answer(const std::string& bytes) { return http::last_words(cloud_.port(), bytes); }
  static int status_of(const std::string& answer) {
    return answer.starts_with("HTTP/1.1 ") ? std::atoi(answer.c_str() + 9) : 0;
  }
  // The body, without the costs, which differ from run to run.
  static std::string result_of(const std::string& answer) {
    const size_t body = answer.find("\r\n\r\n");
    return body == std::string::npos ? "" : answer.substr(body + 4);
  }
  void settle() {
    while (cloud_.stats().connections != 0 || cloud_.stats().inflight != 0) {
      std::this_thread::yield();
    }
  }

  // Asks `bytes` again and again, one allocation more succeeding each time, until none fails;
  // behind the first 300 an eighth of them, drawn.
  // `before` is asked first each time; the answer to `check` is the proof that nothing has
  // suffered.
  void expect_survives(const std::string& bytes, const std::string& before,
                       const std::string& check) {
    const std::string proof = result_of(answer(before).empty() ? "" : answer(check));
    ASSERT_FALSE(proof.empty());
    const uint32_t pages = cloud_.pages().in_use();
    long failed = 0, late = 0;
    test::Drawn drawn(8);
    for (long nth = 0; nth < 20'000; ++nth) {
      if (nth > 300 && !drawn.next()) continue;
      answer(before);
      settle();
      allocations_left = nth;
      const std::string got = answer(bytes);
      const bool all = allocations_left.exchange(-1) >= 0;
      settle();
      const int status = status_of(got);
      // Nothing at all: the connection was cut off, which costs no memory.
      if (all && status / 100 == 2) {
        EXPECT_GT(failed, 10);
        return;
      }
      // Weights that a thread could not prepare before are a refusal once more.
      if (all) {
        ASSERT_EQ(++late, 1) << got.substr(0, 300);
      }
      ++failed;
      ASSERT_TRUE(status == 0 || status == 503 || status == 500 || status / 100 == 2)
          << "the " << nth << "th: " << got.substr(0, 500);
      ASSERT_EQ(result_of(answer(check)), proof) << "after the " << nth << "th failed: " << status;
      settle();
      ASSERT_EQ(cloud_.cloud.memory.used(), 0u) << nth;
      ASSERT_LE(cloud_.pages().in_use(), pages) << nth;
    }
    FAIL() << "allocations without end";
  }

  TestCloud cloud_{{"rand-a"}};
  const std::string model_ = wire::model_path("rand-a");
  const std::string forward_ = wire::model_forward_path("rand-a");
  const std::string rows_ = request("POST", forward_, R"({"tokens":[1,2,3,4],"to":2})");
};

TEST_F(CloudAllocations, AFailedOneEndsOneForward) {
  expect_survives(request("POST", forward_, R"({"tokens":[5,6,7],"rows":"all","top":3})"), rows_,
                  rows_);
}

TEST_F(CloudAllocations, AFailedOneLeavesTheSessionUsable) {
  const std::string open = request("PUT", kSession, R"({"model":"rand-a","to":2})");
  const std::string step = R"({"past":0,"tokens":[1,2,3],"phase":"prompt","rows":"all"})";
  const std::string path = cat(kSession, "/forward"), json = "Accept: application/json\r\n";
  ASSERT_EQ(status_of(answer(open)), 201);
  const std::string whole = request("POST", path, step, json);
  // The first three rows again, and then one that may fail: three rows are there whatever it does.
  expect_survives(request("POST", path, R"({"past":3,"tokens":[4],"phase":"generate"})", json),
                  whole, whole);
  expect_survives(open, request("DELETE", kSession), rows_);
}

TEST_F(CloudAllocations, AFailedOneEndsOneCompletion) {
  for (const char* stream : {"false", "true"}) {
    expect_survives(
        request("POST", "/v1/completions",
                cat(R"({"model":"rand-a","prompt":[1,2,3],"max_tokens":3,"n":2,"stream":)", stream,
                    "}")),
        rows_, rows_);
  }
}

TEST_F(CloudAllocations, AFailedOneEndsOneGet) {
  expect_survives(request("GET", model_), rows_, rows_);
  expect_survives(request("GET", cat(model_, "/stages/norm?format=f32")), rows_, rows_);
  expect_survives(request("GET", "/metrics"), rows_, rows_);
  expect_survives(request("GET", "/openapi.json"), rows_, rows_);
}

}  // namespace
}  // namespace split::cloud
