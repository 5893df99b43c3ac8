// Uses the installed library from two translation units that both include the whole of it.
#include <iostream>
#include <kwker/decoder.hpp>

std::string level_of_other_unit();
bool missing_folder_throws();

int main() {
  if (level_of_other_unit() != kwker::isa_name(kwker::current_isa())) return 1;
  if (!missing_folder_throws()) return 2;
  std::cout << "kwker " << KWKER_VERSION << ", " << level_of_other_unit() << '\n';
}
