// Connections to the cloud, kept alive between the answers of a server: each answer has one to
// itself while it runs. Ended sessions are reported to the server in the background.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "edge_client/cloud/remote.h"
#include "edge_client/split/lock_order.h"

namespace split::edge {

// Any thread. Outlives the connections that it lends.
class RemotePool {
 public:
  // Makes a connection with a timeout of silence.
  using Connect = std::function<std::unique_ptr<Remote>(std::chrono::milliseconds timeout)>;
  RemotePool(Connect connect, std::chrono::milliseconds timeout);
  ~RemotePool();  // reports what ended sessions it can in a moment
  RemotePool(const RemotePool&) = delete;
  RemotePool& operator=(const RemotePool&) = delete;

  // Lends a connection, the most recently used first; it returns with its last reference.
  std::shared_ptr<Remote> take();
  void put(std::unique_ptr<Remote> remote) noexcept;
  const std::string& origin() const { return goodbye_->origin(); }

  // Ends the session on the server later.
  void dismiss(const std::string& session) noexcept;

 private:
  void say_goodbyes();

  const Connect connect_;
  const std::chrono::milliseconds timeout_;
  Mutex mutex_{LockOrder::kPool};
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Remote>> idle_;  // the most recently used at the end
  std::deque<std::string> ended_;
  bool stopping_ = false;
  std::unique_ptr<Remote> goodbye_;  // used by thread_
  std::thread thread_;               // started with the first ended session
};

}  // namespace split::edge
