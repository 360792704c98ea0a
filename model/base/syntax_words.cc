// SPDX-License-Identifier: Apache-2.0
// Its complaints name states of a parser; who wrote the text needs to know what to write.
#include "model/base/syntax_words.h"

#include <yaml-cpp/exceptions.h>

namespace orrery {
namespace {

namespace yaml = YAML::ErrorMsg;

constexpr const char* kQuote = "put a text that begins or goes on so in quotes";
constexpr SyntaxFault kReference{"anchors (&) and aliases (*) are not accepted", kQuote};
constexpr SyntaxFault kTag{"tags (!) are not accepted", kQuote};
constexpr SyntaxFault kDirective{"directives (%) are not accepted", kQuote};
constexpr SyntaxFault kBlock{"behind | or > stands nothing but +, - or a digit from 1 to 9",
                             "the text itself begins on the next line"};

struct Complaint {
  const char* begins;
  SyntaxFault fault;
};
const Complaint kComplaints[] = {
    {yaml::END_OF_MAP_FLOW, {kOpenFlow, ""}},
    {yaml::END_OF_SEQ_FLOW, {kOpenFlow, ""}},
    {yaml::END_OF_MAP,
     {"this line does not fit the keys around it",
      "`key: value`, with the same indentation for all keys of one map"}},
    {yaml::END_OF_SEQ,
     {"this line does not fit the list around it",
      "`- value`, with the same indentation for all entries of one list"}},
    {yaml::MAP_VALUE, {"`: ` cannot stand here", "put a text that holds `: ` in quotes"}},
    {yaml::MAP_KEY, {"a key cannot stand here", "begin it on a line of its own"}},
    {yaml::BLOCK_ENTRY, {"`- ` cannot stand here", "begin the list on a line of its own"}},
    {yaml::FLOW_END, {"this bracket or brace closes nothing", kQuote}},
    {yaml::UNKNOWN_TOKEN, {"nothing begins with this character", kQuote}},
    {yaml::INVALID_HEX,
     {"\\x, \\u and \\U take 2, 4 and 8 hexadecimal digits",
      "a backslash is \\\\ within double quotes"}},
    {yaml::INVALID_UNICODE,
     {"this escape names no character", "\\ud800 to \\udfff stand in pairs, in JSON alone"}},
    {yaml::INVALID_ESCAPE,
     {"this escape is not known", "a backslash is \\\\ within double quotes"}},
    {yaml::EOF_IN_SCALAR, {"a quote is never closed", ""}},
    {yaml::DOC_IN_SCALAR, {"`---` or `...` begins a line of a quoted text", ""}},
    {yaml::CHAR_IN_SCALAR, {"this character cannot stand here", kQuote}},
    {yaml::SINGLE_QUOTED_CHAR, {"this character cannot stand in quotes", ""}},
    {yaml::TAB_IN_INDENTATION, {"a tab indents this line", "indent with spaces"}},
    {yaml::ZERO_INDENT_IN_BLOCK, kBlock},
    {yaml::CHAR_IN_BLOCK, kBlock},
    {yaml::ALIAS_CONTENT, kReference},
    {yaml::ALIAS_NOT_FOUND, kReference},
    {yaml::ANCHOR_NOT_FOUND, kReference},
    {yaml::CHAR_IN_ALIAS, kReference},
    {yaml::CHAR_IN_ANCHOR, kReference},
    {yaml::MULTIPLE_ANCHORS, kReference},
    {yaml::MULTIPLE_ALIASES, kReference},
    {yaml::AMBIGUOUS_ANCHOR, kReference},
    {yaml::UNKNOWN_ANCHOR, kReference},
    {yaml::MULTIPLE_TAGS, kTag},
    {yaml::CHAR_IN_TAG_HANDLE, kTag},
    {yaml::TAG_WITH_NO_SUFFIX, kTag},
    {yaml::END_OF_VERBATIM_TAG, kTag},
    {yaml::YAML_DIRECTIVE_ARGS, kDirective},
    {yaml::YAML_VERSION, kDirective},
    {yaml::YAML_MAJOR_VERSION, kDirective},
    {yaml::REPEATED_YAML_DIRECTIVE, kDirective},
    {yaml::TAG_DIRECTIVE_ARGS, kDirective},
    {yaml::REPEATED_TAG_DIRECTIVE, kDirective},
};

}  // namespace

SyntaxFault WordsOfSyntax(std::string_view complaint) {
  for (const Complaint& known : kComplaints) {
    if (complaint.starts_with(known.begins)) return known.fault;
  }
  return {"it cannot be read from here on", ""};
}

}  // namespace orrery
