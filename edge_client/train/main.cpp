// edge_train.
#include "edge_client/cli/process.h"
#include "edge_client/train/train_command.h"

int main(int argc, char** argv) {
  return split::edge::run_process(argc, argv, split::edge::train_main);
}
