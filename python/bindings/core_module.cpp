// The Python extension module kwker._core: decoders, generations and what they need of the machine, without torch.
// Python's package kwker checks arguments and gives them their defaults; this file only translates.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kwker/decoder.hpp"
#include "kwker/io/hf_config.hpp"
#include "tensor_capsule.hpp"

namespace py = pybind11;

namespace {

using kwker::DecoderBase;
using kwker::Generation;
using kwker::ModelConfig;
using kwker::Token;

/// Weights that Python passes as capsules by name. The views live as long as the dict of capsules they come from.
class CapsuleSource : public kwker::TensorSource {
 public:
  explicit CapsuleSource(const std::map<std::string, py::capsule>& capsules) {
    for (const auto& [name, capsule] : capsules) {
      // A capsule of another name makes this throw, whatever it points to.
      void* holder = PyCapsule_GetPointer(capsule.ptr(), kwker::python::kTensorCapsuleName);
      if (holder == nullptr) throw py::error_already_set();
      views_.emplace(name, static_cast<const kwker::python::TensorHolder*>(holder)->view);
    }
  }

  bool contains(const std::string& name) const override { return views_.contains(name); }
  kwker::TensorView tensor(const std::string& name) const override {
    const auto found = views_.find(name);
    if (found == views_.end()) throw kwker::Error("the model has no tensor " + name);
    return found->second;
  }

 private:
  std::map<std::string, kwker::TensorView> views_;
};

/// What a caller chooses about a decoder.
struct Choice {
  std::string precision;
  kwker::DecoderOptions decoder;
  int group_size;
  py::object progress;  // callable(done, total) or None
};

Choice make_choice(std::string precision, int max_cache_len, int max_batch, int group_size, int num_threads,
                   bool prefix_cache, py::object progress) {
  return {std::move(precision), {max_cache_len, max_batch, num_threads, prefix_cache}, group_size, std::move(progress)};
}

template <class Precision>
std::unique_ptr<DecoderBase> build(const ModelConfig& config, const kwker::TensorSource& source, const Choice& choice) {
  kwker::PackOptions pack{.group_size = choice.group_size, .progress = nullptr};
  if (!choice.progress.is_none()) {
    pack.progress = [&choice](std::int64_t done, std::int64_t total) {
      const py::gil_scoped_acquire acquire;
      choice.progress(done, total);
    };
  }
  const py::gil_scoped_release release;
  return std::make_unique<kwker::Decoder<Precision>>(kwker::build_model<Precision>(config, source, pack),
                                                     choice.decoder);
}

std::unique_ptr<DecoderBase> build_any(const ModelConfig& config, const kwker::TensorSource& source,
                                       const Choice& choice) {
  if (choice.precision == kwker::Int4::kName) return build<kwker::Int4>(config, source, choice);
  if (choice.precision == kwker::BFloat16::kName) return build<kwker::BFloat16>(config, source, choice);
  throw std::invalid_argument("precision must be 'int4' or 'bfloat16', got '" + choice.precision + "'");
}

ModelConfig parse_config(const std::string& config_json, const std::optional<std::string>& generation_config_json) {
  ModelConfig config = kwker::parse_hf_config(config_json);
  if (generation_config_json) kwker::apply_generation_config(*generation_config_json, config);
  return config;
}

void bind_machine(py::module_& m) {
  m.def("isa", [] { return kwker::isa_name(kwker::current_isa()); });
  m.def("isa_levels", [] {
    std::vector<std::string> names;
    for (const kwker::Isa isa : kwker::isa_levels()) names.emplace_back(kwker::isa_name(isa));
    return names;
  });
  m.def(
      "set_isa", [](const std::string& name) { kwker::set_isa(kwker::parse_isa(name)); }, py::arg("level"));
  m.def("num_threads", &kwker::num_threads);
  m.def("set_num_threads", &kwker::set_num_threads, py::arg("n"));
  m.def("read_bandwidth", &kwker::read_bandwidth, py::arg("megabytes"), py::call_guard<py::gil_scoped_release>());
}

void bind_config(py::module_& m) {
  py::class_<ModelConfig>(m, "ModelConfig")
      .def_readonly("model_type", &ModelConfig::model_type)
      .def_readonly("vocab_size", &ModelConfig::vocab_size)
      .def_readonly("hidden_size", &ModelConfig::hidden_size)
      .def_readonly("intermediate_size", &ModelConfig::intermediate_size)
      .def_readonly("num_layers", &ModelConfig::num_layers)
      .def_readonly("num_heads", &ModelConfig::num_heads)
      .def_readonly("num_kv_heads", &ModelConfig::num_kv_heads)
      .def_readonly("head_dim", &ModelConfig::head_dim)
      .def_readonly("rms_norm_eps", &ModelConfig::rms_norm_eps)
      .def_readonly("rope_theta", &ModelConfig::rope_theta)
      .def_readonly("tie_word_embeddings", &ModelConfig::tie_word_embeddings)
      .def_readonly("max_position_embeddings", &ModelConfig::max_position_embeddings)
      .def_readonly("bos_token_id", &ModelConfig::bos_token_id)
      .def_readonly("eos_token_ids", &ModelConfig::eos_token_ids);
  m.def("parse_config", &parse_config, py::arg("config_json"), py::arg("generation_config_json") = py::none());
  m.def(
      "unsupported_reason", [](const std::string& json) { return kwker::unsupported_reason(json); },
      py::arg("config_json"));
}

py::array_t<float> compute_logits(DecoderBase& decoder, const std::vector<Token>& tokens, int chunk) {
  py::array_t<float> out({static_cast<py::ssize_t>(tokens.size()), py::ssize_t{decoder.config().vocab_size}});
  float* data = out.mutable_data();
  const py::gil_scoped_release release;
  kwker::logits(decoder, tokens, chunk, data);
  return out;
}

/// The logits [tokens, vocab] of one step of sequence 0 from a position on: a view, which holds until the next step.
py::array_t<float> step(const py::object& self, const std::vector<Token>& tokens, int position) {
  auto& decoder = self.cast<DecoderBase&>();
  std::vector<kwker::Row> rows;
  for (const Token token : tokens) rows.push_back({.token = token, .position = position++});
  const kwker::LogitsView logits = [&] {
    const py::gil_scoped_release release;
    return decoder.step(rows);
  }();
  constexpr py::ssize_t kSize = sizeof(float);
  return {
      {py::ssize_t{logits.rows}, py::ssize_t{logits.vocab_size}}, {kSize * logits.stride, kSize}, logits.data, self};
}

void bind_decoder(py::module_& m) {
  const auto from_folder = [](const std::string& folder, const std::string& precision, int max_cache_len, int max_batch,
                              int group_size, int num_threads, bool prefix_cache, const py::object& progress) {
    const kwker::HfFolder source(folder);
    return build_any(source.config(), source,
                     make_choice(precision, max_cache_len, max_batch, group_size, num_threads, prefix_cache, progress));
  };
  const auto from_tensors = [](const std::string& config_json, const std::optional<std::string>& generation_config_json,
                               const std::map<std::string, py::capsule>& tensors, const std::string& precision,
                               int max_cache_len, int max_batch, int group_size, int num_threads, bool prefix_cache,
                               const py::object& progress) {
    return build_any(parse_config(config_json, generation_config_json), CapsuleSource(tensors),
                     make_choice(precision, max_cache_len, max_batch, group_size, num_threads, prefix_cache, progress));
  };
  py::class_<DecoderBase>(m, "Decoder")
      .def_static("from_folder", from_folder, py::arg("folder"), py::kw_only(), py::arg("precision"),
                  py::arg("max_cache_len"), py::arg("max_batch"), py::arg("group_size"), py::arg("num_threads"),
                  py::arg("prefix_cache"), py::arg("progress"))
      .def_static("from_tensors", from_tensors, py::arg("config_json"), py::arg("generation_config_json"),
                  py::arg("tensors"), py::kw_only(), py::arg("precision"), py::arg("max_cache_len"),
                  py::arg("max_batch"), py::arg("group_size"), py::arg("num_threads"), py::arg("prefix_cache"),
                  py::arg("progress"))
      .def_property_readonly("config", &DecoderBase::config)
      .def_property_readonly("precision", &DecoderBase::precision)
      .def_property_readonly("max_cache_len", &DecoderBase::max_cache_len)
      .def_property_readonly("max_batch", &DecoderBase::max_batch)
      .def_property_readonly("memory_bytes", &DecoderBase::memory_bytes)
      .def_property_readonly("weight_bytes", &DecoderBase::weight_bytes)
      .def("logits", &compute_logits, py::arg("tokens"), py::arg("chunk"))
      .def("step", &step, py::arg("tokens"), py::arg("position"));
}

/// The statistics as keywords of the Python class GenerateStats.
py::dict stats_dict(const Generation& generation) {
  const kwker::GenerateStats& stats = generation.stats();
  py::dict by_proposer;
  for (const kwker::ProposerStats& proposer : stats.by_proposer) {
    by_proposer[py::str(proposer.name)] = py::make_tuple(proposer.proposed, proposer.accepted);
  }
  py::object finish_reason = py::none();
  if (stats.finish_reason == kwker::FinishReason::kEos) finish_reason = py::str("eos");
  if (stats.finish_reason == kwker::FinishReason::kLength) finish_reason = py::str("length");
  return py::dict(py::arg("steps") = stats.steps, py::arg("tokens") = stats.tokens,
                  py::arg("proposed") = stats.proposed, py::arg("accepted") = stats.accepted,
                  py::arg("max_proposed") = stats.max_proposed, py::arg("cached") = stats.cached,
                  py::arg("by_proposer") = by_proposer, py::arg("prefill_s") = stats.prefill_s,
                  py::arg("decode_s") = stats.decode_s, py::arg("tokens_per_s") = stats.tokens_per_s(),
                  py::arg("finish_reason") = finish_reason);
}

void bind_generation(py::module_& m) {
  const auto start = [](DecoderBase& decoder, const std::vector<Token>& prompt, std::optional<int> max_new_tokens,
                        int lookup, DecoderBase* draft, int draft_tokens,
                        std::optional<std::vector<Token>> eos_token_ids) {
    return std::make_unique<Generation>(
        decoder, prompt, kwker::GenerateOptions{max_new_tokens, lookup, draft, draft_tokens, std::move(eos_token_ids)});
  };
  const auto advance = [](Generation& generation) {
    const auto added = generation.advance();
    return std::vector<Token>(added.begin(), added.end());
  };
  py::class_<Generation>(m, "Generation")
      .def(py::init(start), py::keep_alive<1, 2>(), py::keep_alive<1, 6>(), py::arg("decoder"), py::arg("prompt"),
           py::kw_only(), py::arg("max_new_tokens"), py::arg("lookup"), py::arg("draft"), py::arg("draft_tokens"),
           py::arg("eos_token_ids"))
      .def("advance", advance, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("done", &Generation::done)
      .def_property_readonly("tokens", &Generation::tokens)
      .def_property_readonly("stats", &stats_dict);
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  m.doc() = "Kwker's C++ core. Its interface is private; use the package kwker.";
  // std::invalid_argument becomes ValueError, and std::bad_alloc MemoryError, by pybind11's own rules.
  py::register_exception<kwker::Error>(m, "Error", PyExc_RuntimeError).attr("__module__") = "kwker";
  m.attr("__version__") = KWKER_VERSION;
  bind_machine(m);
  bind_config(m);
  bind_decoder(m);
  bind_generation(m);
}
