// The second translation unit: links the templates' code for both precisions.
#include <kwker/decoder.hpp>
#include <string>

std::string level_of_other_unit() { return kwker::isa_name(kwker::current_isa()); }

namespace {

template <class Precision>
bool loading_throws() {
  try {
    kwker::Decoder decoder(kwker::load<Precision>("no such folder"), {.max_cache_len = 8});
    return false;
  } catch (const kwker::Error&) {
    return true;
  }
}

}  // namespace

bool missing_folder_throws() { return loading_throws<kwker::Int4>() && loading_throws<kwker::BFloat16>(); }
