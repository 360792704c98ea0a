# SPDX-License-Identifier: Apache-2.0
# Writes man pages from the programs' help texts in ${HELP} (a test keeps those equal to what --help prints) to ${OUT}:
# plan.1 from _plan.txt, plan-NAME.1 from NAME.txt. In a help text a line without indentation is a title; the paragraph
# before the first one says what the command does.
cmake_minimum_required(VERSION 3.25)
file(GLOB texts ${HELP}/*.txt)
foreach(text_file ${texts})
  get_filename_component(name ${text_file} NAME_WE)
  if(name STREQUAL "_plan")
    set(page plan)
    set(shown plan)
  elseif(name MATCHES "^_")
    continue()
  else()
    set(page plan-${name})
    set(shown "plan\\-${name}")
  endif()
  file(READ ${text_file} text)
  string(REPLACE "\\" "\\e" text "${text}")
  string(REPLACE "-" "\\-" text "${text}")
  string(REGEX REPLACE "\n([.'])" "\n\\\\&\\1" text "${text}")
  string(FIND "${text}" "\n\n" end)
  string(SUBSTRING "${text}" 0 ${end} purpose)
  string(SUBSTRING "${text}" ${end} -1 rest)
  # A title ends what was shown as it stands.
  string(REGEX REPLACE "\n\n([^ \n][^\n]*)\n" "\n.fi\n.SH \"\\1\"\n.nf\n" rest "${rest}")
  string(REGEX REPLACE "^\n.fi" "" rest "${rest}")
  string(REGEX MATCH "^[^.]*" summary "${purpose}")
  string(REGEX REPLACE "[ \n]+" " " summary "${summary}")
  string(TOUPPER ${page} title)
  file(WRITE ${OUT}/${page}.1
       ".TH ${title} 1 \"\" \"Orrery ${VERSION}\"\n.SH NAME\n${shown} \\- ${summary}\n.SH DESCRIPTION\n${purpose}\n"
       "${rest}.fi\n.SH \"SEE ALSO\"\n.BR plan (1)\n")
endforeach()
