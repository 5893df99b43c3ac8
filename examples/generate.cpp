// Generates from a Hugging Face model folder: token ids in, token ids out.
//
//   generate FOLDER [int4|bfloat16] TOKEN...
#include <cstdlib>
#include <iostream>
#include <kwker/decoder.hpp>
#include <string>
#include <vector>

namespace {

template <class Precision>
void run(const std::string& folder, const std::vector<kwker::Token>& prompt) {
  const auto model = kwker::load<Precision>(folder);
  kwker::Decoder decoder(model, {.max_cache_len = 2048, .max_batch = 1});
  const std::vector<kwker::Token> text = decoder.generate(prompt, {.max_new_tokens = 64, .lookup = 8});
  const std::vector<kwker::Token> plain = decoder.generate(prompt, {.max_new_tokens = 64, .lookup = 0});
  for (const kwker::Token token : text) std::cout << token << ' ';
  std::cout << '\n';
  std::cerr << decoder.precision() << ", " << kwker::isa_name(kwker::current_isa()) << ", with and without lookup "
            << (text == plain ? "equal" : "DIFFERENT") << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool has_precision = words.size() > 1 && (words[1] == "int4" || words[1] == "bfloat16");
  const std::size_t first = has_precision ? 2 : 1;
  if (words.size() <= first) {
    std::cerr << "usage: generate FOLDER [int4|bfloat16] TOKEN...\n";
    return 2;
  }
  try {
    std::vector<kwker::Token> prompt;
    for (std::size_t i = first; i < words.size(); ++i) prompt.push_back(std::stoi(words[i]));
    if (has_precision && words[1] == "int4") {
      run<kwker::Int4>(words[0], prompt);
    } else {
      run<kwker::BFloat16>(words[0], prompt);
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
