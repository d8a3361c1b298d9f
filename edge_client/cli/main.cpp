// edge_client.
#include "edge_client/cli/process.h"
#include "edge_client/cli/run.h"

int main(int argc, char** argv) {
  return split::edge::run_process(argc, argv, split::edge::edge_main);
}
