// Connections to the cloud, kept alive between the answers of a server: each answer has one to
// itself while it runs, and gives it back. Sessions that have ended are told so in the background.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "edge_client/cloud/remote.h"

namespace split::edge {

// Any thread. Outlives what it lends.
class RemotePool {
 public:
  // Makes a connection that gives up after so much silence.
  using Connect = std::function<std::unique_ptr<Remote>(std::chrono::milliseconds timeout)>;
  RemotePool(Connect connect, std::chrono::milliseconds timeout);
  ~RemotePool();  // says what goodbyes it can in a moment
  RemotePool(const RemotePool&) = delete;
  RemotePool& operator=(const RemotePool&) = delete;

  class Lease {
   public:
    Lease(RemotePool& pool, std::unique_ptr<Remote> remote)
        : pool_(pool), remote_(std::move(remote)) {}
    ~Lease() { pool_.give_back(std::move(remote_), cancelled_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Remote& remote() { return *remote_; }
    // Any thread: ends what runs on it, for good.
    void cancel() {
      cancelled_ = true;
      remote_->cancel();
    }

   private:
    RemotePool& pool_;
    std::unique_ptr<Remote> remote_;
    std::atomic<bool> cancelled_{false};
  };
  std::unique_ptr<Lease> take();
  const std::string& origin() const { return goodbye_->origin(); }

  // Ends the session on the server, soon.
  void dismiss(const std::string& session) noexcept;

 private:
  void give_back(std::unique_ptr<Remote> remote, bool cancelled) noexcept;
  void say_goodbyes();

  const Connect connect_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Remote>> idle_;  // the one used last at the end
  std::deque<std::string> ended_;
  bool stopping_ = false;
  std::unique_ptr<Remote> goodbye_;  // of the thread
  std::thread thread_;
};

}  // namespace split::edge
