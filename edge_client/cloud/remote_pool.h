// Connections to the cloud, kept alive between the answers of a server: each answer has one to
// itself while it runs, and gives it back. Sessions that have ended are told so in the background.
#pragma once

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

  // Comes back here with the last that has it. The one used last is taken first.
  std::shared_ptr<Remote> take();
  void put(std::unique_ptr<Remote> remote) noexcept;
  const std::string& origin() const { return goodbye_->origin(); }

  // Ends the session on the server, soon.
  void dismiss(const std::string& session) noexcept;

 private:
  void say_goodbyes();

  const Connect connect_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Remote>> idle_;  // the one used last at the end
  std::deque<std::string> ended_;
  bool stopping_ = false;
  std::unique_ptr<Remote> goodbye_;  // of the thread
  std::thread thread_;               // once there is a goodbye to say
};

}  // namespace split::edge
