// JSON from files nobody vouches for.
#include "json.hpp"

#include <limits>
#include <utility>

#include "kwker/base/error.hpp"

namespace kwker {
namespace {

/// Far above what any model's files nest; without a limit a file of "[[[[..." takes 100 times its size in memory.
constexpr int kMaxDepth = 32;

}  // namespace

Json parse_json(std::string_view text, const std::string& what) {
  const auto check_depth = [&](int depth, Json::parse_event_t /*event*/, Json& /*value*/) {
    if (depth > kMaxDepth) throw Error(concat(what, " nests deeper than ", kMaxDepth, " levels"));
    return true;
  };
  // The parser's own messages quote the text, which need not be printable or even UTF-8.
  try {
    return Json::parse(text.begin(), text.end(), check_depth);
  } catch (const Json::parse_error& error) {
    throw Error(concat(what, " is not valid JSON: error at byte ", error.byte, " of ", text.size()));
  } catch (const Json::exception&) {
    throw Error(concat(what, " is not valid JSON: a number is out of range"));
  }
}

std::string shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  constexpr std::size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);  // ASCII: may be cut anywhere
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

std::optional<std::int64_t> to_integer(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
    return std::nullopt;
  }
  return value.get<std::int64_t>();
}

JsonFields::JsonFields(const Json& object, std::string what) : object_(object), what_(std::move(what)) {
  if (!object.is_object()) throw Error(concat(what_, " must be a JSON object, got ", shown(object)));
}

const Json* JsonFields::find(const char* name) const {
  const auto field = object_.find(name);
  return field == object_.end() || field->is_null() ? nullptr : &*field;
}

std::optional<std::int64_t> JsonFields::integer(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<std::int64_t> result = to_integer(*value);
  if (!result) fail_type(name, "an integer", *value);
  return result;
}

std::optional<double> JsonFields::number(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) fail_type(name, "a number", *value);
  return value->get<double>();
}

std::optional<bool> JsonFields::boolean(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) fail_type(name, "true or false", *value);
  return value->get<bool>();
}

std::optional<std::string> JsonFields::string(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail_type(name, "a string", *value);
  return value->get<std::string>();
}

void JsonFields::fail_type(const char* name, const char* expected, const Json& got) const {
  throw Error(concat(what_, ": ", name, " must be ", expected, ", got ", shown(got)));
}

void JsonFields::fail_missing(const char* name) const { throw Error(concat(what_, ": ", name, " is missing")); }

}  // namespace kwker
