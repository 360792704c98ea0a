// SPDX-License-Identifier: Apache-2.0
// Files that a user names, written.
#pragma once

#include <string>
#include <string_view>

namespace orrery {

// Writes `text` into the file, a new one or in the place of what it holds, which stays where the text cannot be written
// whole (a full disk, a limit of size). Returns "", or why not, in words. A symbolic
// link is not followed, since who may make links in a shared folder would choose what is overwritten; devices
// (/dev/stdout) are written to. A file that this command has read (input_files.h) is kept as it is.
std::string WriteTextFile(const std::string& path, std::string_view text);
// The same of a file that is to be changed, read or not.
std::string RewriteTextFile(const std::string& path, std::string_view text);
// "" or why a file of this name could not be written, one that was read included; nothing is changed.
std::string WhyNotWritable(const std::string& path);
// "" or why a file that is there already is kept: another program's, or a text by hand. `holds`: what those that may be written
// again have within their first KiB, or "": any file may.
std::string WhyNotReplaced(const std::string& path, std::string_view holds);
// "" or why a folder could not be made there with those around it, or not be written into; nothing is changed. A
// link to a folder is none.
std::string WhyNoFolder(const std::string& path);

}  // namespace orrery
