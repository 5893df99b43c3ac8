// A block of zeroed memory aligned for any vector, on huge pages where it is large enough to gain.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace kwker {

namespace detail {
void* allocate_zeroed(std::size_t bytes);
void release(void* data, std::size_t bytes) noexcept;
}  // namespace detail

/// `size` values of a trivial type T, all bits zero at first, aligned to 64 bytes. Moves, does not copy.
/// Throws std::bad_alloc.
template <class T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size)
      : data_(static_cast<T*>(detail::allocate_zeroed(size * sizeof(T)))), size_(size) {}
  ~AlignedBuffer() { detail::release(data_, size_ * sizeof(T)); }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(T); }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace kwker
