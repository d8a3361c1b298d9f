// Reads Prometheus' text format 0.0.4 and says what is wrong with it: what `promtool check metrics`
// and the format's description ask for.
#pragma once

#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace split::test {

using PrometheusLabels = std::map<std::string, std::string>;

struct PrometheusText {
  std::vector<std::string> problems;
  std::map<std::string, std::string> types;                           // of each family
  std::map<std::string, std::map<PrometheusLabels, double>> samples;  // by name with its suffix

  // NaN when there is none.
  double value(const std::string& name, const PrometheusLabels& labels = {}) const {
    const auto at = samples.find(name);
    if (at == samples.end()) return NAN;
    const auto sample = at->second.find(labels);
    return sample == at->second.end() ? NAN : sample->second;
  }
};

class PrometheusReader {
 public:
  explicit PrometheusReader(std::string_view text) {
    if (text.empty() || text.back() != '\n') problem("the last line does not end");
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      line(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    for (const auto& [family, type] : result_.types) {
      if (type == "histogram") check_histogram(family);
    }
  }
  PrometheusText take() { return std::move(result_); }

 private:
  void problem(const std::string& what) { result_.problems.push_back(what); }

  static bool is_name(std::string_view name) {
    if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
    for (const char c : name) {
      if (c != '_' && std::isalnum(static_cast<unsigned char>(c)) == 0) return false;  // no colons
    }
    return true;
  }

  void line(std::string_view text) {
    const std::string whole(text);
    if (text.starts_with("# HELP ") || text.starts_with("# TYPE ")) {
      const bool help = text[2] == 'H';
      text.remove_prefix(7);
      const size_t space = std::min(text.find(' '), text.size());
      const std::string name(text.substr(0, space));
      const std::string rest(space < text.size() ? text.substr(space + 1) : "");
      if (!is_name(name)) problem("a name: " + whole);
      if (help) {
        if (rest.empty()) problem("no help: " + whole);
        if (!helped_.insert(name).second) problem("HELP twice: " + whole);
        family_ = name;
        return;
      }
      if (name != family_) problem("TYPE not behind its HELP: " + whole);
      if (!result_.types.emplace(name, rest).second) problem("TYPE twice: " + whole);
      if (rest != "counter" && rest != "gauge" && rest != "histogram") problem("a type: " + whole);
      if ((rest == "counter") != name.ends_with("_total")) {
        problem("counters, and no others, end in _total: " + whole);
      }
      return;
    }
    if (text.starts_with("#") || text.empty())
      return problem("neither comment nor sample: " + whole);
    sample(text, whole);
  }

  void sample(std::string_view text, const std::string& whole) {
    const size_t end = text.find_first_of("{ ");
    if (end == std::string_view::npos) return problem("no value: " + whole);
    const std::string name(text.substr(0, end));
    text.remove_prefix(end);
    PrometheusLabels labels;
    if (text.starts_with("{") && !read_labels(text, labels)) return problem("labels: " + whole);
    if (!text.starts_with(" ")) return problem("no value: " + whole);
    const std::string number(text.substr(1));
    char* stop = nullptr;
    const double value = std::strtod(number.c_str(), &stop);
    if (number.empty() || *stop != '\0') problem("a value: " + whole);
    if (!is_name(name)) problem("a name: " + whole);
    const auto type = result_.types.find(family_);
    const bool histogram = type != result_.types.end() && type->second == "histogram";
    const bool belongs = histogram ? name == family_ + "_bucket" || name == family_ + "_sum" ||
                                         name == family_ + "_count"
                                   : name == family_;
    if (type == result_.types.end() || !belongs) problem("not behind its TYPE: " + whole);
    if (!result_.samples[name].emplace(labels, value).second) problem("twice: " + whole);
  }

  // {name="value",...}: eats it.
  static bool read_labels(std::string_view& text, PrometheusLabels& labels) {
    text.remove_prefix(1);
    for (;;) {
      const size_t equals = text.find("=\"");
      if (equals == std::string_view::npos || !is_name(text.substr(0, equals))) return false;
      const std::string name(text.substr(0, equals));
      text.remove_prefix(equals + 2);
      std::string value;
      while (!text.empty() && text[0] != '"') {
        if (text[0] == '\\') {
          if (text.size() < 2 ||
              std::string_view("\\n\"").find(text[1]) == std::string_view::npos) {
            return false;
          }
          value += text[1] == 'n' ? '\n' : text[1];
          text.remove_prefix(2);
        } else {
          value += text[0];
          text.remove_prefix(1);
        }
      }
      if (text.empty() || !labels.emplace(name, value).second) return false;
      text.remove_prefix(1);
      const bool more = text.starts_with(",");
      if (!more && !text.starts_with("}")) return false;
      text.remove_prefix(1);
      if (!more) return true;
    }
  }

  void check_histogram(const std::string& family) {
    std::map<PrometheusLabels, std::map<double, double>> series;
    for (const auto& [labels, value] : result_.samples[family + "_bucket"]) {
      PrometheusLabels others = labels;
      const auto bound = others.find("le");
      if (bound == others.end()) return problem("a bucket without le: " + family);
      const double le = std::strtod(bound->second.c_str(), nullptr);
      others.erase(bound);
      series[others][le] = value;
    }
    for (const auto& [labels, buckets] : series) {
      double last = 0;
      for (const auto& [bound, count] : buckets) {
        if (count < last) problem("buckets are not cumulative: " + family);
        last = count;
      }
      if (!std::isinf(buckets.rbegin()->first)) problem("no bucket for +Inf: " + family);
      if (last != result_.value(family + "_count", labels))
        problem("_count is not +Inf: " + family);
      if (std::isnan(result_.value(family + "_sum", labels))) problem("no _sum: " + family);
    }
  }

  PrometheusText result_;
  std::string family_;  // of the lines here
  std::set<std::string> helped_;
};

inline PrometheusText read_prometheus(std::string_view text) {
  return PrometheusReader(text).take();
}

}  // namespace split::test
