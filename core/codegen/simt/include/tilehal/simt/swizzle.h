// Block orders that walk the grid in panels, so that neighbouring blocks share tiles in the cache.
#pragma once

#include "types.h"

namespace tilehal {

struct BlockPlace {
  unsigned int x, y, z;
};

// Panels of `Width` rows (Rows) or columns; within a panel the shorter side runs fastest, every other panel backwards.
template <int Width, bool Rows> TILEHAL_DEVICE BlockPlace panel_order() {
  const unsigned int nx = platform::grid_x(), ny = platform::grid_y();
  const unsigned int along = Rows ? nx : ny, across = Rows ? ny : nx;
  const unsigned int linear = platform::block_x() + platform::block_y() * nx;
  const unsigned int panel = linear / (Width * along), inside = linear % (Width * along);
  const unsigned int left = across - panel * Width;
  const unsigned int width = left < (unsigned int)Width ? left : (unsigned int)Width;
  const unsigned int step = inside / width;
  const unsigned int major = panel & 1u ? along - 1u - step : step, minor = panel * Width + inside % width;
  return Rows ? BlockPlace{major, minor, platform::block_z()} : BlockPlace{minor, major, platform::block_z()};
}

template <int Width> TILEHAL_DEVICE BlockPlace rasterization2DRow() { return panel_order<Width, true>(); }
template <int Width> TILEHAL_DEVICE BlockPlace rasterization2DColumn() { return panel_order<Width, false>(); }

} // namespace tilehal
