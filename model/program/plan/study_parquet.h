// SPDX-License-Identifier: Apache-2.0
// `plan sweep --out FILE.parquet`: the rows of FILE.csv as Parquet.
#pragma once

#include "model/program/plan/study_files.h"

namespace orrery::cli {

// Where the rows of such a study are held until all are there, and stay: with the ending .csv.
std::string CsvBeside(const std::string& parquet);
// Writes the file whole or not at all. Of a study that is complete. Throws InputError.
void WriteParquet(const Study& study, const StudyFiles& files, const Flag& out);

}  // namespace orrery::cli
