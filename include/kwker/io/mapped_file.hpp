// A file mapped into memory for reading.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace kwker {

/// The whole of a file, for as long as this lives. Another process that truncates the file meanwhile makes reads beyond
/// its new end fatal, as with every mapping; writers that replace files by renaming are no danger.
class MappedFile {
 public:
  /// Throws kwker::Error if the file is missing, unreadable or not a regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

  /// Tells the kernel that reading goes front to back, once: it then reads ahead further.
  void expect_sequential_reading() const noexcept;

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace kwker
