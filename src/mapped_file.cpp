// Mapping files into memory.
#include "kwker/io/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "kwker/base/error.hpp"

namespace kwker {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, int code) {
  throw Error(concat("cannot read ", path.string(), ": ", std::generic_category().message(code)));
}

class Descriptor {
 public:
  // Non-blocking, for opening a pipe would otherwise wait for its writer.
  explicit Descriptor(const std::filesystem::path& path)
      : value_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (value_ < 0) fail(path, errno);
  }
  ~Descriptor() { close(value_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor file(path);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail(path, errno);
  if (!S_ISREG(status.st_mode)) throw Error(concat("cannot read ", path.string(), ": not a regular file"));
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;  // mmap refuses to map nothing
  void* address = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) fail(path, errno);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::expect_sequential_reading() const noexcept {
  if (data_ != nullptr) madvise(const_cast<std::byte*>(data_), size_, MADV_SEQUENTIAL);
}

}  // namespace kwker
