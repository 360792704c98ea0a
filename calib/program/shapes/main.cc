// SPDX-License-Identifier: Apache-2.0
// plan-shapes: prints calib/measure/shapes.csv anew from the models of the catalogue.
#include <cstdio>
#include <iostream>

#include "calib/measure/shapes.h"

int main(int argc, char**) {
  if (argc > 1) {
    std::cerr << "usage: plan-shapes > calib/measure/shapes.csv\n";
    return 2;
  }
  try {
    std::cout << orrery::ShapesCsv(orrery::CatalogueShapes());
  } catch (const orrery::InputError& error) {
    std::cerr << error.what();
    return 2;
  }
  return std::cout.flush() ? 0 : 1;
}
