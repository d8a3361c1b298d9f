#include "bench/support/bare_products.h"

#include "bench/support/bench.h"

#ifdef SPLIT_WITH_ONEDNN
#include <omp.h>

#include <dnnl.hpp>
#endif

namespace split::bench {

#ifdef SPLIT_WITH_ONEDNN

namespace {

constexpr size_t kCopies = 4;  // of the weights in turn, so that no cache holds all

dnnl::memory filled(const dnnl::memory::desc& desc, const dnnl::engine& engine) {
  dnnl::memory memory(desc, engine);
  auto* const bits = static_cast<uint16_t*>(memory.get_data_handle());
  for (size_t i = 0; i < desc.get_size() / sizeof *bits; ++i) {
    bits[i] = static_cast<uint16_t>(0x3c00 + i * 37 % 0x180);  // 2^-7 .. 2^-4
  }
  return memory;
}

}  // namespace

struct BareProducts::Products {
  struct Product {
    dnnl::inner_product_forward primitive;
    dnnl::memory x, y;
    std::vector<dnnl::memory> weights;
  };
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::vector<Product> all;

  Products(const ModelConfig& config, uint32_t rows) {
    using Type = dnnl::memory::data_type;
    using Tag = dnnl::memory::format_tag;
    const int64_t c = config.channels;
    const std::pair<int64_t, int64_t> shapes[] = {{c, 3 * c}, {c, c}, {c, 4 * c}, {4 * c, c}};
    for (const auto& [inner, columns] : shapes) {
      const dnnl::memory::desc x({rows, inner}, Type::bf16, Tag::ab);
      const dnnl::memory::desc w({columns, inner}, Type::bf16, Tag::any);
      const dnnl::memory::desc y({rows, columns}, Type::f32, Tag::ab);
      const dnnl::inner_product_forward::primitive_desc how(
          {dnnl::prop_kind::forward_inference, x, w, y}, engine);
      Product product{
          dnnl::inner_product_forward(how), filled(x, engine), dnnl::memory(y, engine), {}};
      for (size_t i = 0; i < kCopies; ++i) {
        product.weights.push_back(filled(how.weights_desc(), engine));
      }
      all.push_back(std::move(product));
    }
  }
};

BareProducts::BareProducts(const ModelConfig& config, uint32_t rows, unsigned threads)
    : layers_(config.layers) {
  omp_set_num_threads(static_cast<int>(threads));
  try {
    products_ = std::make_unique<Products>(config, rows);
    run();
  } catch (const dnnl::error&) {
    products_.reset();
  }
}

std::optional<double> BareProducts::run() {
  if (products_ == nullptr) return std::nullopt;
  return timed([&] {
    for (size_t layer = 0; layer < static_cast<size_t>(layers_); ++layer) {
      for (Products::Product& product : products_->all) {
        product.primitive.execute(products_->stream,
                                  {{DNNL_ARG_SRC, product.x},
                                   {DNNL_ARG_WEIGHTS, product.weights[layer % kCopies]},
                                   {DNNL_ARG_DST, product.y}});
      }
    }
    products_->stream.wait();
  });
}

#else

struct BareProducts::Products {};
BareProducts::BareProducts(const ModelConfig& config, uint32_t, unsigned)
    : layers_(config.layers) {}
std::optional<double> BareProducts::run() { return std::nullopt; }

#endif

BareProducts::~BareProducts() = default;

}  // namespace split::bench
