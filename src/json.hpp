// JSON from files nobody vouches for: bounded depth, fields with their types checked, every fault a kwker::Error.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace kwker {

using Json = nlohmann::json;

/// `what` is the text's name in messages.
Json parse_json(std::string_view text, const std::string& what);

/// The value in a message: printable, in one line, at most some 60 characters.
std::string shown(const Json& value);

/// The fields of an object, which must outlive this. A field that is null counts as absent.
class JsonFields {
 public:
  /// Throws if `object` is none. `what` starts the messages: "config.json".
  JsonFields(const Json& object, std::string what);

  const Json* find(const char* name) const;
  /// Whether the field is there, be it null.
  bool has(const char* name) const { return object_.contains(name); }
  std::optional<std::int64_t> integer(const char* name) const;
  std::optional<double> number(const char* name) const;
  std::optional<bool> boolean(const char* name) const;
  std::optional<std::string> string(const char* name) const;

  /// The value of a field that must be there: `required("n", fields.integer("n"))`.
  template <class T>
  T required(const char* name, std::optional<T> value) const {
    if (!value) fail_missing(name);
    return *std::move(value);
  }
  /// Throws: the field is absent.
  [[noreturn]] void fail_missing(const char* name) const;
  /// Throws: the field is not `expected` ("an integer").
  [[noreturn]] void fail_type(const char* name, const char* expected, const Json& got) const;

 private:
  const Json& object_;
  std::string what_;
};

/// Nothing if the value is no integer or not within int64.
std::optional<std::int64_t> to_integer(const Json& value);

}  // namespace kwker
